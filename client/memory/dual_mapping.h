// DualMapping: memory of this process that device code uses at the same addresses, mapped twice.
//
// The application sees it at address(), page by page, as far as its owner allows; at first all of
// it is inaccessible. fargpu itself reads and writes it through another mapping, which is always
// accessible: so contents appear to the application as a whole, and fargpu never faults on them. A
// forked child inherits neither. Not thread safe, but local() may be used by any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "client/memory/reserve.h"

namespace fargpu::client {

class DualMapping {
 public:
  // Whole pages, at addresses of the window for this use (reserve.h). nullopt: there is no memory,
  // or no address is free.
  static std::optional<DualMapping> make(AddressUse use, uint64_t bytes);
  // The same at `address`. nullopt also where something lies there already.
  static std::optional<DualMapping> make_at(uint64_t address, uint64_t bytes);
  DualMapping(DualMapping&& other) noexcept { swap(other); }
  DualMapping& operator=(DualMapping&& other) noexcept {
    swap(other);
    return *this;
  }
  // The application's next access to it faults for good.
  ~DualMapping();

  uint64_t address() const { return address_; }
  uint64_t bytes() const { return bytes_; }
  std::byte* local(uint64_t address) const { return local_ + (address - address_); }
  // The first place from `address` on that was touched, which may lie behind the end; nullopt: all
  // behind it are zeros without memory.
  std::optional<uint64_t> next_touched(uint64_t address) const;
  // Zeros, and no memory taken for them.
  void clear(uint64_t address, uint64_t bytes) const;
  // The worker has something else at these addresses: they are not given out again.
  void retire() const { retire_addresses(reinterpret_cast<const void*>(address_)); }

 private:
  DualMapping() = default;
  template <typename Map>
  static std::optional<DualMapping> make_with(uint64_t bytes, Map&& map);
  void swap(DualMapping& other) noexcept;

  uint64_t address_ = 0;
  uint64_t bytes_ = 0;
  std::byte* local_ = nullptr;
  int file_ = -1;
  uint64_t place_ = 0;
};

}  // namespace fargpu::client
