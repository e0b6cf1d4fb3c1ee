#include "client/process/output.h"

#include <cstdio>

namespace fargpu::client {

void Output::append(std::span<const std::byte> bytes, bool to_stderr) {
  std::lock_guard lock(mutex_);
  (to_stderr ? errors_ : text_).append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  pending_.store(true, std::memory_order_release);
}

void Output::write() {
  std::lock_guard one_writer(write_mutex_);
  std::string text;
  std::string errors;
  {
    std::lock_guard lock(mutex_);
    text.swap(text_);
    errors.swap(errors_);
    pending_.store(false, std::memory_order_relaxed);
  }
  std::fwrite(text.data(), 1, text.size(), stdout);
  if (!errors.empty()) std::fwrite(errors.data(), 1, errors.size(), stderr);
}

}  // namespace fargpu::client
