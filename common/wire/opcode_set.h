// A set of opcodes: the opcodes that one end of a session knows, from hello or welcome. On the wire
// bit n % 8 of byte n / 8 stands for opcode n; bytes that are not there are zero. Plain data.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/base/status.h"

namespace fargpu::wire {

class OpcodeSet {
 public:
  static constexpr size_t kMaxBytes = (size_t{1} << 16) / 8;

  // A peer's set; kProtocol when it is longer than all opcodes are.
  static Result<OpcodeSet> from_bytes(std::span<const std::byte> bytes);
  // As it travels, without zero bytes at its end.
  std::vector<std::byte> bytes() const;

  bool contains(uint16_t opcode) const { return (words_[opcode / 64] >> opcode % 64 & 1) != 0; }
  void insert(uint16_t opcode) { words_[opcode / 64] |= uint64_t{1} << opcode % 64; }
  bool empty() const { return words_ == Words{}; }
  // Control opcodes, below kFirstApiOpcode: bit n for opcode n.
  uint64_t control() const { return words_[0]; }

  bool operator==(const OpcodeSet&) const = default;

 private:
  using Words = std::array<uint64_t, kMaxBytes / 8>;
  Words words_{};
};

}  // namespace fargpu::wire
