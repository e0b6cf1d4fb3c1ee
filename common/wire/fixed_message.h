// FixedMessage: a message of numbers, and at most one Data field behind them, built in place. It
// has the bytes that a SlotMessageBuilder makes, without segments and arenas. On the stack of one
// thread.
#pragma once

#include <capnp/generated-header-support.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "common/base/check.h"

namespace fargpu::wire {

// The builder of a struct whose data section is there. Only numbers may be set.
capnp::_::StructBuilder numbers_at(uint64_t* data);

// kDataBytes: most bytes of the Data field, a multiple of 8; 0: the message is only numbers.
template <typename Message, size_t kDataBytes = 0>
class FixedMessage {
  using Shape = typename Message::_capnpPrivate;
  static_assert(kDataBytes % sizeof(uint64_t) == 0);
  static_assert(kDataBytes > 0 || Shape::pointerCount == 0, "not only numbers");

 public:
  FixedMessage() {
    words_[0] = kPointer;
    std::memset(words_.data() + 1, 0, (kHeadWords - 1) * sizeof(uint64_t));
  }
  FixedMessage(const FixedMessage&) = delete;
  FixedMessage& operator=(const FixedMessage&) = delete;

  // For the numbers, which are zero so far.
  typename Message::Builder root() {
    return typename Message::Builder(numbers_at(words_.data() + 1));
  }
  // Where the bytes of the Data field belong: kDataBytes, not set before.
  std::byte* data() { return reinterpret_cast<std::byte*>(words_.data() + kHeadWords); }
  // So many are there, and they are those of the `index`th field that is no number. Once at most.
  void set_data(size_t index, size_t bytes) {
    FARGPU_CHECK(index < Shape::pointerCount && bytes <= kDataBytes);
    // Counted from the word behind the pointer; a list of bytes.
    const uint64_t distance = Shape::pointerCount - index - 1;
    words_[1 + Shape::dataWordSize + index] = bytes << 35 | uint64_t{2} << 32 | distance << 2 | 1;
    const size_t padded = (bytes + 7) & ~size_t{7};
    std::memset(data() + bytes, 0, padded - bytes);
    used_ = kHeadWords * sizeof(uint64_t) + padded;
  }

  std::span<const std::byte> bytes() const { return std::as_bytes(std::span(words_)).first(used_); }

 private:
  // To a struct behind it; one without fields is where its pointer is.
  static constexpr size_t kHeadWords = size_t{1} + Shape::dataWordSize + Shape::pointerCount;
  static constexpr uint64_t kPointer =
      kHeadWords == 1 ? 0xffff'fffc
                      : uint64_t{Shape::dataWordSize} << 32 | uint64_t{Shape::pointerCount} << 48;
  std::array<uint64_t, kHeadWords + kDataBytes / sizeof(uint64_t)> words_;
  size_t used_ = kHeadWords * sizeof(uint64_t);
};

}  // namespace fargpu::wire
