// The mappings of this process and their protections. Any thread; another one may change it at any
// time.
#pragma once

#include <cstdint>

namespace fargpu {

enum class MemoryUse : uint8_t { kRead, kWrite };
// Whether every byte of the range can be accessed so. Makes the pages present, as a driver does
// that pins them; a range behind the end of its file is incomplete.
bool is_accessible(uint64_t address, uint64_t bytes, MemoryUse use);

// Whether the pages lie in one mapping of private memory of its own: it has no file, can be read
// and written, and is neither a heap of the C library nor a known stack (thread_stacks.h).
bool is_own_mapping(uint64_t begin, uint64_t end);

// Where the pages end that are not mapped, from this address on. 0: it is mapped.
uint64_t end_of_hole(uint64_t address);

}  // namespace fargpu
