#include "common/tls/authorities.h"

#include <dirent.h>
#include <fmt/core.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <cctype>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>

#include "common/base/descriptors.h"
#include "common/host/setting_file.h"
#include "common/tls/openssl_error.h"

namespace fargpu::tls {
namespace {

// PEM. Never destroyed: threads may outlive static destructors.
std::string& system_texts() {
  static auto* const texts = new std::string;
  return *texts;
}

// OpenSSL's own lookup takes no other names: 8 hexadecimal digits of a subject's hash, a number.
bool is_name_of_authority(std::string_view name) {
  constexpr size_t kDigits = 8;
  if (name.size() < kDigits + 2 || name[kDigits] != '.') return false;
  for (size_t i = 0; i < name.size(); ++i) {
    const auto character = static_cast<unsigned char>(name[i]);
    if (i < kDigits ? std::isxdigit(character) == 0 : i > kDigits && std::isdigit(character) == 0)
      return false;
  }
  return true;
}

void add_file(const std::string& path, std::string& texts) {
  if (const auto text = ordinary_file(path)) texts += *text + "\n";
}

void add_folder(const std::string& path, std::string& texts) {
  const descriptors::StandardTaken taken;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(path.c_str()), &::closedir);
  if (folder == nullptr) return;
  while (const dirent* const entry = ::readdir(folder.get())) {
    if (is_name_of_authority(entry->d_name)) add_file(path + "/" + entry->d_name, texts);
  }
}

const char* variable_or(const char* variable, const char* otherwise) {
  const char* const value = ::secure_getenv(variable);
  return value != nullptr ? value : otherwise;
}

// How many certificates of a text a store has taken, -1 if one of them is malformed. Other things
// in the text do not count.
int add_certificates(X509_STORE* store, const std::string& text) {
  const std::unique_ptr<BIO, int (*)(BIO*)> bytes(
      BIO_new_mem_buf(text.data(), static_cast<int>(text.size())), &BIO_free);
  if (bytes == nullptr) return -1;
  const auto no_password = [](char*, int, int, void*) { return -1; };
  bool malformed = false;
  int count = 0;
  for (;;) {
    ERR_clear_error();
    const std::unique_ptr<X509, void (*)(X509*)> certificate(
        PEM_read_bio_X509_AUX(bytes.get(), nullptr, no_password, nullptr), &X509_free);
    if (certificate == nullptr) {
      if (ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE) break;
      malformed = true;
    } else if (X509_STORE_add_cert(store, certificate.get()) == 1) {
      ++count;
    }
  }
  ERR_clear_error();
  return malformed ? -1 : count;
}

// Read once: there may be hundreds, and a session has several connections.
X509_STORE* system_store() {
  static X509_STORE* const store = [] {
    X509_STORE* const made = X509_STORE_new();
    // One that is malformed is no reason to trust none.
    if (made != nullptr) (void)add_certificates(made, system_texts());
    return made;
  }();
  return store;
}

Status unusable(const std::string& file, const std::string& why) {
  return {StatusCode::kInvalidArgument,
          fmt::format("cannot use the certificates of authorities in {}: {}", file, why)};
}

}  // namespace

void keep_system_authorities() {
  std::string texts;
  add_file(variable_or(X509_get_default_cert_file_env(), X509_get_default_cert_file()), texts);
  std::string_view folders =
      variable_or(X509_get_default_cert_dir_env(), X509_get_default_cert_dir());
  while (!folders.empty()) {
    const size_t end = std::min(folders.find(':'), folders.size());
    if (end != 0) add_folder(std::string(folders.substr(0, end)), texts);
    folders.remove_prefix(std::min(end + 1, folders.size()));
  }
  system_texts() = std::move(texts);
}

Status trust_authorities(ssl_ctx_st* context, const std::string& file) {
  if (file.empty() && system_texts().empty()) {
    return SSL_CTX_set_default_verify_paths(context) == 1
               ? Status()
               : unusable("the system's folders", openssl_error());
  }
  if (file.empty()) {
    X509_STORE* const store = system_store();
    if (store == nullptr) return {StatusCode::kSystem, "TLS: no memory"};
    SSL_CTX_set1_cert_store(context, store);
    return {};
  }
  const auto text = setting_file(file);
  if (!text.ok()) return text.status();
  const int count = add_certificates(SSL_CTX_get_cert_store(context), *text);
  if (count < 0) return unusable(file, "a certificate is malformed");
  return count == 0 ? unusable(file, "there is none") : Status();
}

}  // namespace fargpu::tls
