// The authorities that a TLS client trusts.
#pragma once

#include <string>

#include "common/base/status.h"

struct ssl_ctx_st;

namespace fargpu::tls {

// Reads the certificates of the system's authorities now, where OpenSSL looks for them: in the file
// and the folders of SSL_CERT_FILE and SSL_CERT_DIR, or its own. From now on they stand for the
// system's, if there are any. While a library is loaded: no other thread uses TLS then.
void keep_system_authorities();

// Makes a context trust the authorities of this PEM file, which is a setting_file(), or the
// system's when it is empty. kInvalidArgument, with the file and its fault. Any thread.
Status trust_authorities(ssl_ctx_st* context, const std::string& file);

}  // namespace fargpu::tls
