// Pages: what is sent before work. All of it is what the memory held at one moment: bytes that one
// thread of the host stored ahead of others are not sent behind them, whatever another thread sends
// meanwhile.
//
// A look at all memory takes time, and finds a later store without an earlier one if it has passed
// the earlier one's place. So looks go round until everything was looked at since the last change
// was found: then all of it was there at once. If that does not come to an end, memory with a gate
// is closed for a look, and its writers wait; of the rest a snapshot is taken, at which looks come
// to an end. What was closed before the look need not be looked at again for the sake of a change
// in it: it was stored before the look began, like all that its thread stored ahead of it. So much
// memory that is open is closed first, and stays so: the end of the work would close it.
//
// A kernel may look while the worker puts bytes in their places, in the order in which they are
// sent: by address, and words that may be flags (LateWords) behind everything else.
#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <span>
#include <utility>

#include "client/hostmem/pages.h"
#include "client/link/link.h"
#include "client/stream/amendable_copies.h"
#include "common/copy/thread_team.h"
#include "common/host/memory_page.h"
#include "generated/client/wire/internal.h"
#include "generated/schema/opcodes.h"

namespace fargpu::client {
namespace {

constexpr int kOpenLooks = 3;  // before memory is closed
constexpr int kMostLooks = 16;
constexpr size_t kMuch = (size_t{8} << 20) / BlockStates::kBlock;
// Before waits, looks at closed memory take at most this part of the time.
constexpr int kPartOfLooks = 20;
constexpr size_t kMostOfLateWord = 24;  // bytes in a frame: the gap, the length, the word
// Of closed memory that is compared by several threads.
constexpr size_t kPart = size_t{1} << 20, kParts = 8;
static_assert(kPart % pages::Agreement::kPage == 0);

}  // namespace

// Acquires: makes visible what the host stored before each word.
void Pages::read_words() {
  words_.clear();
  for (const auto& [address, bytes] : watched_) {
    Word word{find(address, bytes), address, bytes, {}};
    if (word.region == nullptr) continue;
    if (read_word(*word.region, address - word.region->address(), std::span(word.now).first(bytes)))
      words_.push_back(word);
  }
}

bool Pages::any_word_changed() {
  std::lock_guard lock(state_);
  read_words();
  return words_differ();
}

bool Pages::words_differ() const {
  return std::any_of(words_.begin(), words_.end(), [](const Word& word) {
    return word.region->agreement.differs(word.address - word.region->address(),
                                          std::span(word.now).first(word.bytes));
  });
}

CUresult Pages::push(const pages::Agreement::Visit& visit, const std::function<bool()>& is_all) {
  std::unique_lock no_pull(pulling_, std::defer_lock);
  std::unique_lock lock(state_);
  if (!runs_) runs_.emplace(limit_);
  read_words();
  CUresult result = push_others(visit, no_pull);
  if (result == CUDA_SUCCESS && looks_ > kMostLooks && gated_ != 0 && !no_pull.owns_lock()) {
    // Something was being fetched, so that nothing could be closed. In the order of the locks:
    result = send();
    lock.unlock();
    no_pull.lock();
    lock.lock();
    read_words();
    if (result == CUDA_SUCCESS) result = push_others(visit, no_pull);
  }
  if (result != CUDA_SUCCESS) return result;
  if ((is_all && !is_all()) || (late_.empty() && words_.empty())) return send();
  result = push_late();
  return result == CUDA_SUCCESS ? push_words() : result;
}

CUresult Pages::push_others(const pages::Agreement::Visit& visit,
                            std::unique_lock<std::mutex>& no_pull) {
  const Clock::time_point begin = gated_ != 0 ? Clock::now() : Clock::time_point();
  bool old = gated_ != 0 && begin - aged_ >= longest_read_;
  if (old) aged_ = begin;
  looks_at_closed_ = old || begun_ != sent_ || words_differ() ||
                     begin - closed_looked_at_ >= kPartOfLooks * closed_took_;
  // While something is being fetched, the worker may agree to another byte in a gap. Nor may a gap
  // have a word that goes last: one look finds those behind what it has sent.
  has_gaps_ = !fetching_ && late_.empty() && link_.knows(schema::op_fgPagesPushChanges);
  uint64_t until = UINT64_MAX;
  std::vector<ClosedBlocks> closed;
  // Against the order of the locks, so it is only tried.
  const bool is_locked = no_pull.owns_lock();
  if (gated_ != 0 && is_running() && (is_locked || no_pull.try_lock())) {
    close_open(kMuch);
    if (!is_locked) no_pull.unlock();
  }
  bool is_held = false;
  CUresult result = CUDA_SUCCESS;
  for (looks_ = 1; result == CUDA_SUCCESS && looks_ <= kMostLooks; ++looks_) {
    if (looks_ > kOpenLooks && !is_held && (gated_ == 0 || is_locked || no_pull.try_lock())) {
      is_held = true;
      close_open(1, &closed);
      take_snapshot();
    }
    changed_until_ = 0;
    result = look_at(0, until, std::exchange(old, false), visit);
    if (snapshot_.is_begun() && !snapshot_.is_whole()) {
      snapshot_.end();
      until = UINT64_MAX;
      continue;
    }
    if (changed_until_ == 0) break;
    // What lies behind was looked at before this change.
    if (result == CUDA_SUCCESS && until != UINT64_MAX)
      result = look_at(until, UINT64_MAX, false, visit);
    // A page may have been read in any order. What the system has read into closed memory may be
    // what the change tells of.
    until = std::exchange(looks_at_closed_, true) ? page_from(changed_until_) : UINT64_MAX;
  }
  snapshot_.end();
  if (gated_ != 0 && looks_at_closed_) {
    closed_looked_at_ = Clock::now();
    closed_took_ = closed_looked_at_ - begin;
  }
  for (const auto& [region, run] : closed) {
    region->gate->open(region->blocks.offset(run), region->blocks.bytes(run));
    region->blocks.open(run);
  }
  return result;
}

CUresult Pages::look_at(uint64_t begin, uint64_t until, bool old,
                        const pages::Agreement::Visit& visit) {
  for (auto& [address, region] : regions_) {
    if (address >= until) break;
    const size_t bytes = region.agreement.bytes();
    const size_t first = std::min<uint64_t>(bytes, begin - std::min(begin, address));
    const size_t end = std::min<uint64_t>(bytes, until - address);
    if (region.file != nullptr && region.file->is_as_seen()) continue;
    BlockStates& blocks = region.blocks;
    const auto next_run = [&](size_t at) {
      const auto run = looks_at_closed_ ? blocks.next_suspect(at) : blocks.next_unseen(at);
      if (run.empty()) return run;
      return blocks.same_from(run.first, blocks.offset(run) + blocks.bytes(run));
    };
    for (BlockStates::Run run = next_run(0); !run.empty(); run = next_run(run.end)) {
      const size_t from = blocks.offset(run), until_here = from + blocks.bytes(run);
      const uint64_t changed_until = changed_until_;
      const CUresult result =
          push_part(region, std::max(first, from), std::min(end, until_here), visit);
      if (result != CUDA_SUCCESS) return result;
      if (!blocks.is_open(run.first) && looks_at_closed_) changed_until_ = changed_until;
      if (from >= first && until_here <= end) blocks.compared(run, old);
    }
    if (end - first != bytes) continue;
    region.is_new = false;
    if (region.file != nullptr) region.file->was_seen();
  }
  return CUDA_SUCCESS;
}

// All that is open or nothing: what goes on changing must not be seen beside what does not.
void Pages::take_snapshot() {
  bool is_all = true;
  for (const auto& [address, region] : regions_) {
    if (region.file != nullptr && region.file->is_as_seen()) continue;
    const size_t bytes = region.agreement.bytes();
    if (region.gate == nullptr) {
      is_all = is_all && snapshot_.add(address, bytes);
      continue;
    }
    const size_t head = region.gate->head(), tail = region.gate->tail();
    is_all = is_all && !region.blocks.any_open() && (head == 0 || snapshot_.add(address, head)) &&
             (tail == 0 || snapshot_.add(address + bytes - tail, tail));
  }
  if (is_all)
    (void)snapshot_.begin();
  else
    snapshot_.end();
}

CUresult Pages::push_part(Region& region, size_t from, size_t until,
                          const pages::Agreement::Visit& visit) {
  const uint64_t address = region.address();
  auto word = watched_.lower_bound(address + from);
  for (size_t at = from; at < until;) {
    const bool none = word == watched_.end() || word->first - address >= until;
    const size_t stop = none ? until : word->first - address;
    const bool is_large = stop > at + kPart && ThreadTeam::get().threads() > 1;
    const CUresult result = is_large && is_closed(region, at, stop)
                                ? push_side_by_side(region, at, stop, visit)
                                : push_alone(region, at, stop, visit);
    if (result != CUDA_SUCCESS) return result;
    at = stop;
    if (none) continue;
    at += word->second;
    ++word;
  }
  return CUDA_SUCCESS;
}

CUresult Pages::push_alone(Region& region, size_t at, size_t until,
                           const pages::Agreement::Visit& visit) {
  while (at < until) {
    const size_t runs = runs_->bytes().size(), late = late_.count();
    at = collect(region, at, until, visit);
    if (runs_->bytes().size() != runs) changed_until_ = std::max(changed_until_, runs_->end());
    if (late_.count() != late) changed_until_ = std::max(changed_until_, late_.end());
    if (at == until) break;
    CUresult result = send();
    if (result == CUDA_SUCCESS && late_.full()) result = push_late();
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

bool Pages::is_closed(const Region& region, size_t from, size_t until) {
  const BlockStates& blocks = region.blocks;
  if (region.gate == nullptr || blocks.is_open(blocks.block_of(from))) return false;
  const auto same = blocks.same_from(blocks.block_of(from), until);
  return blocks.offset(same) + blocks.bytes(same) >= until;
}

// The threads are to find all the memory that they need.
void Pages::make_parts() {
  parts_.reserve(2 * kParts);
  while (parts_.size() < 2 * kParts) {
    Part& part = parts_.emplace_back(std::min(limit_, 2 * kPart));
    part.runs.reserve();
    part.late.reserve(kPart / pages::LateWords::kLine);
  }
}

// Of closed memory, of which nothing changes meanwhile. Several threads look at some parts of it
// while this one sends, in order, what they have found in the parts before.
CUresult Pages::push_side_by_side(Region& region, size_t at, size_t until,
                                  const pages::Agreement::Visit& visit) {
  struct Batch {
    std::span<Part> parts;
    size_t count = 0;
    std::function<void(size_t)> look{};
    std::optional<ThreadTeam::Job> job{};
  };
  const uint64_t address = region.address();
  if (parts_.empty()) make_parts();
  std::array<Batch, 2> batches = {Batch{std::span(parts_).first(kParts)},
                                  Batch{std::span(parts_).last(kParts)}};
  const auto begin = [&](Batch& batch) {
    for (batch.count = 0; batch.count < kParts && at < until; ++batch.count) {
      Part& part = batch.parts[batch.count];
      part.runs.clear();
      part.late.clear();
      part.begin = at;
      at = part.end = std::min<size_t>(until, (address + at + kPart) / kPart * kPart - address);
    }
    batch.look = [this, &region, &batch](size_t i) {
      Part& part = batch.parts[i];
      part.reached = collect_into(region, region.gate->local(), part.begin, part.end, {}, part.runs,
                                  part.late);
    };
    batch.job.emplace(ThreadTeam::get(), batch.count, batch.look);
  };
  CUresult result = send();
  begin(batches[0]);
  for (size_t turn = 0; batches[turn].count != 0; turn = 1 - turn) {
    batches[turn].job.reset();
    begin(batches[1 - turn]);
    for (Part& part : batches[turn].parts.first(batches[turn].count)) {
      if (result == CUDA_SUCCESS) result = push_found(region, part, visit);
      if (result == CUDA_SUCCESS) result = push_alone(region, part.reached, part.end, visit);
      if (result == CUDA_SUCCESS) result = send();
    }
  }
  return result;
}

CUresult Pages::push_found(const Region& region, Part& part, const pages::Agreement::Visit& visit) {
  constexpr size_t kPage = pages::Agreement::kPage;
  const uint64_t begin = region.address(), end = begin + region.agreement.bytes();
  uint64_t visited = 0;  // up to here
  const auto visit_pages = [&](uint64_t from, uint64_t until) {
    for (uint64_t page = std::max(from / kPage * kPage, visited); page < until; page = visited) {
      visited = page + kPage;
      const uint64_t first = std::max(page, begin), last = std::min(visited, end);
      visit(first, region.agreement.contents(first - begin, last - first));
    }
  };
  if (!part.runs.empty()) changed_until_ = std::max(changed_until_, part.runs.end());
  if (!part.late.empty()) changed_until_ = std::max(changed_until_, part.late.end());
  if (visit) {
    pages::RunReader reader(part.runs.bytes());
    while (const auto run = reader.next())
      visit_pages(run->address, run->address + run->data.size());
    visited = 0;
    for (const pages::LateWords::Part& word : part.late.parts()) visit_pages(word.begin, word.end);
  }
  CUresult result = send(part.runs);
  if (result == CUDA_SUCCESS && late_.count() + part.late.count() > pages::LateWords::kMost)
    result = push_late();
  for (const pages::LateWords::Part& word : part.late.parts())
    late_.add(word.begin, word.end - word.begin);
  return result;
}

CUresult Pages::push_late() {
  // One look has found them as they are.
  const auto runs = looks_ > 2 ? runs_->bytes() : std::span<const std::byte>();
  const auto parts = late_.in_order(runs);
  // In one frame if possible, so that they change together.
  CUresult result = runs_->has_room(parts.size() * kMostOfLateWord) ? CUDA_SUCCESS : send();
  for (const auto& [begin, end] : parts) {
    // The region may have ended meanwhile.
    const Region* const region = find(begin, end - begin);
    if (region == nullptr) continue;
    if (!runs_->has_room(end - begin)) result = send();
    if (result != CUDA_SUCCESS) break;
    runs_->add(begin, region->agreement.contents(begin - region->address(), end - begin));
  }
  late_.clear();
  return result == CUDA_SUCCESS ? send() : result;
}

// As a whole, also what was not changed.
CUresult Pages::push_words() {
  has_gaps_ = false;
  for (const Word& word : words_) {
    const size_t offset = word.address - word.region->address();
    const auto now = std::span(word.now).first(word.bytes);
    while (!word.region->agreement.collect_word(offset, now, *runs_)) {
      if (const CUresult result = send(); result != CUDA_SUCCESS) return result;
    }
  }
  return send();
}

CUresult Pages::send(pages::RunWriter& runs) {
  if (copies_ != nullptr) copies_->amend();
  if (runs.empty()) return CUDA_SUCCESS;
  ++pushes_;
  if (fetching_) {
    pages::RunReader reader(runs.bytes());
    while (const auto run = reader.next())
      overtaken_.push_back({pushes_, run->address, run->data.size()});
  }
  const CUresult result =
      has_gaps_ ? wire::fgPagesPushChanges(link_, 0, runs.bytes().data(), runs.bytes().size())
                : wire::fgPagesPush(link_, 0, runs.bytes().data(), runs.bytes().size());
  runs.clear();
  return result;
}

}  // namespace fargpu::client
