// The client's end of TLS: a plain socket whose other end is served by a thread of this process,
// which encrypts.
//
// Any thread. A forked child does not have that thread: it closes the tunnels' own descriptors, so
// that the connection ends with the parent.
#pragma once

#include <string>

#include "common/base/fd.h"
#include "common/base/status.h"
#include "common/transport/transport.h"

namespace fargpu::tls {

// After the handshake on a connected TCP socket, which is verified as TlsConnection::connect says.
// The tunnel ends when either end is closed.
Result<Fd> open_tunnel(Fd socket, const std::string& host, const std::string& authority_file,
                       transport::Deadline deadline);

}  // namespace fargpu::tls
