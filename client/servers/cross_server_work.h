// Work between servers that is under way: copies, and streams that wait for another server. A
// server sees only its own part of such work, so what frees memory or ends a context waits here
// first for the work that touches it, as a driver does for the work that it has.
//
// Waits cost a load while nothing is under way. Any thread, but not one that does such work.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace fargpu::client {

struct Context;

class CrossServerWork {
 public:
  struct Range {
    uint64_t begin, bytes;
  };
  // Under way from now on until this ends. Device memory by its addresses, which name one server.
  explicit CrossServerWork(std::vector<const Context*> contexts, std::vector<Range> memory = {});
  ~CrossServerWork();
  CrossServerWork(const CrossServerWork&) = delete;
  CrossServerWork& operator=(const CrossServerWork&) = delete;

  // Wait for the work that is under way at the call.
  static void finish_in(const Context& context) {
    if (count_.load(std::memory_order_acquire) != 0) [[unlikely]]
      finish(&context, {0, 0});
  }
  static void finish_with(const Range& memory) {
    if (count_.load(std::memory_order_acquire) != 0) [[unlikely]]
      finish(nullptr, memory);
  }
  // Of the variables of a module or library.
  static void finish_with_variables_of(uint64_t image) {
    if (any()) [[unlikely]]
      finish_with_all_of(image);
  }
  static bool any() { return count_.load(std::memory_order_acquire) != 0; }

 private:
  struct Table;
  static Table& table();
  static void finish(const Context* context, const Range& memory);
  static void finish_with_all_of(uint64_t image);
  bool touches(const Context* context, const Range& memory) const;

  static inline std::atomic<size_t> count_{0};  // of those in the table
  const std::vector<const Context*> contexts_;
  const std::vector<Range> memory_;
  uint64_t number_ = 0;  // in the order of their beginnings; guarded by the table's mutex
};

}  // namespace fargpu::client
