// TLS connections for tests: certificates made by the openssl program, and a transport at each
// plain end.
#pragma once

#include <string>

#include "tests/transport/transport_pairs.h"

namespace fargpu::test {

// In a folder of this process, made once. Every server certificate is for localhost and 127.0.0.1
// but `elsewhere`, which is for another host.
struct Certificates {
  static const Certificates& get();
  std::string folder;
  std::string file(const std::string& name) const { return folder + "/" + name; }
  std::string authority() const { return file("ca.pem"); }
  std::string other_authority() const { return file("other.pem"); }
  std::string server() const { return file("server.pem"); }
  std::string server_key() const { return file("server.key"); }
  std::string elsewhere() const { return file("elsewhere.pem"); }
  std::string elsewhere_key() const { return file("elsewhere.key"); }
  std::string expired() const { return file("expired.pem"); }
  std::string expired_key() const { return file("expired.key"); }
};

TransportPair make_tls_pair(transport::StreamOptions options);

}  // namespace fargpu::test
