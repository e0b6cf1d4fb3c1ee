#include "common/base/sha256.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include "common/base/check.h"

namespace fargpu {
namespace {

const EVP_MD* algorithm() {
  static const EVP_MD* const found = [] {
    // In an application's process: nothing of its OpenSSL settings, and nothing at its end, when
    // our threads may still run (as in common/tls).
    OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT | OPENSSL_INIT_NO_LOAD_CONFIG, nullptr);
    return EVP_MD_fetch(nullptr, "SHA256", nullptr);
  }();
  return found;
}

}  // namespace

void Sha256::Free::operator()(evp_md_ctx_st* state) const { EVP_MD_CTX_free(state); }

Sha256::Sha256() : state_(EVP_MD_CTX_new()) {
  FARGPU_CHECK(EVP_DigestInit_ex2(state_.get(), algorithm(), nullptr) == 1);
}

void Sha256::update(std::span<const std::byte> data) {
  FARGPU_CHECK(EVP_DigestUpdate(state_.get(), data.data(), data.size()) == 1);
}

Sha256Digest Sha256::finish() {
  Sha256Digest digest;
  FARGPU_CHECK(EVP_DigestFinal_ex(state_.get(), digest.data(), nullptr) == 1);
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
