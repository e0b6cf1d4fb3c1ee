// The welcome: the snapshot of this worker's devices that the client answers from.
#pragma once

#include "common/base/status.h"
#include "common/transport/transport.h"
#include "server/driver_library.h"
#include "server/worker_options.h"

namespace fargpu::server {

// Asks the driver and answers the hello. kDriver: the driver does not even tell a device's name.
Status send_welcome(transport::Transport& transport, const DriverLibrary& driver, const WorkerOptions& options);

// "GPU-01234567-89ab-cdef-0123-456789abcdef"
std::string uuid_text(const unsigned char (&bytes)[16]);

}  // namespace fargpu::server
