#include "client/memory/shared_host.h"

#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "client/manual/common.h"
#include "client/memory/reserve.h"

namespace fargpu::client {

namespace {

size_t most_kept() {
  const long pages = ::sysconf(_SC_PHYS_PAGES), page = ::sysconf(_SC_PAGESIZE);
  if (pages <= 0 || page <= 0) return 0;
  const size_t share = static_cast<size_t>(pages) / 16 * static_cast<size_t>(page);
  return std::min(SharedHost::kMostKept, share);
}

}  // namespace

std::optional<SharedHost::Block> SharedHost::allocate(Session& session, Context& context,
                                                      size_t bytes) {
  if (!SharedSegment::possible(session)) return std::nullopt;
  const bool small = bytes < kOwnSegmentFrom;
  bool keeps = false;
  {
    std::lock_guard lock(mutex_);
    if (const auto block = small ? take_from_arena(context, bytes) : take_kept(context, bytes))
      return block;
    keeps = kept_bytes_ != 0;
  }
  // Two threads may both make an arena here; then there are two.
  const size_t size = small ? kArenaBytes : bytes;
  std::optional<SharedSegment> segment = SharedSegment::make(session, context, size, !keeps);
  if (!segment && keeps) {  // what is kept may be what it lacks
    (void)drop_kept(session, 0);
    segment = SharedSegment::make(session, context, size);
  }
  if (!segment) return std::nullopt;
  const uint64_t address = segment->address();
  Holder holder{std::move(*segment), std::nullopt};
  if (small) holder.blocks.emplace(kArenaBytes);
  const Block whole{holder.segment.base(), holder.segment.device_pointer()};
  std::lock_guard lock(mutex_);
  holders_.emplace(address, std::move(holder));
  any_.store(true, std::memory_order_release);
  return small ? take_from_arena(context, bytes) : whole;
}

std::optional<SharedHost::Block> SharedHost::take_from_arena(const Context& context, size_t bytes) {
  for (auto& [address, holder] : holders_) {
    if (!holder.blocks || !holder.in_worker || holder.segment.context() != &context) continue;
    if (const auto offset = holder.blocks->take(bytes)) {
      return Block{holder.segment.base() + *offset, holder.segment.device_pointer() + *offset};
    }
  }
  return std::nullopt;
}

std::optional<SharedHost::Block> SharedHost::take_kept(const Context& context, size_t bytes) {
  Holder* best = nullptr;
  for (auto& [address, holder] : holders_) {
    const size_t size = holder.segment.bytes();
    if (holder.kept == 0 || holder.segment.context() != &context) continue;
    if (size < bytes || size - bytes > size / 8) continue;
    if (best == nullptr || size < best->segment.bytes()) best = &holder;
  }
  if (best == nullptr) return std::nullopt;
  best->kept = 0;
  kept_bytes_ -= best->segment.bytes();
  return Block{best->segment.base(), best->segment.device_pointer()};
}

SharedHost::Map::iterator SharedHost::oldest_kept() {
  auto oldest = holders_.end();
  for (auto holder = holders_.begin(); holder != holders_.end(); ++holder) {
    const uint64_t kept = holder->second.kept;
    if (kept != 0 && (oldest == holders_.end() || kept < oldest->second.kept)) oldest = holder;
  }
  return oldest;
}

SharedHost::Map::iterator SharedHost::holder_of(uint64_t address) {
  const auto after = holders_.upper_bound(address);
  if (after == holders_.begin()) return holders_.end();
  const auto found = std::prev(after);
  return address - found->first < found->second.segment.bytes() ? found : holders_.end();
}

bool SharedHost::owns(uint64_t address) const {
  std::lock_guard lock(mutex_);
  return const_cast<SharedHost*>(this)->holder_of(address) != holders_.end();
}

bool SharedHost::has_other_arena(const Holder& holder) const {
  for (const auto& [address, other] : holders_) {
    if (&other != &holder && other.blocks && other.in_worker &&
        other.segment.context() == holder.segment.context())
      return true;
  }
  return false;
}

CUresult SharedHost::unshare(Session& session, Map::node_type holder) {
  const SharedSegment segment = std::move(holder.mapped().segment);
  if (!holder.mapped().in_worker) return CUDA_SUCCESS;
  const CUresult result = call_fgHostUnshare(session, current_context_id(), segment.address());
  if (result != CUDA_SUCCESS) retire_addresses(segment.base());
  return result;
}

CUresult SharedHost::drop_kept(Session& session, size_t most) {
  for (;;) {
    Map::node_type holder;
    {
      std::lock_guard lock(mutex_);
      if (kept_bytes_ <= most) return CUDA_SUCCESS;
      holder = holders_.extract(oldest_kept());
      kept_bytes_ -= holder.mapped().segment.bytes();
    }
    if (const CUresult result = unshare(session, std::move(holder)); result != CUDA_SUCCESS)
      return result;
  }
}

// Memory of its own segment.
CUresult SharedHost::free_whole(Session& session, uint64_t address, size_t bytes) {
  const size_t most = most_kept();
  if (bytes <= most) {
    // 0 waits without taking anything away.
    const CUresult result = call_fgHostUnshare(session, current_context_id(), 0);
    std::unique_lock lock(mutex_);
    const auto found = holders_.find(address);
    if (found == holders_.end()) return CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS && found->second.in_worker) {
      found->second.kept = next_kept_++;
      kept_bytes_ += bytes;
      lock.unlock();
      return drop_kept(session, most);
    }
  }
  Map::node_type holder;
  {
    std::lock_guard lock(mutex_);
    holder = holders_.extract(address);
  }
  return holder.empty() ? CUDA_ERROR_INVALID_VALUE : unshare(session, std::move(holder));
}

CUresult SharedHost::free(Session& session, uint64_t address) {
  const uint16_t context = current_context_id();
  size_t whole = 0;
  bool in_worker = false;
  {
    std::lock_guard lock(mutex_);
    const auto found = holder_of(address);
    if (found == holders_.end()) return CUDA_ERROR_INVALID_VALUE;
    in_worker = found->second.in_worker;
    if (!found->second.blocks) whole = found->second.segment.bytes();
  }
  if (whole != 0 && in_worker) return free_whole(session, address, whole);
  // 0 waits without taking anything away: the rest of the arena stays.
  const CUresult result = in_worker ? call_fgHostUnshare(session, context, 0) : CUDA_SUCCESS;
  std::optional<SharedSegment> unused;  // unmapped after the lock
  bool arena_goes = false;
  {
    std::lock_guard lock(mutex_);
    const auto found = holder_of(address);
    if (found == holders_.end()) return CUDA_ERROR_INVALID_VALUE;
    Holder& holder = found->second;
    if (holder.blocks) {
      if (!holder.blocks->give_back(address - found->first)) return CUDA_ERROR_INVALID_VALUE;
      if (!holder.blocks->empty()) return result;
      arena_goes = holder.in_worker && has_other_arena(holder);
      if (holder.in_worker && !arena_goes) return result;
    }
    if (result != CUDA_SUCCESS) retire_addresses(holder.segment.base());
    unused.emplace(std::move(holder.segment));
    holders_.erase(found);
  }
  if (!arena_goes) return result;
  const CUresult unshared = call_fgHostUnshare(session, context, unused->address());
  if (unshared != CUDA_SUCCESS) retire_addresses(unused->base());
  return result != CUDA_SUCCESS ? result : unshared;
}

void SharedHost::forget(const Context& context) {
  std::lock_guard lock(mutex_);
  for (auto holder = holders_.begin(); holder != holders_.end();) {
    const bool gone = holder->second.segment.context() == &context;
    if (gone) holder->second.in_worker = false;
    const bool kept = gone && holder->second.kept != 0;
    if (kept) kept_bytes_ -= holder->second.segment.bytes();
    const bool idle = kept || (gone && holder->second.blocks && holder->second.blocks->empty());
    holder = idle ? holders_.erase(holder) : std::next(holder);
  }
}

}  // namespace fargpu::client
