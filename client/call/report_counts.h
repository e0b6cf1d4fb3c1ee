// The counters of a report. Each thread has its own, which it alone raises; who makes the report
// reads them all.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "client/call/report.h"
#include "generated/schema/opcodes.h"

namespace fargpu::client::report {

class Counter {
 public:
  // Only its thread.
  void add(uint64_t more) {
    value_.store(value_.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
  }
  uint64_t get() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

struct OfFunction {
  Counter local, sent, waited;                      // how its calls were answered
  Counter nanoseconds;                              // of those that waited
  Counter inside;                                   // nanoseconds of all
  Counter round_trips, bytes_sent, bytes_received;  // of its frames
  Counter not_supported;
};
struct OfRoute {
  Counter copies, bytes;
};

// By opcode. The last place is for functions without one: those of OpenGL, EGL and VDPAU.
inline constexpr size_t kWithoutOpcode = schema::kOpcodeEnd - schema::kFirstOpcode;
inline size_t place_of(uint16_t opcode) {
  const bool known = opcode >= schema::kFirstOpcode && opcode < schema::kOpcodeEnd;
  return known ? opcode - schema::kFirstOpcode : kWithoutOpcode;
}

using PerFunction = std::array<OfFunction, kWithoutOpcode + 1>;

struct Counts {
  PerFunction functions;
  std::array<std::array<OfRoute, kRoutes>, 2> copies;  // to the host, to the device
  Counter images_found, images_sent, image_bytes, image_bytes_sent;
};

// Of all threads, added up.
void add_up(Counts& sum);

}  // namespace fargpu::client::report
