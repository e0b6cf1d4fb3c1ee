// The welcome: the snapshot of this worker's devices that the client answers from.
#pragma once

#include <vector>

#include "common/base/status.h"
#include "common/bootstrap/upgrade.h"
#include "server/handover/worker_options.h"
#include "server/worker/driver_library.h"

namespace fargpu::server {

// Queries the driver and answers the hello on the session's socket. `key`: of the session, sent if
// it may have further connections. kDriver: the driver cannot describe a device.
Status send_welcome(int socket, const DriverLibrary& driver, const WorkerOptions& options,
                    const std::vector<bootstrap::UpgradeOffer>& offers,
                    const bootstrap::SessionKey& key);

// "GPU-01234567-89ab-cdef-0123-456789abcdef"
std::string uuid_text(const unsigned char (&bytes)[16]);

}  // namespace fargpu::server
