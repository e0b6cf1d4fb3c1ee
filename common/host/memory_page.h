// Pages of memory: x86-64 has pages of 4 KiB.
#pragma once

#include <cstdint>

namespace fargpu {

inline constexpr uint64_t kPageBytes = 4096;

// The page that an address lies in.
constexpr uint64_t page_of(uint64_t address) { return address & ~(kPageBytes - 1); }
// The first page that begins at an address or behind it; the size of whole pages for so many bytes.
constexpr uint64_t page_from(uint64_t address) { return page_of(address + kPageBytes - 1); }
inline void* as_pointer(uint64_t address) { return reinterpret_cast<void*>(address); }

}  // namespace fargpu
