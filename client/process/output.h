// Output of device code, and the driver's output on stderr: collected when it arrives, written to
// the application's stdout and stderr at the next call that returns.
//
// The worker sends output before the reply of the synchronisation that made it visible, so writing
// at the end of that call keeps the order of native CUDA. append() only copies. Any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <mutex>
#include <span>
#include <string>

namespace fargpu::client {

class Output {
 public:
  void append(std::span<const std::byte> bytes, bool to_stderr = false);
  // Writes pending output through C's stdout and stderr, in order with the application's own
  // printf.
  void drain() {
    if (pending_.load(std::memory_order_acquire)) write();
  }

 private:
  void write();
  std::atomic<bool> pending_{false};
  std::mutex mutex_;  // text_, errors_
  std::mutex write_mutex_;
  std::string text_;
  std::string errors_;
};

}  // namespace fargpu::client
