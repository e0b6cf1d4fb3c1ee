#include "client/memory/address_window.h"

#include <iterator>

namespace fargpu::client {

std::optional<uint64_t> AddressWindow::take(uint64_t bytes, uint64_t align) {
  for (auto found = by_bytes_.lower_bound({bytes, 0}); found != by_bytes_.end(); ++found) {
    const auto [size, hole] = *found;
    const uint64_t skipped = (align - hole % align) % align;
    if (skipped > size - bytes) continue;
    by_bytes_.erase(found);
    holes_.erase(hole);
    if (skipped != 0) add(hole, skipped);
    if (size > skipped + bytes) add(hole + skipped + bytes, size - skipped - bytes);
    return hole + skipped;
  }
  return std::nullopt;
}

void AddressWindow::give_back(uint64_t address, uint64_t bytes) {
  auto after = holes_.lower_bound(address);
  if (after != holes_.end() && after->first == address + bytes) {
    bytes += after->second;
    by_bytes_.erase({after->second, after->first});
    after = holes_.erase(after);
  }
  if (after != holes_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == address) {
      address = before->first;
      bytes += before->second;
      by_bytes_.erase({before->second, before->first});
      holes_.erase(before);
    }
  }
  add(address, bytes);
}

void AddressWindow::add(uint64_t address, uint64_t bytes) {
  holes_.emplace(address, bytes);
  by_bytes_.emplace(bytes, address);
}

}  // namespace fargpu::client
