// MD2 (RFC 1319) and HMAC-MD2 (RFC 2104 with MD2's 16-byte block).
//
// MD2 has no cryptographic value. It is used only for the HMAC-MD2 that NVIDIA's runtime asks of
// its driver library at start (handshake.h). Pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace fargpu::client::interop {

using Digest = std::array<uint8_t, 16>;

Digest md2(std::span<const uint8_t> message);
// `key`: at most 16 bytes are used as they are; longer keys are hashed first.
Digest hmac_md2(std::span<const uint8_t> key, std::span<const uint8_t> message);

}  // namespace fargpu::client::interop
