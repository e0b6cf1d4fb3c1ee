// Pages: regions that come when they are touched.
#include <algorithm>
#include <thread>
#include <utility>

#include "client/hostmem/direct_reads.h"
#include "client/hostmem/pages.h"
#include "client/memory/user_faults.h"
#include "common/base/log.h"
#include "common/host/memory_page.h"
#include "generated/client/wire/internal.h"

namespace fargpu::client {
namespace {

// The most that comes at once; less while work may be running, so that it comes in one answer.
constexpr size_t kMostAhead = (size_t{8} << 20) / BlockStates::kBlock;
constexpr size_t kMostBesideWork = (size_t{2} << 20) / BlockStates::kBlock;
// What has been shown stays so long at least, so that threads that touch different parts, all of
// which a kernel writes, do not keep closing each other's.
constexpr auto kLeastShown = std::chrono::microseconds(100);
// Closing takes at most this part of the time.
constexpr int kPartOfTime = 20;
constexpr int kMostRounds = 8;
// To compare so many closed blocks again takes longer than to look at all descriptors.
constexpr size_t kLeastAsked = (size_t{1} << 20) / BlockStates::kBlock;

}  // namespace

bool Pages::is_to_settle() {
  std::lock_guard lock(state_);
  return std::exchange(asked_, false);
}

void Pages::await_settling() {
  std::unique_lock lock(state_);
  asking_.wait(lock, [this] { return std::exchange(asked_, false); });
}

void Pages::settle() {
  if (settling_ || !is_running()) return;
  settling_ = asked_ = true;
  asking_.notify_one();
}

void Pages::settled() {
  std::lock_guard lock(state_);
  settling_ = false;
}

const Pages::Region* Pages::find_gated(uint64_t address) const {
  const auto found = regions_.find(address);
  return found != regions_.end() && found->second.gate != nullptr ? &found->second : nullptr;
}

bool Pages::any_open() const {
  return std::any_of(regions_.begin(), regions_.end(), [](const auto& entry) {
    return entry.second.gate != nullptr && entry.second.blocks.any_open();
  });
}

bool Pages::any_gated() const {
  std::lock_guard lock(state_);
  return gated_ != 0;
}

bool Pages::any_gated(uint64_t begin, uint64_t end) const {
  std::lock_guard lock(state_);
  return std::any_of(regions_.begin(), regions_.end(), [&](const auto& entry) {
    const auto& [address, region] = entry;
    return region.gate != nullptr && begin < address + region.agreement.bytes() && end > address;
  });
}

void Pages::close_blocks(Region& region, size_t least) {
  BlockStates& blocks = region.blocks;
  for (BlockStates::Run run = blocks.next_open(0); !run.empty(); run = blocks.next_open(run.end)) {
    if (run.end - run.first < least) continue;
    const size_t from = blocks.offset(run), bytes = blocks.bytes(run);
    const size_t done = region.gate->close(from, bytes);
    // The block that cannot be closed stays, others are tried.
    const size_t end = done == bytes ? run.end : blocks.block_of(from + done);
    blocks.close({run.first, end});
    if (end != run.first) closed_now_.push_back({&region, {run.first, end}});
    if (end < run.end) run = {end, end + 1};
  }
}

void Pages::close_open(size_t least, std::vector<ClosedBlocks>* closed) {
  if (closed == nullptr && least == 1) due_.reset();
  closed_now_.clear();
  for (auto& [address, region] : regions_)
    if (region.gate != nullptr) close_blocks(region, least);
  // Asked behind that: what begins to read from now on opens them.
  size_t blocks = 0;
  for (const auto& [region, run] : closed_now_) blocks += run.end - run.first;
  if (blocks >= kLeastAsked && asks_descriptors_ && !may_read_directly())
    for (const auto& [region, run] : closed_now_) region->blocks.settle(run);
  if (closed != nullptr) *closed = closed_now_;
}

void Pages::fail_closed(Region& region) {
  constexpr size_t kAll = SIZE_MAX;
  BlockStates& blocks = region.blocks;
  for (BlockStates::Run run = blocks.next_closed(0, kAll); !run.empty();
       run = blocks.next_closed(run.end, kAll)) {
    region.gate->fail(blocks.offset(run), blocks.bytes(run));
    if (region.gate->is_moved()) blocks.open(run);
  }
}

void Pages::look_later() {
  due_ = Clock::now() + interval_;
  if (next_look_ && *next_look_ <= *due_) return;
  next_look_ = due_;
  faults_.wake();
}

std::optional<Pages::Clock::time_point> Pages::look() {
  {
    std::lock_guard lock(state_);
    next_look_ = due_;
    if (!due_ || Clock::now() < *due_) return due_;
  }
  std::lock_guard no_pull(pulling_);
  std::lock_guard lock(state_);
  if (due_ && Clock::now() >= *due_) {
    const Clock::time_point begin = Clock::now();
    const bool running = is_running();
    due_.reset();
    if (running) close_open();
    // A host that only waits for the end of a kernel need not be asked so often.
    interval_ = std::exchange(news_, false) ? kShortest : std::min(2 * interval_, kLongest);
    interval_ = std::max<Clock::duration>(interval_, kPartOfTime * (Clock::now() - begin));
  }
  next_look_ = due_;
  return due_;
}

CUresult Pages::fetch_part(uint64_t address, size_t bytes, bool* news) {
  bool running = false;
  {
    std::lock_guard lock(state_);
    const Region* const region = find(address, bytes);
    if (region != nullptr && region->read_only) return CUDA_SUCCESS;
    fetching_ = true;
    running = is_running();
  }
  CUresult result = CUDA_SUCCESS;
  const uint64_t end = address + bytes;
  // In several answers are bytes of several times: until there is nothing new.
  bool again = true;
  for (int round = 0; again && result == CUDA_SUCCESS && round < kMostRounds; ++round) {
    again = false;
    for (uint64_t at = address; at != 0 && result == CUDA_SUCCESS;) {
      buffer_.resize(limit_);
      Fetched fetched;
      result = wire::fgPagesFetchPart(link_, 0, at, end - at, buffer_.size(), &fetched.next,
                                      &fetched.pushes, &fetched.bytes, buffer_.data());
      if (result == CUDA_SUCCESS && (fetched.bytes > buffer_.size() || fetched.next >= end))
        result = CUDA_ERROR_UNKNOWN;
      if (result == CUDA_SUCCESS)
        result = merge(std::span(buffer_).first(fetched.bytes), fetched.pushes);
      *news |= fetched.bytes != 0;
      again |= running && fetched.next != 0;
      at = fetched.next;
    }
  }
  std::lock_guard lock(state_);
  fetching_ = false;
  overtaken_.clear();
  return result;
}

void Pages::open_brought(uint64_t number, uint64_t address, BlockStates::Run run, CUresult result) {
  const auto found = regions_.find(address);
  // It may have ended meanwhile.
  if (found == regions_.end() || found->second.number != number) return;
  Region& region = found->second;
  BlockStates& blocks = region.blocks;
  if (result != CUDA_SUCCESS) {
    log::error("mapped memory at 0x{:x} cannot be fetched: error {}", address + blocks.offset(run),
               static_cast<int>(result));
    region.gate->fail(blocks.offset(run), blocks.bytes(run));
    if (region.gate->is_moved()) blocks.open(run);
    return;
  }
  region.gate->open(blocks.offset(run), blocks.bytes(run));
  blocks.open(run);
}

// Something new is about to be shown while work may be running. What the application saw before is
// not to be seen beside it.
void Pages::make_way() {
  {
    std::lock_guard lock(state_);
    news_ = true;
    close_open();
  }
  (void)fetch_all();
}

CUresult Pages::fetch_open() {
  std::vector<Range> open;
  {
    std::lock_guard lock(state_);
    if (gated_ == 0 || !is_running()) return CUDA_SUCCESS;
    for (const auto& [address, region] : regions_) {
      if (region.gate == nullptr || !region.gate->is_moved()) continue;
      const BlockStates& blocks = region.blocks;
      for (BlockStates::Run run = blocks.next_open(0); !run.empty();
           run = blocks.next_open(run.end)) {
        const uint64_t begin = address + blocks.offset(run);
        open.push_back({begin, begin + blocks.bytes(run)});
      }
    }
  }
  bool news = false;
  for (const Range& range : open) {
    for (uint64_t at = range.begin; at < range.end;) {
      const size_t bytes = std::min<uint64_t>(range.end - at, kMostAhead * BlockStates::kBlock);
      if (const CUresult result = fetch_part(at, bytes, &news); result != CUDA_SUCCESS)
        return result;
      at += bytes;
    }
  }
  return CUDA_SUCCESS;
}

void Pages::before_fork() {
  pulling_.lock();
  std::vector<uint64_t> moved;
  {
    std::lock_guard lock(state_);
    for (const auto& [address, region] : regions_) {
      if (region.gate != nullptr && region.gate->is_moved()) moved.push_back(address);
    }
  }
  for (const uint64_t address : moved) {
    if (bring_closed(address) == CUDA_SUCCESS) continue;
    std::lock_guard lock(state_);
    if (const auto found = regions_.find(address); found != regions_.end())
      fail_closed(found->second);
  }
}

CUresult Pages::bring_run(uint64_t address, uint64_t number, BlockStates::Run run,
                          bool is_awaited) {
  size_t offset = 0, bytes = 0;
  {
    std::lock_guard lock(state_);
    const Region* const region = find_gated(address);
    if (region == nullptr || region->number != number) return CUDA_SUCCESS;
    offset = region->blocks.offset(run);
    bytes = region->blocks.bytes(run);
  }
  bool news = false;
  const CUresult result = fetch_part(address + offset, bytes, &news);
  bool running = false;
  {
    std::lock_guard lock(state_);
    running = is_running();
  }
  if (running && news) {
    if (is_awaited) std::this_thread::sleep_until(shown_ + kLeastShown);
    make_way();
  }
  if (result != CUDA_SUCCESS && !is_awaited) return result;  // an access will find out
  std::lock_guard lock(state_);
  open_brought(number, address, run, result);
  shown_ = Clock::now();
  if (is_running() && !due_) look_later();
  return result;
}

CUresult Pages::bring(uint64_t address) {
  address = page_of(address);
  std::lock_guard no_pull(pulling_);
  uint64_t base = 0, number = 0;
  BlockStates::Run run;
  {
    std::lock_guard lock(state_);
    Region* const region = find(address, 1);
    if (region == nullptr || region->gate == nullptr) return CUDA_ERROR_NOT_MAPPED;
    base = region->address();
    number = region->number;
    const size_t block = region->blocks.block_of(address - base);
    if (region->blocks.is_open(block)) {
      // The system has taken pages away, or another access has brought them.
      region->gate->open(region->blocks.offset({block, block + 1}),
                         region->blocks.bytes({block, block + 1}));
      return CUDA_SUCCESS;
    }
    const size_t most = is_running() ? kMostBesideWork : kMostAhead;
    region->ahead = block == region->next ? std::min(2 * region->ahead, most) : 1;
    run = region->blocks.next_closed(block, region->ahead);
    region->next = run.end;
  }
  const CUresult result = bring_run(base, number, run, true);
  std::lock_guard lock(state_);
  settle();
  return result;
}

void Pages::close_all(SmallRegions* small) {
  std::lock_guard lock(state_);
  if (gated_ == 0 || !is_running()) return;
  for (const auto& [address, region] : regions_) {
    if (region.gate == nullptr || region.blocks.count() != 1 || !region.blocks.any_open()) continue;
    if (small->count < small->regions.size())
      small->regions[small->count++] = {address, region.number};
  }
  close_open();
}

// That costs an answer, as an access would, but no fault.
CUresult Pages::bring_small(const SmallRegions& small) {
  for (size_t i = 0; i < small.count; ++i) {
    const auto [address, number] = small.regions[i];
    const CUresult result = bring_run(address, number, {0, 1}, false);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

CUresult Pages::bring_closed(uint64_t address) {
  for (;;) {
    uint64_t number = 0;
    BlockStates::Run run;
    size_t offset = 0, bytes = 0;
    {
      std::lock_guard lock(state_);
      const Region* const region = find_gated(address);
      if (region == nullptr) return CUDA_SUCCESS;
      run = region->blocks.next_closed(0, kMostAhead);
      if (run.empty()) return CUDA_SUCCESS;
      number = region->number;
      offset = region->blocks.offset(run);
      bytes = region->blocks.bytes(run);
    }
    bool news = false;
    if (const CUresult result = fetch_part(address + offset, bytes, &news); result != CUDA_SUCCESS)
      return result;
    std::lock_guard lock(state_);
    open_brought(number, address, run, CUDA_SUCCESS);
  }
}

CUresult Pages::stop_closing(uint64_t address) {
  bool read_only = false;
  {
    std::lock_guard lock(state_);
    const Region* const region = find_gated(address);
    if (region == nullptr) return CUDA_SUCCESS;
    read_only = region->read_only;
  }
  CUresult result = bring_closed(address);
  if (result == CUDA_SUCCESS && !read_only) result = wire::fgPagesOnDemand(link_, 0, address, 0);
  if (result != CUDA_SUCCESS) return result;
  std::lock_guard lock(state_);
  const auto found = regions_.find(address);
  if (found == regions_.end() || found->second.gate == nullptr) return CUDA_SUCCESS;
  found->second.gate->unwatch();
  found->second.gate.reset();
  found->second.blocks = BlockStates(found->second.agreement.bytes());
  --gated_;
  return CUDA_SUCCESS;
}

CUresult Pages::keep_open(uint64_t address) {
  std::lock_guard no_pull(pulling_);
  return stop_closing(address);
}

CUresult Pages::keep_all_open(std::optional<uint16_t> context) {
  std::lock_guard no_pull(pulling_);
  std::vector<uint64_t> wanted;
  {
    std::lock_guard lock(state_);
    for (const auto& [address, region] : regions_) {
      if (region.gate != nullptr && (!context || region.context == *context))
        wanted.push_back(address);
    }
  }
  for (const uint64_t address : wanted)
    if (const CUresult result = stop_closing(address); result != CUDA_SUCCESS) return result;
  return CUDA_SUCCESS;
}

}  // namespace fargpu::client
