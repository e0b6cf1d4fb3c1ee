#pragma once

#include <string>

namespace fargpu::tls {

// The oldest error of this thread, which names the cause; the others go.
std::string openssl_error();

}  // namespace fargpu::tls
