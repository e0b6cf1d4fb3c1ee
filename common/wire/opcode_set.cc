#include "common/wire/opcode_set.h"

#include <fmt/core.h>

namespace fargpu::wire {

Result<OpcodeSet> OpcodeSet::from_bytes(std::span<const std::byte> bytes) {
  if (bytes.size() > kMaxBytes) {
    return Status(StatusCode::kProtocol, fmt::format("a set of opcodes has {} bytes, at most {}",
                                                     bytes.size(), kMaxBytes));
  }
  OpcodeSet set;
  for (size_t i = 0; i < bytes.size(); ++i)
    set.words_[i / 8] |= std::to_integer<uint64_t>(bytes[i]) << i % 8 * 8;
  return set;
}

std::vector<std::byte> OpcodeSet::bytes() const {
  std::vector<std::byte> result;
  for (size_t i = 0; i < kMaxBytes; ++i) {
    const auto byte = static_cast<std::byte>(words_[i / 8] >> i % 8 * 8);
    if (byte == std::byte{0}) continue;
    result.resize(i);
    result.push_back(byte);
  }
  return result;
}

}  // namespace fargpu::wire
