// SHA-256 against the examples of FIPS 180-4 and their like, and against itself in pieces.
#include "common/host/sha256.h"

#include <gtest/gtest.h>

namespace fargpu {
namespace {

std::string hash_of(std::string_view text) {
  return to_hex(sha256(std::as_bytes(std::span(text))));
}

TEST(Sha256, KnownVectors) {
  EXPECT_EQ(hash_of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hash_of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hash_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hash_of(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

// Lengths around the padding's corners: 55, 56, 63, 64, 65 bytes.
TEST(Sha256, PiecesGiveTheSameDigest) {
  for (size_t length : {1u, 55u, 56u, 57u, 63u, 64u, 65u, 119u, 120u, 128u, 1000u}) {
    std::string text(length, '\0');
    for (size_t i = 0; i < length; ++i) text[i] = static_cast<char>(i * 37);
    for (size_t step : {1u, 7u, 64u, 100u}) {
      Sha256 hash;
      for (size_t begin = 0; begin < length; begin += step) {
        hash.update(std::as_bytes(std::span(std::string_view(text).substr(begin, step))));
      }
      EXPECT_EQ(to_hex(hash.finish()), hash_of(text)) << length << " in steps of " << step;
    }
  }
}

}  // namespace
}  // namespace fargpu
