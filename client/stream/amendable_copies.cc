#include "client/stream/amendable_copies.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <vector>

namespace fargpu::client {

uint64_t AmendableCopies::add(uint64_t address, size_t bytes) {
  std::lock_guard lock(mutex_);
  if (copies_.size() == kMost || bytes > kMostBytes - bytes_) return 0;
  if (unused_.empty()) unused_.emplace_back();
  copies_.splice(copies_.end(), unused_, unused_.begin());
  Copy& copy = copies_.back();
  copy.id = ++last_id_;
  copy.address = address;
  copy.bytes = bytes;
  copy.state = State::kAdded;
  if (bytes > sizeof copy.few) copy.many = std::make_unique<std::byte[]>(bytes);
  bytes_ += bytes;
  count_.store(copies_.size(), std::memory_order_release);
  return copy.id;
}

std::span<const std::byte> AmendableCopies::take(uint64_t id) {
  std::lock_guard lock(mutex_);
  Copy& copy = *find(id);
  std::memcpy(copy.sent(), copy.source(), copy.bytes);
  copy.state = State::kSending;
  return {copy.sent(), copy.bytes};
}

void AmendableCopies::sent(uint64_t id) {
  std::lock_guard lock(mutex_);
  const auto copy = find(id);
  if (copy->state == State::kPassed)
    erase(copy);
  else
    copy->state = State::kSent;
  sent_.notify_all();
}

void AmendableCopies::cancel(uint64_t id) {
  std::lock_guard lock(mutex_);
  erase(find(id));
  sent_.notify_all();
}

void AmendableCopies::passed(uint32_t id) {
  std::lock_guard lock(mutex_);
  const auto copy = std::find_if(copies_.begin(), copies_.end(), [id](const Copy& one) {
    return static_cast<uint32_t>(one.id) == id;
  });
  if (copy == copies_.end()) return;
  if (copy->state == State::kSent)
    erase(copy);
  else if (copy->state == State::kSending)
    copy->state = State::kPassed;
}

void AmendableCopies::amend() {
  if (count_.load(std::memory_order_acquire) == 0) return;
  std::lock_guard in_turn(amending_);
  std::vector<std::pair<uint64_t, std::vector<std::byte>>> changes;
  {
    std::unique_lock lock(mutex_);
    sent_.wait(lock, [this] { return !any_being_sent(); });
    for (Copy& copy : copies_) {
      if (copy.state != State::kSent || std::memcmp(copy.sent(), copy.source(), copy.bytes) == 0)
        continue;
      std::memcpy(copy.sent(), copy.source(), copy.bytes);
      changes.emplace_back(copy.id, std::vector(copy.sent(), copy.sent() + copy.bytes));
    }
  }
  // Without the lock that a notice needs: to send may have to wait until notices are read.
  for (const auto& [id, bytes] : changes) send_(id, bytes);
}

bool AmendableCopies::uses(uint64_t address, uint64_t bytes) {
  std::lock_guard lock(mutex_);
  return std::any_of(copies_.begin(), copies_.end(),
                     [&](const Copy& copy) { return copy.touches(address, bytes); });
}

void AmendableCopies::forget(uint64_t address, uint64_t bytes) {
  std::lock_guard lock(mutex_);
  for (auto copy = copies_.begin(); copy != copies_.end();)
    copy = copy->state == State::kSent && copy->touches(address, bytes) ? erase(copy)
                                                                        : std::next(copy);
}

AmendableCopies::Copies::iterator AmendableCopies::find(uint64_t id) {
  return std::find_if(copies_.begin(), copies_.end(),
                      [id](const Copy& copy) { return copy.id == id; });
}

AmendableCopies::Copies::iterator AmendableCopies::erase(Copies::iterator copy) {
  const auto next = std::next(copy);
  bytes_ -= copy->bytes;
  copy->many.reset();
  unused_.splice(unused_.begin(), copies_, copy);
  count_.store(copies_.size(), std::memory_order_release);
  return next;
}

bool AmendableCopies::any_being_sent() const {
  return std::any_of(copies_.begin(), copies_.end(),
                     [](const Copy& copy) { return copy.state == State::kSending; });
}

}  // namespace fargpu::client
