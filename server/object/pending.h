// What a session waits for: polled in order, between frames, until done. One thread (the
// executor's).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>

namespace fargpu::server {

class PendingList {
 public:
  using Clock = std::chrono::steady_clock;
  // What is added from now on is about this call, for describing it.
  void begin_frame(uint16_t opcode) { opcode_ = opcode; }
  void add(std::function<bool()> poll) {
    list_.push_back({std::move(poll), Clock::now(), opcode_});
  }
  bool empty() const { return list_.empty(); }
  size_t size() const { return list_.size(); }

  // Polls each once, oldest first; those that return true go. What a poll adds is polled too. How
  // many went.
  size_t poll() {
    size_t done = 0;
    for (auto entry = list_.begin(); entry != list_.end();) {
      if (entry->poll()) {
        entry = list_.erase(entry);
        ++done;
      } else {
        ++entry;
      }
    }
    return done;
  }

  struct Entry {
    std::function<bool()> poll;
    Clock::time_point since;
    uint16_t opcode;
  };
  // Oldest first.
  const std::list<Entry>& entries() const { return list_; }

 private:
  std::list<Entry> list_;
  uint16_t opcode_ = 0;
};

}  // namespace fargpu::server
