#include "client/copy/amendable_copies.h"

#include <algorithm>
#include <cstring>
#include <iterator>

namespace fargpu::client {

uint64_t AmendableCopies::add(uint64_t address, size_t bytes, uint64_t last) {
  std::lock_guard lock(mutex_);
  drop_ended();
  if (copies_.size() == kMost || bytes > kMostBytes - bytes_) return 0;
  if (unused_.empty()) unused_.emplace_back();
  copies_.splice(copies_.end(), unused_, unused_.begin());
  Copy& copy = copies_.back();
  copy.id = ++last_id_;
  copy.last = last;
  copy.address = address;
  copy.bytes = bytes;
  copy.state = State::kAdded;
  if (bytes > sizeof copy.few) copy.many = std::make_unique<std::byte[]>(bytes);
  bytes_ += bytes;
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
  find(id)->state = State::kSent;
  sent_.notify_all();
}

void AmendableCopies::cancel(uint64_t id) {
  std::lock_guard lock(mutex_);
  erase(find(id));
  sent_.notify_all();
}

std::vector<AmendableCopies::Change> AmendableCopies::before_return(uint64_t function) {
  std::vector<Change> changes;
  std::unique_lock lock(mutex_);
  sent_.wait(lock, [this] {
    return std::none_of(copies_.begin(), copies_.end(),
                        [](const Copy& copy) { return copy.state == State::kSending; });
  });
  for (Copy& copy : copies_) {
    if (copy.state != State::kSent || copy.last < function ||
        std::memcmp(copy.sent(), copy.source(), copy.bytes) == 0)
      continue;
    std::memcpy(copy.sent(), copy.source(), copy.bytes);
    changes.push_back({copy.id, {copy.sent(), copy.sent() + copy.bytes}});
  }
  return changes;
}

void AmendableCopies::returned() {
  std::lock_guard lock(mutex_);
  drop_ended();
}

bool AmendableCopies::uses(uint64_t address, uint64_t bytes) {
  std::lock_guard lock(mutex_);
  drop_ended();
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
  return next;
}

void AmendableCopies::drop_ended() {
  if (copies_.empty()) return;
  const uint64_t first = functions_.first();
  for (auto copy = copies_.begin(); copy != copies_.end();)
    copy = copy->state == State::kSent && copy->last < first ? erase(copy) : std::next(copy);
}

}  // namespace fargpu::client
