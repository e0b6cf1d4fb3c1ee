// SmallBuffer: an array that lives on the stack as long as it is small. For outputs and translated
// inputs of generated code, so that small calls need no heap. Elements are trivially copyable and
// start zeroed. One thread.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <type_traits>

namespace fargpu::schema {

template <typename T>
class SmallBuffer {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  explicit SmallBuffer(size_t count) : bytes_(count * sizeof(T)) {
    if (bytes_ > sizeof(inline_)) heap_ = std::make_unique<T[]>(count);
    if (heap_ == nullptr) std::memset(inline_, 0, sizeof(inline_));
  }
  SmallBuffer(const T* source, size_t count) : SmallBuffer(count) {
    if (bytes_ > 0) std::memcpy(data(), source, bytes_);
  }
  T* data() { return heap_ != nullptr ? heap_.get() : reinterpret_cast<T*>(inline_); }
  size_t bytes() const { return bytes_; }
  T* begin() { return data(); }
  T* end() { return data() + bytes_ / sizeof(T); }

 private:
  alignas(alignof(T) > 8 ? alignof(T) : 8) std::byte inline_[256];
  std::unique_ptr<T[]> heap_;
  size_t bytes_;
};

}  // namespace fargpu::schema
