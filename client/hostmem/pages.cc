#include "client/hostmem/pages.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "common/base/log.h"
#include "common/host/memory_page.h"
#include "generated/client/wire/internal.h"

namespace fargpu::client {
CUresult Pages::add(uint64_t address, size_t bytes, uint16_t context,
                    const std::function<CUresult(CUdeviceptr* device_pointer)>& map,
                    const std::function<bool()>& ended,
                    const std::function<std::shared_ptr<PageGate>()>& gate, bool read_only) {
  // No pull may be under way that could bring old bytes of these addresses.
  std::lock_guard no_pull(pulling_);
  if (device_pointer(address)) return CUDA_SUCCESS;
  try {
    Region region{
        .agreement = pages::Agreement(address, bytes), .context = context, .read_only = read_only};
    if (const CUresult result = map(&region.device_pointer); result != CUDA_SUCCESS) return result;
    region.gate = gate();
    if (read_only && region.gate == nullptr)
      region.file = UnchangedFile::of(page_of(address), page_from(address + bytes));
    // Under the lock: if it has not ended yet, forget_context() is still to come.
    std::lock_guard lock(state_);
    if (ended()) {
      if (region.gate != nullptr) region.gate->unwatch();
      return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    }
    region.blocks = region.gate == nullptr
                        ? BlockStates(bytes)
                        : BlockStates(bytes, region.gate->head(), region.gate->tail());
    if (region.gate != nullptr) {
      region.number = ++gated_ever_;
      ++gated_;
    }
    regions_.emplace(address, std::move(region));
    observers_.add(Observers::kMirrors);
  } catch (const std::bad_alloc&) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  return CUDA_SUCCESS;
}

bool Pages::remove(uint64_t address) {
  std::lock_guard lock(state_);
  const auto region = regions_.find(address);
  const bool found = region != regions_.end();
  if (found) forget(region);
  observers_.set(Observers::kMirrors, !regions_.empty());
  return found;
}

std::vector<uint64_t> Pages::forget_context(uint16_t context) {
  std::lock_guard lock(state_);
  std::vector<uint64_t> gone;
  for (auto next = regions_.begin(); next != regions_.end();) {
    const auto region = next++;
    if (region->second.context != context) continue;
    gone.push_back(region->first);
    if (region->second.gate != nullptr) fail_closed(region->second);
    forget(region);
  }
  observers_.set(Observers::kMirrors, !regions_.empty());
  return gone;
}

void Pages::forget(std::map<uint64_t, Region>::iterator region) {
  forget_words(region->first, region->second.agreement.bytes());
  if (region->second.gate != nullptr) {
    --gated_;
    region->second.gate->unwatch();
  }
  regions_.erase(region);
}

std::optional<uint64_t> Pages::device_pointer(uint64_t address) const {
  std::lock_guard lock(state_);
  const auto found = regions_.find(address);
  if (found == regions_.end()) return std::nullopt;
  return found->second.device_pointer;
}

bool Pages::touches(uint64_t address, uint64_t bytes) const {
  if (!observers_.any(Observers::kMirrors) || bytes == 0) return false;
  std::lock_guard lock(state_);
  const auto after = regions_.upper_bound(address);
  if (after != regions_.end() && after->first - address < bytes) return true;
  if (after == regions_.begin()) return false;
  const auto& [base, region] = *std::prev(after);
  return address - base < region.agreement.bytes();
}

void Pages::watch(uint64_t address, size_t bytes) {
  if (!observers_.any(Observers::kMirrors) || address % bytes != 0) return;
  std::lock_guard lock(state_);
  if (find(address, bytes) == nullptr) return;
  const uint64_t pair = address & ~(sizeof(uint64_t) - 1);
  if (const auto found = watched_.find(pair);
      found != watched_.end() && found->second == sizeof(uint64_t)) {
    return;
  }
  if (bytes == sizeof(uint64_t)) watched_.erase(pair + sizeof(uint32_t));
  watched_[address] = bytes;
}

void Pages::forget_words(uint64_t address, uint64_t bytes) {
  watched_.erase(watched_.lower_bound(address), watched_.lower_bound(address + bytes));
  late_.forget(address, address + bytes);
}

void Pages::begin_work() {
  std::lock_guard lock(state_);
  ++begun_;
}

void Pages::end_work() {
  std::lock_guard lock(state_);
  ++sent_;
  if (gated_ != 0 && !due_ && any_open()) {
    interval_ = kShortest;
    look_later();
  }
}

std::optional<uint64_t> Pages::mark() const {
  if (!observers_.any(Observers::kMirrors)) return std::nullopt;
  std::lock_guard lock(state_);
  if (begun_ != sent_) return std::nullopt;
  return begun_;
}

CUresult Pages::pull(std::optional<uint64_t> done) {
  const uint64_t ticket = wanted_.fetch_add(1, std::memory_order_acq_rel) + 1;
  std::lock_guard no_other(pulling_);
  SmallRegions small;
  if (covered_ < ticket) {
    const uint64_t covers = wanted_.load(std::memory_order_acquire);
    close_all(&small);
    if (const CUresult result = fetch_all(); result != CUDA_SUCCESS) return result;
    covered_ = covers;
  }
  if (done) {
    std::lock_guard lock(state_);
    clean_ = std::max(clean_, *done);
  }
  return bring_small(small);
}

CUresult Pages::fetch_all() {
  if (const CUresult result = fetch_open(); result != CUDA_SUCCESS) return result;
  {
    std::lock_guard lock(state_);
    if (regions_.size() == gated_ || !is_running()) return CUDA_SUCCESS;
    fetching_ = true;
  }
  CUresult result = CUDA_SUCCESS;
  Fetched fetched;
  do {
    buffer_.resize(limit_);
    result = wire::fgPagesFetch(link_, 0, fetched.next, buffer_.size(), &fetched.next,
                                &fetched.pushes, &fetched.bytes, buffer_.data());
    if (result == CUDA_SUCCESS && fetched.bytes > buffer_.size()) result = CUDA_ERROR_UNKNOWN;
    if (result == CUDA_SUCCESS)
      result = merge(std::span(buffer_).first(fetched.bytes), fetched.pushes);
  } while (result == CUDA_SUCCESS && fetched.next != 0);
  std::lock_guard lock(state_);
  fetching_ = false;
  overtaken_.clear();
  return result;
}

CUresult Pages::merge(std::span<const std::byte> runs, uint64_t pushes) {
  std::lock_guard lock(state_);
  // Pushes that the worker had applied already were part of its comparison.
  std::erase_if(overtaken_, [this, pushes](const Overtaken& push) {
    return push.number <= pushes || push.number > pushes_;
  });
  for (const pages::LateWords::Part& word : late_.parts())  // not sent yet
    overtaken_.push_back({pushes_ + 1, word.begin, word.end - word.begin});
  // The bytes of the others, in order and without overlaps.
  std::sort(overtaken_.begin(), overtaken_.end(),
            [](const Overtaken& a, const Overtaken& b) { return a.address < b.address; });
  newer_.clear();
  for (const Overtaken& push : overtaken_) {
    const uint64_t end = push.address + push.bytes;
    if (newer_.empty() || push.address > newer_.back().end) {
      newer_.push_back({push.address, end});
    } else {
      newer_.back().end = std::max(newer_.back().end, end);
    }
  }
  pages::RunReader reader(runs);
  while (const auto run = reader.next()) {
    // The region may have ended meanwhile.
    if (Region* const region = find(run->address, run->data.size())) merge_one(*region, *run);
  }
  write_merged();
  if (!reader.malformed()) return CUDA_SUCCESS;
  log::error("the server's changes of mapped memory make no sense");
  return CUDA_ERROR_UNKNOWN;
}

void Pages::merge_one(Region& region, pages::ByteRun run) {
  // Skips bytes for which newer ones are on their way: those also replace the worker's.
  const uint64_t end = run.address + run.data.size();
  auto newer = std::partition_point(newer_.begin(), newer_.end(),
                                    [&](const Range& range) { return range.end <= run.address; });
  for (; newer != newer_.end() && newer->begin < end && !run.data.empty(); ++newer) {
    if (run.address < newer->begin)
      merge_part(region, {run.address, run.data.first(newer->begin - run.address)});
    const uint64_t on = std::min(end, newer->end);
    run = {on, run.data.last(end - on)};
  }
  if (!run.data.empty()) merge_part(region, run);
}

void Pages::merge_part(Region& region, const pages::ByteRun& run) {
  if (region.read_only) return;
  const BlockStates& blocks = region.blocks;
  for (pages::ByteRun left = run; !left.data.empty();) {
    const size_t from = left.address - region.address();
    const auto same = blocks.same_from(blocks.block_of(from), from + left.data.size());
    const size_t bytes =
        std::min(left.data.size(), blocks.offset(same) + blocks.bytes(same) - from);
    const pages::ByteRun part = {left.address, left.data.first(bytes)};
    if (is_read(region, same.first))
      merge_read(region, part);
    else
      region.agreement.merge(part, region.gate->local());
    left = {left.address + bytes, left.data.subspan(bytes)};
  }
}

Pages::Region* Pages::find(uint64_t address, size_t bytes) {
  const auto after = regions_.upper_bound(address);
  if (after == regions_.begin()) return nullptr;
  Region& region = std::prev(after)->second;
  return region.agreement.holds(address, bytes) ? &region : nullptr;
}

}  // namespace fargpu::client
