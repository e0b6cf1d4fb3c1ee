#include "sim/context/printf_buffer.h"

#include <cstdio>

namespace fargpu::sim {

void PrintfBuffer::set_limit(size_t bytes) {
  std::lock_guard lock(mutex_);
  limit_ = bytes;
}

void PrintfBuffer::append(std::string_view text) {
  {
    std::lock_guard lock(mutex_);
    text_.append(text);
    if (text_.size() < limit_) return;
  }
  flush();
}

void PrintfBuffer::flush() {
  std::lock_guard write_lock(write_mutex_);
  std::string text;
  {
    std::lock_guard lock(mutex_);
    text.swap(text_);
  }
  if (text.empty()) return;
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

}  // namespace fargpu::sim
