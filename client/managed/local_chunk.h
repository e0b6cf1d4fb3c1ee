// LocalChunk: memory of this process for addresses that are device memory in the worker.
//
// It is mapped twice. The application sees it at the chunk's address, block by block, as far as
// protect() allows. fargpu itself reads and writes it through another mapping, which is always
// accessible: so contents appear to the application as a whole, and fargpu never faults on them. A
// forked child inherits neither. Not thread safe, but local() may be used by any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "client/memory/reserve.h"

namespace fargpu::client {

class LocalChunk {
 public:
  static constexpr uint64_t kGranule = uint64_t{2} << 20;

  // `bytes`: a multiple of kGranule. nullopt: there is no memory, or no address is free.
  static std::optional<LocalChunk> make(uint64_t bytes);
  // The same at `address`, in whole pages. nullopt also where something lies there already.
  static std::optional<LocalChunk> make_at(uint64_t address, uint64_t bytes);
  LocalChunk(LocalChunk&& other) noexcept { swap(other); }
  LocalChunk& operator=(LocalChunk&& other) noexcept {
    swap(other);
    return *this;
  }
  // The application's next access to it faults for good.
  ~LocalChunk();

  uint64_t address() const { return address_; }
  uint64_t bytes() const { return bytes_; }
  std::byte* local(uint64_t address) const { return local_ + (address - address_); }
  // The memory file of all chunks, which has holes where nothing was touched, and where an address
  // lies in it.
  int file() const { return file_; }
  uint64_t offset(uint64_t address) const { return place_ + (address - address_); }
  // Zeros, and no memory taken for them.
  void clear(uint64_t address, uint64_t bytes) const;
  // The worker has something else at these addresses: they are not given out again.
  void retire() const { retire_addresses(reinterpret_cast<const void*>(address_)); }

 private:
  LocalChunk() = default;
  template <typename Map>
  static std::optional<LocalChunk> make_with(uint64_t bytes, Map&& map);
  void swap(LocalChunk& other) noexcept;

  uint64_t address_ = 0;
  uint64_t bytes_ = 0;
  std::byte* local_ = nullptr;
  int file_ = -1;
  uint64_t place_ = 0;
};

}  // namespace fargpu::client
