// Which parts of an arena are in use. First fit, in granules of 512 bytes (the alignment that
// cuMemHostAlloc gives small memory); adjacent free blocks are merged. It only keeps offsets and
// never touches the memory. Not thread safe.
#pragma once

#include <cstddef>
#include <map>
#include <optional>

namespace fargpu::client {

class BlockList {
 public:
  static constexpr size_t kGranule = 512;

  explicit BlockList(size_t bytes) { free_.emplace(0, bytes / kGranule * kGranule); }

  // The offset of a block of at least `bytes` (> 0); nullopt: no hole is large enough.
  std::optional<size_t> take(size_t bytes);
  // False: no block begins there.
  bool give_back(size_t offset);
  bool empty() const { return taken_.empty(); }

 private:
  std::map<size_t, size_t> free_;   // offset -> bytes; never two that touch
  std::map<size_t, size_t> taken_;  // offset -> bytes
};

}  // namespace fargpu::client
