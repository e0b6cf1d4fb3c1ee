// Address space of this process: ranges that are kept free because the worker's device memory lies
// there, and ranges for host memory that device code will access.
//
// A device pointer must never be a valid host address in this process, or a cuMemcpy with unified
// addresses could not distinguish the two. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace fargpu::client {

// Makes the pages of [address, address + bytes) inaccessible here until the last reservation that
// touches them is released. False, with nothing reserved, when something else lies there (said
// once) or the system refuses.
bool reserve_addresses(uint64_t address, size_t bytes);
void release_reserved(uint64_t address, size_t bytes);

// Zeroed memory for the application in a window of addresses that other allocators hardly use, so
// that the worker can map the same addresses; nullptr when there is none. Addresses are used again
// after free_host(). `bytes` is rounded up to pages. With a descriptor: its memory, shared, instead
// of memory of this process's own.
void* allocate_host(size_t bytes, int descriptor = -1);
void free_host(void* memory, size_t bytes);
// Managed memory is device memory in the worker, whose driver puts memory of its own near addresses
// that it was asked for. So each has a window.
enum class AddressUse : uint8_t { kPinned, kManaged };
inline constexpr uint64_t kManagedGranule = uint64_t{2} << 20;  // where it may begin
// Addresses of the window at which map() succeeds; 0: there are none. Any whole pages.
uint64_t place_host(AddressUse use, uint64_t bytes, const std::function<bool(uint64_t)>& map);
// What lay there is unmapped. Nothing is done for addresses outside of the windows.
void unplace_host(uint64_t address, uint64_t bytes);
// The worker has something else at the addresses of this memory, or may keep it for longer than it
// is allocated here: they are not given out again.
void retire_addresses(const void* memory);

// True when a byte at `address` can be read. One system call.
bool readable(const void* address);

}  // namespace fargpu::client
