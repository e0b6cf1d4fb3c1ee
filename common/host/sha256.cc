// OpenSSL's functions of SHA-256 itself, which it calls deprecated, and not its EVP: that sets up
// the whole library at the first hash of a process, a millisecond in every program and worker that
// loads an image. They need nothing of it: no settings of the application's are read, and nothing
// is left for its end, when our threads may still run.
#define OPENSSL_SUPPRESS_DEPRECATED  // NOLINT(bugprone-reserved-identifier)
#include "common/host/sha256.h"

#include <openssl/sha.h>

#include "common/base/check.h"

namespace fargpu {

void Sha256::Free::operator()(SHA256state_st* state) const { delete state; }

Sha256::Sha256() : state_(new SHA256_CTX) { FARGPU_CHECK(SHA256_Init(state_.get()) == 1); }

void Sha256::update(std::span<const std::byte> data) {
  FARGPU_CHECK(SHA256_Update(state_.get(), data.data(), data.size()) == 1);
}

Sha256Digest Sha256::finish() {
  Sha256Digest digest;
  FARGPU_CHECK(SHA256_Final(digest.data(), state_.get()) == 1);
  return digest;
}

Sha256Digest sha256(std::span<const std::byte> data) {
  Sha256 hash;
  hash.update(data);
  return hash.finish();
}

std::string to_hex(const Sha256Digest& digest) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * digest.size());
  for (uint8_t byte : digest) {
    text.push_back(kDigits[byte >> 4]);
    text.push_back(kDigits[byte & 15]);
  }
  return text;
}

}  // namespace fargpu
