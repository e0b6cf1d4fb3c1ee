// AmendableCopies: small asynchronous copies to the device whose bytes were sent with their call
// although something may still write the source before the stream comes to them. The worker keeps
// the bytes until the stream has passed the copy. What lets the stream go on comes to the worker by
// a frame of this client: the return of a function, what the application has stored in mapped
// memory, or work. So before such a frame the source is compared with what was sent, and sent again
// if it is another one (fgAmend): the copy takes what it would natively.
//
// The bytes of a copy are read with the lock of the comparison: what was stored before a comparison
// is either read there or sent by it. Any thread; passed() waits for nothing.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <utility>

namespace fargpu::client {

class AmendableCopies {
 public:
  // More at a time are not taken: each is compared.
  static constexpr size_t kMost = 256;
  static constexpr size_t kMostBytes = 256u << 10;
  // Tells the worker of other bytes of a copy.
  using Send = std::function<void(uint64_t id, std::span<const std::byte> bytes)>;

  explicit AmendableCopies(Send send) : send_(std::move(send)) {}

  // A copy of `bytes` from `address` on, of memory that stays until forget(), is about to be sent.
  // Returns its id; 0: there are too many.
  uint64_t add(uint64_t address, size_t bytes);
  // Its bytes, to be sent at once: nothing may be waited for but room for the frame. They stay
  // until sent(), which follows.
  std::span<const std::byte> take(uint64_t id);
  void sent(uint64_t id);
  // It is not, or was not, sent.
  void cancel(uint64_t id);
  // The low half of its id: its stream has passed it, or never will.
  void passed(uint32_t id);

  // What may let streams go on is about to be sent. Changed sources are sent again before it
  // returns. Waits for frames that are just being sent. Costs a load while there are no copies.
  void amend();

  // Whether streams may still come to a copy with a source in the range.
  bool uses(uint64_t address, uint64_t bytes);
  // The memory goes: what was sent stays.
  void forget(uint64_t address, uint64_t bytes);

 private:
  enum class State : uint8_t { kAdded, kSending, kSent, kPassed };
  struct Copy {
    uint64_t id = 0;
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
  bool any_being_sent() const;

  const Send send_;
  std::mutex amending_;  // so that later bytes of a copy are sent later; before mutex_
  std::mutex mutex_;     // guards the rest
  std::condition_variable sent_;
  Copies copies_, unused_;        // no allocation for a copy
  std::atomic<size_t> count_{0};  // of copies_; read without the lock
  size_t bytes_ = 0;
  uint64_t last_id_ = 0;
};

}  // namespace fargpu::client
