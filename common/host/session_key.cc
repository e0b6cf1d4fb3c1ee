#include "common/host/session_key.h"

#include <sys/random.h>

#include <cerrno>

namespace fargpu::bootstrap {

Result<SessionKey> make_session_key() {
  SessionKey key;
  if (::getrandom(key.data(), key.size(), 0) != static_cast<ssize_t>(key.size())) {
    return system_error("getrandom", errno);
  }
  return key;
}

bool same_key(const SessionKey& key, std::span<const std::byte> shown) {
  if (shown.size() != key.size()) return false;
  unsigned difference = 0;
  for (size_t i = 0; i < key.size(); ++i) {
    difference |= std::to_integer<unsigned>(shown[i] ^ key[i]);
  }
  return difference == 0;
}

}  // namespace fargpu::bootstrap
