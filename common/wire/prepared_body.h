// PreparedBody: a small message that is sent often with one 64-bit field that changes. It is built
// once, by Cap'n Proto, and copied from then on. A plain value; any thread may read it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "common/base/check.h"
#include "common/wire/slot_message.h"

namespace fargpu::wire {

class PreparedBody {
 public:
  static constexpr size_t kMostBytes = 64;
  // The bytes of one message.
  class Body {
   public:
    std::span<const std::byte> bytes() const { return std::span(bytes_).first(used_); }

   private:
    friend class PreparedBody;
    alignas(8) std::array<std::byte, kMostBytes> bytes_{};
    size_t used_ = 0;
  };

  // Empty: nothing was prepared.
  PreparedBody() = default;
  // fill(builder, value) sets all fields, the variable one to `value`. They take kMostBytes at
  // most.
  template <typename Message, typename Fill>
  static PreparedBody make(Fill&& fill) {
    const auto build = [&](uint64_t value, Body& body) {
      SlotMessageBuilder builder(body.bytes_);
      fill(builder.initRoot<Message>(), value);
      body.used_ = builder.used_bytes();
    };
    PreparedBody made;
    Body marked;
    build(0, made.body_);
    build(~uint64_t{0}, marked);
    FARGPU_CHECK(made.body_.used_ == marked.used_);
    while (made.place_ < marked.used_ &&
           made.body_.bytes_[made.place_] == marked.bytes_[made.place_])
      ++made.place_;
    FARGPU_CHECK(made.place_ + sizeof(uint64_t) <= marked.used_);
    return made;
  }

  Body with(uint64_t value) const {
    Body body = body_;
    std::memcpy(body.bytes_.data() + place_, &value, sizeof value);
    return body;
  }

 private:
  Body body_;
  size_t place_ = 0;  // of the field
};

}  // namespace fargpu::wire
