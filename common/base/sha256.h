// SHA-256 (FIPS 180-4), for the content addresses of module images. Own code, so that the client
// library does not bring a cryptography library into applications. Not for secrets: no care is
// taken against timing. Plain values, no sharing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace fargpu {

using Sha256Digest = std::array<uint8_t, 32>;

class Sha256 {
 public:
  Sha256();
  void update(std::span<const std::byte> data);
  // Ends the message; the object must not be used afterwards.
  Sha256Digest finish();

 private:
  void compress(const uint8_t* block);

  std::array<uint32_t, 8> state_;
  std::array<uint8_t, 64> block_;
  size_t block_bytes_ = 0;
  uint64_t total_bytes_ = 0;
};

Sha256Digest sha256(std::span<const std::byte> data);
// 64 lower-case hexadecimal digits.
std::string to_hex(const Sha256Digest& digest);

}  // namespace fargpu
