// Ranges of CPU addresses without memory behind them. Thread safe (the kernel's).
#pragma once

#include <cstdint>

namespace fargpu::sim {

// Exactly at `address`; 0: taken, or not possible there.
uint64_t reserve_at(uint64_t address, uint64_t bytes);
// `alignment`: a power of two. 0: no addresses left.
uint64_t reserve_anywhere(uint64_t bytes, uint64_t alignment);
// Turns reserved or mapped addresses back into reserved ones.
void reserve_again(uint64_t address, uint64_t bytes);
void unreserve(uint64_t address, uint64_t bytes);

}  // namespace fargpu::sim
