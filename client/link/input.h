// Input: bytes of the application that a message is built from.
//
// An access to managed or mapped memory may wait until its contents are fetched. That needs the
// connection, which is taken while a message is built. So they are copied before, while there is
// such memory; otherwise this costs a relaxed load. Lives on the stack of the calling thread until
// the message was sent.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <memory>

namespace fargpu::client {

// Allocations in all sessions of memory whose accesses may have to wait.
inline std::atomic<size_t> faulting_allocations{0};

class Input {
 public:
  // nullptr: there are none.
  Input(const void* from, size_t bytes) : from_(from) {
    if (faulting_allocations.load(std::memory_order_relaxed) == 0 || from == nullptr) [[likely]]
      return;
    std::byte* copy = small_.data();
    if (bytes > small_.size()) {
      large_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
      copy = large_.get();
    }
    std::memcpy(copy, from, bytes);
    from_ = copy;
  }
  Input(const Input&) = delete;
  Input& operator=(const Input&) = delete;

  const void* data() const { return from_; }
  const char* text() const { return static_cast<const char*>(from_); }

 private:
  const void* from_;
  alignas(std::max_align_t) std::array<std::byte, 256> small_;  // not set before it is used
  std::unique_ptr<std::byte[]> large_;
};

}  // namespace fargpu::client
