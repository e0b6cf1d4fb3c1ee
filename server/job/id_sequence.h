// Ids of jobs and sessions: 64 bits, never 0, each once: in this daemon's life, in another one's,
// on another host (docs/adr/0032). The upper bits are drawn at random when it begins, and again
// when the counter below them has run out. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "common/base/id_text.h"

namespace fargpu::server {

// From the system; from the clock where that has none.
uint64_t random_number();

// Of this process, not 0: the daemonId of schema/control.capnp. Any thread.
uint64_t daemon_id();

class IdSequence {
 public:
  // `draw`: 64 random bits.
  explicit IdSequence(std::function<uint64_t()> draw = random_number) : draw_(std::move(draw)) {}
  uint64_t next() {
    constexpr uint64_t kLast = (uint64_t{1} << kIdCounterBits) - 1;
    if (counter_ == 0 || counter_ == kLast) {
      counter_ = 0;
      life_ = draw_() >> kIdCounterBits;
    }
    return life_ << kIdCounterBits | ++counter_;
  }

 private:
  const std::function<uint64_t()> draw_;
  uint64_t life_ = 0;
  uint64_t counter_ = 0;
};

}  // namespace fargpu::server
