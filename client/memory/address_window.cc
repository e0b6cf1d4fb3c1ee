#include "client/memory/address_window.h"

#include <iterator>

namespace fargpu::client {

std::optional<uint64_t> AddressWindow::take(uint64_t bytes) {
  const auto found = by_bytes_.lower_bound({bytes, 0});
  if (found == by_bytes_.end()) return std::nullopt;
  const auto [size, address] = *found;
  by_bytes_.erase(found);
  holes_.erase(address);
  if (size > bytes) add(address + bytes, size - bytes);
  return address;
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
