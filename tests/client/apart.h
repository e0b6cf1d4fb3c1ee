// map_apart: memory at addresses that the system gives to nobody by itself, so that a page which is
// unmapped stays unmapped while other threads allocate, and can be unmapped twice.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "common/host/map_exactly.h"

namespace fargpu::test {

// Zeros, readable and writable; null when the addresses are taken. Any thread.
inline std::byte* map_apart(size_t bytes) {
#if defined(__SANITIZE_THREAD__)
  constexpr uint64_t kBegin = 0x10'0000'0000;  // ThreadSanitizer leaves the program half a TiB
#else
  constexpr uint64_t kBegin = 0x3000'0000'0000;
#endif
  constexpr uint64_t kStep = uint64_t{64} << 20;
  static std::atomic<uint64_t> next = kBegin;
  void* const at = reinterpret_cast<void*>(next.fetch_add((bytes / kStep + 1) * kStep));
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS;
  return map_exactly(at, bytes, PROT_READ | PROT_WRITE, kFlags) ? static_cast<std::byte*>(at)
                                                                : nullptr;
}

}  // namespace fargpu::test
