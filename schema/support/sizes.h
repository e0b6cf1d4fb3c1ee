// Sizes that generated code needs on both ends: bounds of messages, and of values whose size
// depends on an attribute. Pure functions.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

namespace fargpu::schema {

// Most elements times size that one array, string or byte field of a message may have. Longer
// things travel as bulk.
inline constexpr uint64_t kMaxFieldBytes = 256u << 10;

// False when `count` elements of `size` bytes (size > 0) are more than a field may hold; no
// overflow.
constexpr bool fits(uint64_t count, uint64_t size) { return count <= kMaxFieldBytes / size; }

// Bytes that a Data or Text of `bytes` takes in a segment.
constexpr size_t padded(size_t bytes) { return (bytes + 7) & ~size_t{7}; }

// Bytes of a message of type T without its Data and Text: root pointer, data section, pointer
// section.
template <typename T>
constexpr size_t fixed_bytes() {
  return 8 * (size_t{1} + T::_capnpPrivate::dataWordSize + T::_capnpPrivate::pointerCount);
}

// What cuMemPoolSetAttribute and cuMemPoolGetAttribute read and write: the reuse policies are ints,
// the amounts 64 bits.
constexpr size_t mem_pool_attribute_bytes(int attribute) {
  return attribute >= CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES &&
                 attribute <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES
             ? sizeof(int)
             : sizeof(cuuint64_t);
}

// What cuPointerSetAttribute reads: CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, the only one that can be set,
// is an unsigned int.
constexpr size_t pointer_attribute_bytes(int) { return sizeof(unsigned int); }

}  // namespace fargpu::schema
