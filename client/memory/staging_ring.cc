#include "client/memory/staging_ring.h"

#include <thread>
#include <utility>

#include "client/session.h"

namespace fargpu::client {
namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kWordsBytes = 4096;
static_assert(StagingRing::kSlots * sizeof(rpc::CompletionWord) <= kWordsBytes);

}  // namespace

std::shared_ptr<StagingRing> StagingRing::make(Session& session, Context& context) {
  auto segment = SharedSegment::make(session, context, kWordsBytes + kSlots * kSlotBytes);
  if (!segment) return nullptr;
  return std::shared_ptr<StagingRing>(new StagingRing(std::move(*segment)));
}

StagingRing::StagingRing(SharedSegment segment) : segment_(std::move(segment)) {}

rpc::CompletionWord* StagingRing::word(unsigned slot) {
  return reinterpret_cast<rpc::CompletionWord*>(segment_.base()) + slot;
}

std::optional<StagingRing::Slot> StagingRing::try_take() {
  std::lock_guard lock(mutex_);
  for (unsigned i = 0; i < kSlots; ++i) {
    const unsigned index = (next_ + i) % kSlots;
    State& state = states_[index];
    if (state.taken || !rpc::reached(*word(index), state.sent)) continue;
    state.taken = true;
    next_ = (index + 1) % kSlots;
    return Slot{index, segment_.base() + kWordsBytes + index * kSlotBytes, word(index),
                state.sent + 1};
  }
  return std::nullopt;
}

std::optional<StagingRing::Slot> StagingRing::take(std::chrono::milliseconds patience) {
  if (auto slot = try_take()) return slot;
  const auto deadline = Clock::now() + patience;
  while (Clock::now() < deadline && !closed()) {
    // The oldest copy that is under way. When threads hold all slots, they will not hold them long.
    rpc::CompletionWord* oldest = nullptr;
    uint64_t value = 0;
    {
      std::lock_guard lock(mutex_);
      for (unsigned i = 0; i < kSlots && oldest == nullptr; ++i) {
        const unsigned index = (next_ + i) % kSlots;
        if (states_[index].taken) continue;
        oldest = word(index);
        value = states_[index].sent;
      }
    }
    constexpr auto kSpin = std::chrono::microseconds(50), kNap = std::chrono::microseconds(500);
    if (oldest != nullptr) {
      rpc::wait_until_reached(*oldest, value, kSpin, Clock::now() + kNap);
    } else {
      std::this_thread::sleep_for(kSpin);
    }
    if (auto slot = try_take()) return slot;
  }
  return std::nullopt;
}

void StagingRing::give_back(const Slot& slot, bool sent) {
  std::lock_guard lock(mutex_);
  State& state = states_[slot.index];
  state.taken = false;
  if (sent) state.sent = slot.value;
}

std::shared_ptr<StagingRing> StagingRings::get(Session& session, Context& context) {
  if (!SharedSegment::possible(session)) return nullptr;
  std::lock_guard lock(mutex_);
  if (const auto known = rings_.find(&context); known != rings_.end()) return known->second;
  auto ring = StagingRing::make(session, context);
  rings_.emplace(&context, ring);
  return ring;
}

void StagingRings::forget(const Context& context) {
  std::lock_guard lock(mutex_);
  const auto found = rings_.find(&context);
  if (found == rings_.end()) return;
  if (found->second != nullptr) found->second->close();
  rings_.erase(found);
}

}  // namespace fargpu::client
