// Bytes inside larger memory that an address sanitizer is to guard like memory of its own. All of
// it is nothing in other builds.
#pragma once

#include <cstddef>
#include <span>

#if defined(__SANITIZE_ADDRESS__)
#define FARGPU_ADDRESSES_CHECKED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FARGPU_ADDRESSES_CHECKED 1
#endif
#endif
#ifdef FARGPU_ADDRESSES_CHECKED
#include <sanitizer/asan_interface.h>

#include <algorithm>
#endif

namespace fargpu::address_check {

#ifdef FARGPU_ADDRESSES_CHECKED
inline constexpr bool kOn = true;
inline constexpr size_t kMost = 1024;  // of what is poisoned at once: it takes time

inline void poison(const std::byte* first, const std::byte* end) {
  __asan_poison_memory_region(first, std::min(kMost, static_cast<size_t>(end - first)));
}
inline void unpoison(const std::byte* first, const std::byte* end) {
  __asan_unpoison_memory_region(first, std::min(kMost, static_cast<size_t>(end - first)));
}
inline bool is_poisoned(const std::byte* at) { return __asan_address_is_poisoned(at) != 0; }
#else
inline constexpr bool kOn = false;
inline void poison(const std::byte*, const std::byte*) {}
inline void unpoison(const std::byte*, const std::byte*) {}
inline bool is_poisoned(const std::byte*) { return false; }
#endif

// While it lives, nobody may use the bytes of `memory` that lie behind `part`, which is in it or
// empty.
class OnlyPart {
 public:
  OnlyPart(std::span<const std::byte> part, std::span<const std::byte> memory)
      : first_(part.data() + part.size()),
        end_(part.empty() ? first_ : memory.data() + memory.size()) {
    poison(first_, end_);
  }
  ~OnlyPart() { unpoison(first_, end_); }
  OnlyPart(const OnlyPart&) = delete;
  OnlyPart& operator=(const OnlyPart&) = delete;

 private:
  const std::byte *first_, *end_;
};

}  // namespace fargpu::address_check
