// Cap'n Proto messages in memory of others: built in a transport's slot, read in its receive
// buffer.
//
// The slot is the only segment of a SlotMessageBuilder: no heap, no copy, no zeroing afterwards
// (MallocMessageBuilder would zero a borrowed segment again in its destructor). The slot must be
// 8-byte aligned; it is zeroed here as far as capnp needs it. A message that outgrows the slot
// fails to build (overflowed() is true) instead of growing: callers compute an upper bound.
// SegmentReader limits traversal and nesting, for bodies that a peer wrote. Both live on the stack
// of one thread.
#pragma once

#include <capnp/message.h>

#include <cstddef>
#include <span>

namespace fargpu::wire {

class SlotMessageBuilder final : public capnp::MessageBuilder {
 public:
  explicit SlotMessageBuilder(std::span<std::byte> slot);
  ~SlotMessageBuilder() noexcept(false) override = default;
  kj::ArrayPtr<capnp::word> allocateSegment(unsigned int minimum_size) override;
  // Bytes of the slot in use after building; a multiple of 8.
  size_t used_bytes();
  // The message did not fit; allocateSegment has thrown a kj::Exception then.
  bool overflowed() const { return overflowed_; }

 private:
  std::span<std::byte> slot_;
  bool given_ = false;
  bool overflowed_ = false;
};

class SegmentReader final : public capnp::MessageReader {
 public:
  // `body`: 8-byte aligned, multiple of 8 long; must outlive the reader. Traversal is limited to 4
  // x its size (+ 1 KiB), nesting to 8.
  explicit SegmentReader(std::span<const std::byte> body);
  kj::ArrayPtr<const capnp::word> getSegment(unsigned int id) override;

 private:
  std::span<const std::byte> body_;
};

}  // namespace fargpu::wire
