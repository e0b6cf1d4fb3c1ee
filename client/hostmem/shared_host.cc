#include "client/hostmem/shared_host.h"

#include <iterator>
#include <utility>

#include "client/memory/reserve.h"
#include "client/object/context.h"

namespace fargpu::client {

std::optional<SharedHost::Block> SharedHost::allocate(Context& context, size_t bytes) {
  if (!SharedSegment::possible(link_)) return std::nullopt;
  const bool small = bytes < kOwnSegmentFrom;
  if (small) {
    std::lock_guard lock(mutex_);
    if (const auto block = take_from_arena(context, bytes)) return block;
  }
  // Two threads may both make an arena here; then both are kept.
  std::optional<SharedSegment> segment =
      SharedSegment::make(link_, functions_, context, small ? kArenaBytes : bytes);
  if (!segment) return std::nullopt;
  std::lock_guard lock(mutex_);
  if (segment->context_has_ended()) return std::nullopt;
  const uint64_t address = segment->address();
  Holder holder{std::move(*segment), std::nullopt};
  if (small) holder.blocks.emplace(kArenaBytes);
  const Block whole{holder.segment.base(), holder.segment.device_pointer()};
  holders_.emplace(address, std::move(holder));
  observers_.add(Observers::kSharedMemory);
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

CUresult SharedHost::free(uint64_t address) {
  const Context* const context = current_context();
  // 0 waits without taking anything away: the rest of the arena stays.
  uint64_t to_unshare = 0;
  bool in_worker = false;
  {
    std::lock_guard lock(mutex_);
    const auto found = holder_of(address);
    if (found == holders_.end()) return CUDA_ERROR_INVALID_VALUE;
    in_worker = found->second.in_worker;
    if (!found->second.blocks) to_unshare = address;
  }
  const CUresult result =
      in_worker ? unshare(link_, functions_, context, to_unshare) : CUDA_SUCCESS;
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
  const CUresult unshared = unshare(link_, functions_, context, unused->address());
  if (unshared != CUDA_SUCCESS) retire_addresses(unused->base());
  return result != CUDA_SUCCESS ? result : unshared;
}

void SharedHost::context_ended(const Context& context) {
  std::lock_guard lock(mutex_);
  for (auto holder = holders_.begin(); holder != holders_.end();) {
    const bool gone = holder->second.segment.context() == &context;
    if (gone) holder->second.in_worker = false;
    const bool idle = gone && holder->second.blocks && holder->second.blocks->empty();
    holder = idle ? holders_.erase(holder) : std::next(holder);
  }
}

}  // namespace fargpu::client
