// When settings count, and where relative paths in them begin: FARGPU_* have the values of the
// moment when a client library is loaded, with the working directory of that moment. CUDA's own
// variables keep the driver's time, which is its first call.
#pragma once

#include "common/base/kept_environment.h"
#include "common/base/status.h"

namespace fargpu::client {

// The variables with absolute paths in the place of relative ones: FARGPU_TOKEN_FILE,
// FARGPU_TLS_CA, FARGPU_LOG_FILE, FARGPU_TRACE, FARGPU_REPORT, and the sockets of FARGPU_SERVER. A
// path that would be too long for a socket's address stays.
OwnVariables with_absolute_paths(OwnVariables variables);

// Puts them into the environment, for a program that this process becomes or starts.
Status export_absolute_paths();

// Called when a library is loaded, before the program's main() or within its dlopen(). Read now,
// since the program may give up the right to read them: the token and the certificates of
// authorities, if they are ordinary files, and the identity of this host. A failure is left to the
// attempt to connect, which reports it.
void take_environment();

}  // namespace fargpu::client
