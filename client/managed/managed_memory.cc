#include "client/managed/managed_memory.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "common/base/log.h"

namespace fargpu::client {
namespace {

constexpr uint64_t kSmallestBlock = uint64_t{64} << 10;
constexpr uint64_t kMostBlocks = 65536;
// The system limits the mappings of a process, and each protection needs one.
constexpr uint64_t kMostProtectedBlocks = 4096;
constexpr uint64_t kMostWritten = uint64_t{2} << 20;
constexpr uint64_t kShownAtOnce = uint64_t{2} << 20;
// What is fetched in turn before the next run is fetched unasked.
constexpr uint64_t kLeastInTurn = uint64_t{512} << 10;
constexpr int kMostTries = 16;

thread_local bool own_work = false;
// This thread waits for work, which ends in bring_all() again.
thread_local bool awaiting_idle = false;

uint64_t block_bytes(uint64_t bytes, uint64_t most_blocks) {
  return std::max(kSmallestBlock, std::bit_ceil((bytes + most_blocks - 1) / most_blocks));
}

size_t in_blocks(uint64_t bytes, uint64_t block) { return std::max<uint64_t>(1, bytes / block); }

}  // namespace

ManagedMemory::OwnWork::OwnWork() : before_(std::exchange(own_work, true)) {}
ManagedMemory::OwnWork::~OwnWork() { own_work = before_; }

bool ManagedMemory::is_own_work() { return own_work; }

void ManagedMemory::set_wire(std::unique_ptr<Wire> wire, const UserFaults* faults, bool is_eager,
                             AskAhead ask_ahead, AskShow ask_show) {
  std::lock_guard lock(mutex_);
  wire_ = std::move(wire);
  faults_ = faults;
  ask_ahead_ = std::move(ask_ahead);
  ask_show_ = std::move(ask_show);
  is_eager_.store(is_eager, std::memory_order_relaxed);
}

CUresult ManagedMemory::add(const Allocation& allocation) {
  if (allocation.extents.empty()) {
    const OwnWork own;
    const CUresult result = wire_->clear(*allocation.context, allocation.address, allocation.bytes);
    if (result != CUDA_SUCCESS) return result;
  }
  std::lock_guard lock(mutex_);
  Blocks blocks{};
  blocks.memory = allocation;
  blocks.gate = std::make_unique<DualGate>(
      faults_, allocation.address, allocation.mapping->local(allocation.address), allocation.bytes);
  blocks.block =
      block_bytes(allocation.bytes, faults_ == nullptr ? kMostProtectedBlocks : kMostBlocks);
  const size_t count = (allocation.bytes + blocks.block - 1) / blocks.block;
  blocks.states.assign(count, State::kAway);
  if (!allocation.extents.empty())
    blocks.known = std::make_unique_for_overwrite<std::byte[]>(allocation.bytes);
  Blocks& added = allocations_.emplace(allocation.address, std::move(blocks)).first->second;
  if (!begin(added)) {
    allocations_.erase(allocation.address);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  ++pushes_[allocation.context].allocations;
  observers_.add(Observers::kManagedMemory);
  faulting_allocations.fetch_add(1, std::memory_order_relaxed);
  return CUDA_SUCCESS;
}

// New memory without extents is open: system calls may use it, too.
bool ManagedMemory::begin(Blocks& blocks) {
  const bool is_fresh = blocks.memory.extents.empty();
  if (!blocks.gate->begin(is_fresh)) {
    // The system allows no more mappings: whole allocations need fewer.
    if (give_all() != CUDA_SUCCESS || !blocks.gate->begin(is_fresh)) return false;
  }
  if (!is_fresh) return true;
  const Run all{0, blocks.states.size()};
  note_here(blocks, all, State::kFresh);
  return true;
}

CUresult ManagedMemory::add_extent(uint64_t address, Extent extent) {
  std::unique_lock lock(mutex_);
  const auto found = allocations_.find(address);
  if (found == allocations_.end()) return CUDA_ERROR_INVALID_VALUE;
  Blocks& blocks = found->second;
  fetched_.wait(lock, [&] { return fetching_ != &blocks; });
  if (blocks.begin != blocks.end) {
    const OwnWork own;
    if (const CUresult result = give_one(blocks); result != CUDA_SUCCESS) return result;
    note_away(blocks);
  }
  blocks.memory.extents.push_back(extent);
  return CUDA_SUCCESS;
}

bool ManagedMemory::remove_extent(uint64_t address, Extent extent) {
  std::unique_lock lock(mutex_);
  const auto found = allocations_.find(address);
  if (found == allocations_.end()) return false;
  fetched_.wait(lock, [&] { return fetching_ != &found->second; });
  std::vector<Extent>& extents = found->second.memory.extents;
  const auto at = std::find(extents.begin(), extents.end(), extent);
  if (at == extents.end()) return true;
  if (extents.size() == 1) return false;
  extents.erase(at);
  return true;
}

bool ManagedMemory::remove(uint64_t address) {
  std::unique_lock lock(mutex_);
  const auto found = allocations_.find(address);
  if (found == allocations_.end()) return false;
  fetched_.wait(lock, [&] { return fetching_ != &found->second; });
  gives_.fetch_add(1, std::memory_order_acq_rel);
  found->second.gate->end();
  failed_ -= found->second.failed ? 1 : 0;
  note_away(found->second);
  const auto pushes = pushes_.find(found->second.memory.context);
  if (--pushes->second.allocations == 0) pushes_.erase(pushes);
  allocations_.erase(found);
  observers_.set(Observers::kManagedMemory, !allocations_.empty());
  faulting_allocations.fetch_sub(1, std::memory_order_relaxed);
  return true;
}

bool ManagedMemory::with(uint64_t address, const std::function<void(Allocation&)>& use) {
  std::lock_guard lock(mutex_);
  Blocks* const blocks = find(address);
  if (blocks == nullptr) return false;
  use(blocks->memory);
  return true;
}

uint64_t ManagedMemory::first_of(const Context& context) {
  std::lock_guard lock(mutex_);
  for (const auto& [address, blocks] : allocations_) {
    if (blocks.memory.context == &context && blocks.memory.extents.empty()) return address;
  }
  return 0;
}

CUresult ManagedMemory::give() {
  if (own_work) return CUDA_SUCCESS;
  // What was heard of before may be over, also where nothing is here yet.
  gives_.fetch_add(1, std::memory_order_acq_rel);
  if (!any_here()) return CUDA_SUCCESS;
  std::lock_guard lock(mutex_);
  return give_all();
}

CUresult ManagedMemory::give_and_wait() {
  if (own_work) return CUDA_SUCCESS;
  std::lock_guard lock(mutex_);
  CUresult result = give_all();
  const OwnWork own;
  // Another thread's submission may have pushed what is waited for.
  for (auto& [context, pushes] : pushes_) {
    if (result != CUDA_SUCCESS || !pushes.unfinished) continue;
    result = wire_->finish_pushes(*context);
    pushes.unfinished = result != CUDA_SUCCESS;
  }
  return result;
}

std::optional<uint64_t> ManagedMemory::mark() const {
  // In this order: work that is begun in between makes them differ.
  const uint64_t sent = sent_.load(std::memory_order_acquire);
  if (sent != begun_.load(std::memory_order_acquire)) return std::nullopt;
  return sent;
}

void ManagedMemory::work_is_done(std::optional<uint64_t> mark) {
  if (own_work) return;
  if (mark) {
    uint64_t known = done_.load(std::memory_order_relaxed);
    while (known < *mark && !done_.compare_exchange_weak(known, *mark)) {
    }
  }
  if (any_here()) {
    std::lock_guard lock(mutex_);
    ++ends_;
    const std::vector<Blocks*> here = here_;
    for (Blocks* const blocks : here) {
      if (blocks->early) forget_unchanged(*blocks);
    }
  }
  if (is_eager_.load(std::memory_order_relaxed)) bring_all();
}

// What does not come stays away until it is touched.
void ManagedMemory::bring_all() {
  std::unique_lock lock(mutex_);
  if (allocations_.empty()) return;
  if (idle() && !awaiting_idle) fetched_.wait(lock, [&] { return fetching_ == nullptr; });
  if (!idle() || fetching_ != nullptr) {
    if (std::exchange(awaiting_idle, true)) return;
    Context& context = *allocations_.begin()->second.memory.context;
    lock.unlock();
    wire_->await_idle(context);
    awaiting_idle = false;
    return;
  }
  const OwnWork own;
  for (auto& [address, blocks] : allocations_) {
    for (size_t at = 0; at < blocks.states.size();) {
      const size_t most = in_blocks(wire_->most_fetched(), blocks.block);
      const Run run = run_of(blocks, at, blocks.states[at], most);
      at = run.end;
      if (blocks.states[run.first] != State::kAway) continue;
      const Piece piece = piece_of(blocks, run);
      if (!idle() || wire_->fetch(piece) != CUDA_SUCCESS) return;
      note_known(blocks, piece);
      note_here(blocks, run);
      if (!let_write(blocks, run, false)) return;
    }
  }
}

ManagedMemory::Touched ManagedMemory::touch(uint64_t address, bool is_write, Heard heard) {
  std::lock_guard lock(mutex_);
  Blocks* const blocks = find(address);
  if (blocks == nullptr) return Touched::kUnknown;
  const size_t at = (address - blocks->memory.address) / blocks->block;
  if (blocks->states[at] == State::kAway) return Touched::kNeedsService;
  return serve(*blocks, at, is_write && !is_over(heard)) ? Touched::kServed
                                                         : Touched::kNeedsService;
}

CUresult ManagedMemory::bring(uint64_t address, bool is_write, Heard heard) {
  std::unique_lock lock(mutex_);
  bool awaited = false;
  for (int attempt = 0; attempt < 2 * kMostTries; ++attempt) {
    Blocks* const blocks = find(address);
    if (blocks == nullptr) return CUDA_ERROR_NOT_MAPPED;
    const size_t at = (address - blocks->memory.address) / blocks->block;
    if (blocks->states[at] != State::kAway) {
      if (serve(*blocks, at, is_write && !is_over(heard))) return CUDA_SUCCESS;
      // The system allows no more mappings: whole allocations need fewer.
      if (const CUresult result = give_all(); result != CUDA_SUCCESS) return result;
      continue;
    }
    const bool waits = !awaited && !idle() && blocks->memory.attachment == Attachment::kGlobal;
    blocks->ahead = at == blocks->next ? more_ahead(*blocks) : 1;
    const Run run = run_of(*blocks, at, State::kAway, blocks->ahead);
    const uint64_t given = blocks->given, begun = begun_.load(std::memory_order_acquire);
    const bool was_idle = idle();
    const uint64_t ends = ends_;
    if (const CUresult result = fetch(lock, *blocks, run, waits); result != CUDA_SUCCESS)
      return result;
    awaited = true;
    // Work was submitted meanwhile, which may write it, or has ended and may have written it since.
    const bool is_old = blocks->given != given || begun != begun_.load(std::memory_order_acquire) ||
                        (!was_idle && ends != ends_);
    if (is_old && attempt < kMostTries) continue;
    if (!take(*blocks, run)) continue;
    blocks->early |= !was_idle || is_old;
    // The waiting thread may have left by a jump and submitted that work. The fetched contents must
    // not replace the work's writes.
    const bool may_be_over = heard && (is_over(heard) || is_old || !was_idle);
    // The access is repeated, and shows the run by itself while the next one comes.
    if (!heard && goes_on(*blocks)) {
      ask_ahead_(blocks->memory.address + blocks->next * blocks->block);
      return CUDA_SUCCESS;
    }
    if (serve(*blocks, at, is_write && !may_be_over)) return CUDA_SUCCESS;
    if (const CUresult gave = give_all(); gave != CUDA_SUCCESS) return gave;
  }
  return CUDA_ERROR_OUT_OF_MEMORY;
}

void ManagedMemory::bring_ahead(uint64_t address) {
  std::unique_lock lock(mutex_);
  Blocks* const blocks = find(address);
  // A thread that submits work meanwhile may have found no block here, and the fetched contents are
  // old.
  const uint64_t begun = begun_.load(std::memory_order_acquire);
  if (blocks == nullptr || !idle()) return;
  const size_t at = (address - blocks->memory.address) / blocks->block;
  if (at != blocks->next || blocks->states[at] != State::kAway) return;
  blocks->ahead = more_ahead(*blocks);
  const Run run = run_of(*blocks, at, State::kAway, blocks->ahead);
  const uint64_t given = blocks->given;
  if (fetch(lock, *blocks, run, false) != CUDA_SUCCESS) return;  // an access will find out
  if (blocks->given == given && begun == begun_.load(std::memory_order_acquire))
    (void)take(*blocks, run);
  note_any_here();
}

size_t ManagedMemory::more_ahead(const Blocks& blocks) const {
  return std::min(blocks.ahead * 2, in_blocks(wire_->most_fetched(), blocks.block));
}

// The allocation stays; the lock is not held meanwhile. any_here() is true until what came has been
// taken: a thread that submits work reads it without the lock.
CUresult ManagedMemory::fetch(std::unique_lock<std::mutex>& lock, Blocks& blocks, Run run,
                              bool waits) {
  const Piece piece = piece_of(blocks, run);
  fetching_ = &blocks;
  note_any_here();
  lock.unlock();
  if (waits) {
    const bool before = std::exchange(awaiting_idle, true);
    wire_->await_idle(piece.context);
    awaiting_idle = before;
  }
  const CUresult result = wire_->fetch(piece);
  lock.lock();
  fetching_ = nullptr;
  if (result != CUDA_SUCCESS) note_any_here();
  fetched_.notify_all();
  return result;
}

// A run that has been fetched is here. What is not touched now is shown when it is, for reading or
// for writing. False: some of it is here already.
bool ManagedMemory::take(Blocks& blocks, Run run) {
  if (run_of(blocks, run.first, State::kAway, blocks.states.size()).end < run.end ||
      blocks.states[run.first] != State::kAway)
    return false;
  blocks.early |= !idle();
  blocks.next = run.end;
  note_known(blocks, piece_of(blocks, run));
  note_here(blocks, run);
  const bool goes_on = blocks.hidden.end == run.first && blocks.hidden.first < run.first;
  blocks.hidden = {goes_on ? blocks.hidden.first : run.first, run.end};
  return true;
}

// What is fetched in turn is large, and there is more of it to be had.
bool ManagedMemory::goes_on(const Blocks& blocks) const {
  return ask_ahead_ && blocks.ahead != 1 && blocks.ahead * blocks.block >= kLeastInTurn && idle() &&
         blocks.next < blocks.states.size() && blocks.states[blocks.next] == State::kAway;
}

// The application uses what was fetched in turn, and is about to want more.
void ManagedMemory::look_ahead(const Blocks& blocks) {
  const size_t left = blocks.hidden.end - blocks.hidden.first;
  if (left <= blocks.ahead / 2 && goes_on(blocks))
    ask_ahead_(blocks.memory.address + blocks.next * blocks.block);
}

void ManagedMemory::fail(uint64_t address) {
  std::lock_guard lock(mutex_);
  Blocks* const blocks = find(address);
  if (blocks == nullptr) return;
  const size_t at = (address - blocks->memory.address) / blocks->block;
  // Another access may have brought it.
  if (blocks->states[at] != State::kAway && serve(*blocks, at, false)) return;
  failed_ += std::exchange(blocks->failed, true) ? 0 : 1;
  note_any_here();
  const Part part = part_of(*blocks, {at, at + 1});
  blocks->gate->fail(part.offset, part.bytes);
}

void ManagedMemory::revive_failed() {
  for (auto& [address, blocks] : allocations_) {
    if (std::exchange(blocks.failed, false)) blocks.gate->revive();
  }
  failed_ = 0;
  note_any_here();
}

ManagedMemory::Blocks* ManagedMemory::find(uint64_t address) {
  const auto after = allocations_.upper_bound(address);
  if (after == allocations_.begin()) return nullptr;
  Blocks& blocks = std::prev(after)->second;
  return address - blocks.memory.address < blocks.memory.bytes ? &blocks : nullptr;
}

ManagedMemory::Part ManagedMemory::part_of(const Blocks& blocks, Run run) {
  const uint64_t begin = run.first * blocks.block;
  const uint64_t end = std::min(run.end * blocks.block, blocks.memory.bytes);
  return {begin, end - begin};
}

bool ManagedMemory::close(Blocks& blocks, Run run) {
  const Part part = part_of(blocks, run);
  return blocks.gate->close(part.offset, part.bytes) != 0;
}

bool ManagedMemory::open(Blocks& blocks, Run run, bool writable) {
  const Part part = part_of(blocks, run);
  return blocks.gate->open_as(part.offset, part.bytes, writable);
}

void ManagedMemory::note(Blocks& blocks, Run run, State state) {
  std::fill(blocks.states.begin() + static_cast<ptrdiff_t>(run.first),
            blocks.states.begin() + static_cast<ptrdiff_t>(run.end), state);
}

// It was away.
void ManagedMemory::note_here(Blocks& blocks, Run run, State state) {
  note(blocks, run, state);
  if (blocks.begin == blocks.end) {
    here_.push_back(&blocks);
    blocks.begin = run.first;
    blocks.end = run.end;
    note_any_here();
    return;
  }
  blocks.begin = std::min(blocks.begin, run.first);
  blocks.end = std::max(blocks.end, run.end);
}

void ManagedMemory::note_away(Blocks& blocks) {
  blocks.begin = blocks.end = 0;
  blocks.hidden = blocks.rest = {0, 0};
  blocks.early = false;
  std::erase(here_, &blocks);
  note_any_here();
}

void ManagedMemory::note_any_here() {
  any_here_.store(!here_.empty() || fetching_ != nullptr || failed_ != 0,
                  std::memory_order_relaxed);
}

ManagedMemory::Run ManagedMemory::run_of(const Blocks& blocks, size_t first, State state,
                                         size_t most) {
  const size_t limit = std::min(blocks.states.size(), first + most);
  size_t end = first + 1;
  while (end < limit && blocks.states[end] == state) ++end;
  return {first, end};
}

ManagedMemory::Piece ManagedMemory::piece_of(const Blocks& blocks, Run run) const {
  const Part part = part_of(blocks, run);
  Piece piece{blocks.memory.address + part.offset, blocks.gate->local() + part.offset, part.bytes,
              *blocks.memory.context};
  if (blocks.memory.extents.empty()) piece.parts.push_back({piece.address, piece.bytes});
  for (const Extent& extent : blocks.memory.extents) {
    const uint64_t from = std::max(extent.address, piece.address);
    const uint64_t until = std::min(extent.address + extent.bytes, piece.address + piece.bytes);
    if (from < until) piece.parts.push_back({from, until - from});
  }
  return piece;
}

// The extents of a piece have just come or been sent.
void ManagedMemory::note_known(Blocks& blocks, const Piece& piece) {
  if (blocks.known == nullptr) return;
  for (const auto& [address, bytes] : piece.parts)
    std::memcpy(blocks.known.get() + (address - blocks.memory.address),
                piece.local + (address - piece.address), bytes);
}

// What the application has not written is the device's: another module's kernels may change it.
void ManagedMemory::leave_out_known(const Blocks& blocks, Piece& piece) {
  if (blocks.known == nullptr) return;
  std::erase_if(piece.parts, [&](const Extent& part) {
    return std::memcmp(blocks.known.get() + (part.address - blocks.memory.address),
                       piece.local + (part.address - piece.address), part.bytes) == 0;
  });
}

// Fresh blocks that were touched have changed, the others are still zeros.
void ManagedMemory::find_written(Blocks& blocks) {
  const Allocation& memory = blocks.memory;
  for (size_t at = blocks.begin; at < blocks.end;) {
    const Run run = run_of(blocks, at, blocks.states[at], blocks.end);
    at = run.end;
    if (blocks.states[run.first] != State::kFresh) continue;
    note(blocks, run, State::kSame);
    for (size_t block = run.first; block < run.end; ++block) {
      const uint64_t from = memory.address + block * blocks.block;
      const auto touched = memory.mapping->next_touched(from);
      if (!touched) break;
      block = (*touched - memory.address) / blocks.block;
      if (block < run.end) blocks.states[block] = State::kChanged;
    }
  }
}

CUresult ManagedMemory::give_one(Blocks& blocks) {
  gives_.fetch_add(1, std::memory_order_acq_rel);
  // From now on a thread that uses it waits for the lock. If it stays here, that is found out then.
  const Run here{blocks.begin, blocks.end};
  if (!close(blocks, here)) return CUDA_ERROR_OUT_OF_MEMORY;
  find_written(blocks);
  for (size_t at = blocks.begin; at < blocks.end;) {
    if (blocks.states[at] != State::kChanged) {
      ++at;
      continue;
    }
    const Run run = run_of(blocks, at, State::kChanged, blocks.end);
    Piece piece = piece_of(blocks, run);
    leave_out_known(blocks, piece);
    pushes_[blocks.memory.context].unfinished = true;
    const CUresult result = wire_->push(piece);
    if (result != CUDA_SUCCESS) return result;
    note_known(blocks, piece);
    note(blocks, run, State::kSame);
    at = run.end;
  }
  note(blocks, here, State::kAway);
  ++blocks.given;
  return CUDA_SUCCESS;
}

CUresult ManagedMemory::give_all() {
  const OwnWork own;
  if (fetching_ != nullptr) ++fetching_->given;
  if (failed_ != 0) revive_failed();
  const std::vector<Blocks*> here = here_;
  for (Blocks* const blocks : here) {
    if (const CUresult result = give_one(*blocks); result != CUDA_SUCCESS) return result;
    note_away(*blocks);
  }
  return CUDA_SUCCESS;
}

void ManagedMemory::forget_unchanged(Blocks& blocks) {
  bool changed = false;
  for (size_t at = blocks.begin; at < blocks.end;) {
    const State state = blocks.states[at];
    const Run run = run_of(blocks, at, state, blocks.end);
    changed |= state == State::kChanged || state == State::kFresh;
    if (state == State::kSame && close(blocks, run)) note(blocks, run, State::kAway);
    at = run.end;
  }
  ++blocks.given;
  blocks.early = false;
  if (!changed) note_away(blocks);
}

bool ManagedMemory::serve(Blocks& blocks, size_t at, bool is_write) {
  const State state = blocks.states[at];
  Run& hidden = blocks.hidden;
  const bool is_hidden = hidden.first <= at && at < hidden.end;
  if (is_write && state == State::kSame) {
    const Run run = run_to_write(blocks, at, is_hidden ? hidden.end : blocks.states.size());
    if (is_hidden) hidden.first = run.end;
    if (is_hidden) look_ahead(blocks);
    return let_write(blocks, run, !is_hidden);
  }
  // Outside of it the block is about to be shown, or another access has brought it, or the system
  // has refused or forgotten it.
  Run& rest = blocks.rest;
  const bool is_next = state == State::kSame && rest.first <= at && at < rest.end;
  const Run run =
      run_of(blocks, at, state, is_hidden ? hidden.end - at : (is_next ? rest.end - at : 1));
  if (is_hidden) hidden = {run.end, hidden.end};
  if (is_hidden) look_ahead(blocks);
  const bool by_portions = ask_show_ && state == State::kSame;
  const Run now = by_portions ? portion_of(blocks, run) : run;
  if (now.end < run.end && is_hidden) {
    // Of what came before it something may be left, for another thread.
    const bool goes_on = rest.first < rest.end && rest.end == run.first;
    rest = {goes_on ? rest.first : now.end, run.end};
    any_rest_ = true;
    ask_show_();
  } else if (is_next && at == rest.first) {
    rest.first = now.end;
  }
  return open(blocks, now, state != State::kSame);
}

// What is shown at once. A fast application reads it in the time in which the next one is shown.
ManagedMemory::Run ManagedMemory::portion_of(const Blocks& blocks, Run run) {
  return {run.first, std::min(run.first + in_blocks(kShownAtOnce, blocks.block), run.end)};
}

bool ManagedMemory::show_on() {
  std::lock_guard lock(mutex_);
  if (!any_rest_) return false;
  for (Blocks* const blocks : here_) {
    Run& rest = blocks->rest;
    while (rest.first < rest.end && blocks->states[rest.first] != State::kSame) ++rest.first;
    if (rest.first == rest.end) continue;
    const Run all = run_of(*blocks, rest.first, State::kSame, rest.end - rest.first);
    const Run now = portion_of(*blocks, all);
    rest.first = now.end;
    return open(*blocks, now, false);
  }
  any_rest_ = false;
  return false;
}

// Blocks like that at `at`, which is written, as far as writes are likely to go on.
ManagedMemory::Run ManagedMemory::run_to_write(Blocks& blocks, size_t at, size_t end) {
  blocks.write_ahead = at == blocks.next_write
                           ? std::min(blocks.write_ahead * 2, in_blocks(kMostWritten, blocks.block))
                           : 1;
  const Run run = run_of(blocks, at, blocks.states[at], std::min(blocks.write_ahead, end - at));
  blocks.next_write = run.end;
  return run;
}

// `is_shown`: it can be read already. False: the system has refused.
bool ManagedMemory::let_write(Blocks& blocks, Run run, bool is_shown) {
  const Part part = part_of(blocks, run);
  if (!(is_shown ? blocks.gate->let_write(part.offset, part.bytes) : open(blocks, run, true)))
    return false;
  note(blocks, run, State::kChanged);
  return true;
}

bool ManagedMemory::idle() const {
  return done_.load(std::memory_order_acquire) == begun_.load(std::memory_order_acquire);
}

}  // namespace fargpu::client
