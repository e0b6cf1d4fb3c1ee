// SharedSegment: memory of this process that the worker maps at the same address and registers with
// the driver, so that the GPU uses it directly.
//
// It is a memory file whose size can never change; the worker insists on that. The worker's mapping
// belongs to the context in which it was made, and ends with it or by fgHostUnshare. This object
// owns only the mapping in this process. Children of fork() share the memory like any other memory
// file; natively, pinned memory in a child is undefined.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "client/object/context.h"

namespace fargpu::client {

class HostCalls;
class Link;

// Waits until no context has work left, then ends the worker's mapping of the shared memory at
// `address`; 0: only waits. `context`: of the frame.
CUresult unshare(Link& link, HostCalls& functions, const Context* context, uint64_t address);

class SharedSegment {
 public:
  // Whether this connection supports it.
  static bool possible(Link& link);
  // In whole pages, zeroed. nullopt: the worker or the system refused, which is logged once.
  // Also when the context has ended meanwhile. `context` is usable.
  static std::optional<SharedSegment> make(Link& link, HostCalls& functions, Context& context,
                                           size_t bytes);

  SharedSegment(SharedSegment&& other) noexcept { swap(other); }
  SharedSegment& operator=(SharedSegment&& other) noexcept {
    SharedSegment moved(std::move(other));
    swap(moved);
    return *this;
  }
  ~SharedSegment();

  std::byte* base() const { return base_; }
  uint64_t address() const { return reinterpret_cast<uint64_t>(base_); }
  size_t bytes() const { return bytes_; }
  uint64_t device_pointer() const { return device_pointer_; }
  const Context* context() const { return context_; }
  // The worker's mapping has ended with it. A table of segments that is notified of the ends of
  // contexts calls this once, under its lock.
  bool context_has_ended() const { return epoch_ && epoch_->is_over(); }

 private:
  SharedSegment() = default;
  void swap(SharedSegment& other) noexcept {
    std::swap(base_, other.base_);
    std::swap(bytes_, other.bytes_);
    std::swap(device_pointer_, other.device_pointer_);
    std::swap(context_, other.context_);
    std::swap(epoch_, other.epoch_);
  }

  std::byte* base_ = nullptr;
  size_t bytes_ = 0;
  uint64_t device_pointer_ = 0;
  const Context* context_ = nullptr;
  std::optional<ContextEpoch> epoch_;
};

}  // namespace fargpu::client
