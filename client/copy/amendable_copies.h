// AmendableCopies: small asynchronous copies to the device whose bytes were sent with their call
// although host functions that may write the source come before them in their stream. The worker
// keeps the bytes until the stream has passed the copy, and a function holds the stream until the
// worker has the notice of its return. So before that notice the source is compared with what was
// sent, and sent again if it is another one (fgAmend): the copy takes what it would natively.
//
// The bytes of a copy are read with the lock of the comparison: a function that has been compared
// by then has written them. Any thread; before_return() and returned() on the thread that runs the
// functions.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "client/stream/host_calls.h"

namespace fargpu::client {

class AmendableCopies {
 public:
  // More at a time are not taken: each is compared when a function returns.
  static constexpr size_t kMost = 256;
  static constexpr size_t kMostBytes = 256u << 10;

  explicit AmendableCopies(HostCalls& functions) : functions_(functions) {}

  // A copy of `bytes` from `address` on, of memory that stays until forget(), is about to be sent
  // behind the functions up to `last`. Returns its id; 0: there are too many.
  uint64_t add(uint64_t address, size_t bytes, uint64_t last);
  // Its bytes, to be sent at once: nothing may be waited for but room for the frame. They stay
  // until sent(), which follows.
  std::span<const std::byte> take(uint64_t id);
  void sent(uint64_t id);
  // It is not, or was not, sent.
  void cancel(uint64_t id);

  // A copy whose source has changed.
  struct Change {
    uint64_t id;
    std::vector<std::byte> bytes;
  };
  // The function has run. What is returned is to be sent before the notice of its return. Waits for
  // frames that are just being sent.
  std::vector<Change> before_return(uint64_t function);
  // HostCalls knows, too, that a function has returned.
  void returned();

  // Whether functions may still write a source in the range.
  bool uses(uint64_t address, uint64_t bytes);
  // The memory goes: what was sent stays.
  void forget(uint64_t address, uint64_t bytes);

 private:
  enum class State : uint8_t { kAdded, kSending, kSent };
  struct Copy {
    uint64_t id = 0;
    uint64_t last = 0;
    uint64_t address = 0;
    size_t bytes = 0;
    State state = State::kAdded;
    std::byte few[32];                  // as they were sent
    std::unique_ptr<std::byte[]> many;  // the same where they are more

    std::byte* sent() { return many != nullptr ? many.get() : few; }
    const void* source() const { return reinterpret_cast<const void*>(address); }
    bool touches(uint64_t begin, uint64_t length) const {
      return address < begin + length && begin < address + bytes;
    }
  };
  using Copies = std::list<Copy>;  // which do not move
  // With mutex_ held.
  Copies::iterator find(uint64_t id);
  Copies::iterator erase(Copies::iterator copy);
  void drop_ended();

  HostCalls& functions_;
  std::mutex mutex_;  // guards the rest
  std::condition_variable sent_;
  Copies copies_, unused_;  // no allocation for a copy
  size_t bytes_ = 0;
  uint64_t last_id_ = 0;
};

}  // namespace fargpu::client
