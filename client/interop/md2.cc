#include "client/interop/md2.h"

#include <vector>

namespace fargpu::client::interop {
namespace {

// RFC 1319, section 3.2: a permutation of 0..255 made from the digits of pi.
constexpr uint8_t kPiSubstitution[256] = {
    41,  46,  67,  201, 162, 216, 124, 1,   61,  54,  84,  161, 236, 240, 6,   19,  98,  167, 5,
    243, 192, 199, 115, 140, 152, 147, 43,  217, 188, 76,  130, 202, 30,  155, 87,  60,  253, 212,
    224, 22,  103, 66,  111, 24,  138, 23,  229, 18,  190, 78,  196, 214, 218, 158, 222, 73,  160,
    251, 245, 142, 187, 47,  238, 122, 169, 104, 121, 145, 21,  178, 7,   63,  148, 194, 16,  137,
    11,  34,  95,  33,  128, 127, 93,  154, 90,  144, 50,  39,  53,  62,  204, 231, 191, 247, 151,
    3,   255, 25,  48,  179, 72,  165, 181, 209, 215, 94,  146, 42,  172, 86,  170, 198, 79,  184,
    56,  210, 150, 164, 125, 182, 118, 252, 107, 226, 156, 116, 4,   241, 69,  157, 112, 89,  100,
    113, 135, 32,  134, 91,  207, 101, 230, 45,  168, 2,   27,  96,  37,  173, 174, 176, 185, 246,
    28,  70,  97,  105, 52,  64,  126, 15,  85,  71,  163, 35,  221, 81,  175, 58,  195, 92,  249,
    206, 186, 197, 234, 38,  44,  83,  13,  110, 133, 40,  132, 9,   211, 223, 205, 244, 65,  129,
    77,  82,  106, 220, 55,  200, 108, 193, 171, 250, 36,  225, 123, 8,   12,  189, 177, 74,  120,
    136, 149, 139, 227, 99,  232, 109, 233, 203, 213, 254, 59,  0,   29,  57,  242, 239, 183, 14,
    102, 88,  208, 228, 166, 119, 114, 248, 235, 117, 75,  10,  49,  68,  80,  180, 143, 237, 31,
    26,  219, 153, 141, 51,  159, 17,  131, 20};

constexpr size_t kBlock = 16;

struct State {
  uint8_t x[48] = {};
  uint8_t checksum[kBlock] = {};
  uint8_t last = 0;

  void mix(const uint8_t* block) {
    for (size_t i = 0; i < kBlock; ++i) {
      x[16 + i] = block[i];
      x[32 + i] = static_cast<uint8_t>(block[i] ^ x[i]);
    }
    unsigned t = 0;
    for (unsigned round = 0; round < 18; ++round) {
      for (uint8_t& byte : x) t = byte = static_cast<uint8_t>(byte ^ kPiSubstitution[t]);
      t = (t + round) & 0xff;
    }
  }

  void absorb(const uint8_t* block) {
    mix(block);
    for (size_t i = 0; i < kBlock; ++i) {
      checksum[i] = static_cast<uint8_t>(checksum[i] ^ kPiSubstitution[block[i] ^ last]);
      last = checksum[i];
    }
  }
};

}  // namespace

Digest md2(std::span<const uint8_t> message) {
  State state;
  while (message.size() >= kBlock) {
    state.absorb(message.data());
    message = message.subspan(kBlock);
  }
  uint8_t tail[kBlock];
  const auto padding = static_cast<uint8_t>(kBlock - message.size());
  for (size_t i = 0; i < kBlock; ++i) tail[i] = i < message.size() ? message[i] : padding;
  state.absorb(tail);
  uint8_t checksum[kBlock];
  for (size_t i = 0; i < kBlock; ++i) checksum[i] = state.checksum[i];
  state.mix(checksum);
  Digest digest;
  for (size_t i = 0; i < kBlock; ++i) digest[i] = state.x[i];
  return digest;
}

Digest hmac_md2(std::span<const uint8_t> key, std::span<const uint8_t> message) {
  Digest block{};
  if (key.size() > kBlock) {
    block = md2(key);
  } else {
    for (size_t i = 0; i < key.size(); ++i) block[i] = key[i];
  }
  std::vector<uint8_t> inner, outer;
  for (uint8_t byte : block) {
    inner.push_back(byte ^ 0x36);
    outer.push_back(byte ^ 0x5c);
  }
  inner.insert(inner.end(), message.begin(), message.end());
  const Digest inside = md2(inner);
  outer.insert(outer.end(), inside.begin(), inside.end());
  return md2(outer);
}

}  // namespace fargpu::client::interop
