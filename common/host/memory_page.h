// Pages of this process by number: x86-64 has pages of 4 KiB.
#pragma once

#include <cstdint>

namespace fargpu {

inline constexpr uint64_t kPageBytes = 4096;

// The page that an address lies in.
constexpr uint64_t page_of(uint64_t address) { return address & ~(kPageBytes - 1); }
inline void* as_pointer(uint64_t address) { return reinterpret_cast<void*>(address); }

}  // namespace fargpu
