// AddressWindow: which addresses of a range are free. Best fit, so that blocks of a few recurring
// sizes find their old places; adjacent free blocks are merged. It only keeps numbers and never
// touches the memory. Not thread safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace fargpu::client {

class AddressWindow {
 public:
  AddressWindow(uint64_t begin, uint64_t end) : begin_(begin), end_(end) {
    add(begin, end - begin);
  }

  bool contains(uint64_t address) const { return address >= begin_ && address < end_; }
  // `bytes` > 0; nullopt: no hole is large enough.
  std::optional<uint64_t> take(uint64_t bytes);
  // The result of take(), with the same size.
  void give_back(uint64_t address, uint64_t bytes);

 private:
  void add(uint64_t address, uint64_t bytes);

  const uint64_t begin_, end_;
  std::map<uint64_t, uint64_t> holes_;                // address -> bytes; never two that touch
  std::set<std::pair<uint64_t, uint64_t>> by_bytes_;  // the same as {bytes, address}
};

}  // namespace fargpu::client
