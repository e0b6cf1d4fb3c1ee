#include "client/hostmem/staging_ring.h"

#include <sys/mman.h>

#include <thread>
#include <utility>

#include "client/hostmem/remote_host.h"
#include "client/link/link.h"
#include "client/object/context.h"
#include "common/transport/transport.h"

namespace fargpu::client {
namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kWordsBytes = 4096;
constexpr size_t kSlotsBytes = StagingRing::kSlots * StagingRing::kSlotBytes;
static_assert(StagingRing::kSlots * sizeof(rpc::CompletionWord) <= kWordsBytes);
// A ticket: ring (16 bits), slot (8), value of the slot's word (40: a million copies a second for
// twelve days).
constexpr uint64_t kValueMask = (uint64_t{1} << 40) - 1;

}  // namespace

bool StagingRing::possible(Link& link) {
  return SharedSegment::possible(link) || link.remote_memory() != nullptr;
}

std::shared_ptr<StagingRing> StagingRing::make(Link& link, HostCalls& functions,
                                               RemoteHost& remote_host, Context& context,
                                               uint32_t id) {
  std::shared_ptr<StagingRing> ring(new StagingRing);
  ring->id_ = id;
  if (SharedSegment::possible(link)) {
    ring->segment_ = SharedSegment::make(link, functions, context, kWordsBytes + kSlotsBytes);
    if (!ring->segment_) return nullptr;
    ring->words_ = reinterpret_cast<rpc::CompletionWord*>(ring->segment_->base());
    ring->slots_ = ring->segment_->base() + kWordsBytes;
    return ring;
  }
  void* const pages =
      ::mmap(nullptr, kSlotsBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) return nullptr;
  ring->pages_.reset(static_cast<std::byte*>(pages));
  ring->registered_ = remote_host.enroll({ring->pages_.get(), kSlotsBytes});
  if (ring->registered_ == nullptr) return nullptr;
  ring->channel_ = &link.channel();
  ring->words_ = ring->own_words_.data();
  ring->slots_ = ring->pages_.get();
  return ring;
}

void StagingRing::Unmap::operator()(std::byte* memory) const { ::munmap(memory, kSlotsBytes); }

uint64_t StagingRing::ticket(const Slot& slot) const {
  return uint64_t{id_} << 48 | uint64_t{slot.index} << 40 | (slot.value & kValueMask);
}

void StagingRing::copied(uint64_t ticket, int32_t result, uint32_t outputs) {
  const uint64_t slot = (ticket >> 40) & 0xff;
  if (slot >= kSlots || registered_ == nullptr) return;
  rpc::publish(words_[slot], ticket & kValueMask, result, outputs);
}

std::optional<StagingRing::Slot> StagingRing::try_take() {
  std::lock_guard lock(mutex_);
  for (unsigned i = 0; i < kSlots; ++i) {
    const unsigned index = (next_ + i) % kSlots;
    State& state = states_[index];
    if (state.taken || !rpc::reached(words_[index], state.sent)) continue;
    state.taken = true;
    next_ = (index + 1) % kSlots;
    return Slot{index, slots_ + index * kSlotBytes, &words_[index], state.sent + 1};
  }
  return std::nullopt;
}

std::optional<StagingRing::Slot> StagingRing::take(std::chrono::milliseconds patience) {
  if (auto slot = try_take()) return slot;
  const auto deadline = Clock::now() + patience;
  while (Clock::now() < deadline && !closed() && (channel_ == nullptr || !channel_->lost())) {
    // The oldest copy that is under way. When threads hold all slots, they will not hold them long.
    rpc::CompletionWord* oldest = nullptr;
    uint64_t value = 0;
    {
      std::lock_guard lock(mutex_);
      for (unsigned i = 0; i < kSlots && oldest == nullptr; ++i) {
        const unsigned index = (next_ + i) % kSlots;
        if (states_[index].taken) continue;
        oldest = &words_[index];
        value = states_[index].sent;
      }
    }
    constexpr auto kSpin = std::chrono::microseconds(50), kNap = std::chrono::microseconds(500);
    if (oldest != nullptr) {
      wait_until_done(*oldest, value, kSpin, Clock::now() + kNap);
    } else {
      std::this_thread::sleep_for(kSpin);
    }
    if (auto slot = try_take()) return slot;
  }
  return std::nullopt;
}

bool StagingRing::wait_until_done(rpc::CompletionWord& word, uint64_t value,
                                  std::chrono::nanoseconds spin, Clock::time_point deadline) {
  if (channel_ == nullptr) return rpc::wait_until_reached(word, value, spin, deadline);
  return channel_->read_until([&word, value] { return rpc::reached(word, value); }, deadline);
}

void StagingRing::give_back(const Slot& slot, bool sent) {
  std::lock_guard lock(mutex_);
  State& state = states_[slot.index];
  state.taken = false;
  if (sent) state.sent = slot.value;
}

std::shared_ptr<StagingRing> StagingRings::get(Context& context) {
  if (!StagingRing::possible(link_)) return nullptr;
  std::lock_guard lock(mutex_);
  if (const auto known = rings_.find(&context); known != rings_.end()) return known->second;
  const ContextEpoch epoch(context);
  if (!context.usable()) return nullptr;
  auto ring = StagingRing::make(link_, functions_, remote_host_, context, next_id_);
  // What was refused, or ended, with this life of the context says nothing of the next.
  if (epoch.is_over()) return nullptr;
  rings_.emplace(&context, ring);
  if (ring != nullptr && ring->registered() != nullptr) {
    std::lock_guard ids_lock(ids_mutex_);
    by_id_.emplace(next_id_++ & 0xffff, ring);
  }
  return ring;
}

void StagingRings::context_ended(const Context& context) {
  std::lock_guard lock(mutex_);
  const auto found = rings_.find(&context);
  if (found == rings_.end()) return;
  if (found->second != nullptr) {
    found->second->close();
    std::lock_guard ids_lock(ids_mutex_);
    std::erase_if(by_id_, [&found](const auto& entry) { return entry.second == found->second; });
  }
  rings_.erase(found);
}

void StagingRings::copied(uint64_t ticket, int32_t result, uint32_t outputs) {
  std::shared_ptr<StagingRing> ring;
  {
    std::lock_guard lock(ids_mutex_);
    const auto found = by_id_.find(StagingRing::ring_of(ticket));
    if (found == by_id_.end()) return;  // of a context that is gone
    ring = found->second;
  }
  ring->copied(ticket, result, outputs);
}

}  // namespace fargpu::client
