// Text that kernels printed and that has not been written yet. It is written to the process's
// stdout at synchronisation points, and when it exceeds its limit. Thread safe; pieces keep their
// order.
#pragma once

#include <cstddef>
#include <mutex>
#include <string>
#include <string_view>

namespace fargpu::sim {

class PrintfBuffer {
 public:
  void set_limit(size_t bytes);
  void append(std::string_view text);
  void flush();

 private:
  std::mutex mutex_;
  std::string text_;
  size_t limit_ = size_t{1} << 20;
  std::mutex write_mutex_;  // taken before mutex_: keeps the pieces in order
};

}  // namespace fargpu::sim
