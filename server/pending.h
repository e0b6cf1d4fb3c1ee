// What a session waits for: polled in order, between frames, until done. One thread (the
// executor's).
#pragma once

#include <functional>
#include <list>

namespace fargpu::server {

class PendingList {
 public:
  void add(std::function<bool()> poll) { list_.push_back(std::move(poll)); }
  bool empty() const { return list_.empty(); }
  size_t size() const { return list_.size(); }

  // Polls each once, oldest first; those that return true go. What a poll adds is polled too. How
  // many went.
  size_t poll() {
    size_t done = 0;
    for (auto entry = list_.begin(); entry != list_.end();) {
      if ((*entry)()) {
        entry = list_.erase(entry);
        ++done;
      } else {
        ++entry;
      }
    }
    return done;
  }

 private:
  std::list<std::function<bool()>> list_;
};

}  // namespace fargpu::server
