// MD2 (RFC 1319) and HMAC-MD2 (RFC 2104 with MD2's 16-byte block).
//
// Of no cryptographic worth: NVIDIA's runtime asks its driver library for an HMAC-MD2 at start
// (handshake.h), and that is the only use. Pure functions of their input.
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
