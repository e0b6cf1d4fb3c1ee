// Byte runs: changed bytes from anywhere in memory, packed one behind the other, as the two ends of
// a session exchange them.
//
// A run is varint(gap) varint(length) bytes. The gap counts from the end of the run before (for the
// first one from address 0), so adjacent runs cost two bytes each. Gaps wrap around, so runs may
// have any order. Pure, no threads. A reader checks everything: its input is untrusted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace fargpu::pages {

class RunWriter {
 public:
  // At most `limit` bytes are written; at least kSmallestLimit.
  explicit RunWriter(size_t limit);
  static constexpr size_t kSmallestLimit = 64;
  void reserve() { bytes_.reserve(limit_); }  // nothing is allocated any more

  // Adds as much of `data`, which lies at `address`, as there is room for; returns how much.
  size_t add(uint64_t address, std::span<const std::byte> data);
  bool has_room(size_t bytes) const { return bytes <= room(); }
  size_t room() const;                   // the most that one run may have now
  uint64_t end() const { return end_; }  // of the last run; not empty
  bool empty() const { return bytes_.empty(); }
  std::span<const std::byte> bytes() const { return bytes_; }
  void clear();

 private:
  const size_t limit_;
  uint64_t end_ = 0;  // of the last run
  std::vector<std::byte> bytes_;
};

struct ByteRun {
  uint64_t address = 0;
  std::span<const std::byte> data;  // never empty
};

class RunReader {
 public:
  explicit RunReader(std::span<const std::byte> bytes) : left_(bytes) {}
  // nullopt at the end, or where the bytes make no sense: see malformed().
  std::optional<ByteRun> next();
  bool malformed() const { return malformed_; }

 private:
  std::optional<uint64_t> number();

  std::span<const std::byte> left_;
  uint64_t end_ = 0;
  bool malformed_ = false;
};

}  // namespace fargpu::pages
