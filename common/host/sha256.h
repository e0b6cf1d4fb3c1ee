// SHA-256 by OpenSSL, for the content addresses of module images. Plain values, no sharing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

struct SHA256state_st;

namespace fargpu {

using Sha256Digest = std::array<uint8_t, 32>;

class Sha256 {
 public:
  Sha256();
  void update(std::span<const std::byte> data);
  // Ends the message; the object must not be used afterwards.
  Sha256Digest finish();

 private:
  struct Free {
    void operator()(SHA256state_st* state) const;
  };
  std::unique_ptr<SHA256state_st, Free> state_;
};

Sha256Digest sha256(std::span<const std::byte> data);
// 64 lower-case hexadecimal digits.
std::string to_hex(const Sha256Digest& digest);

}  // namespace fargpu
