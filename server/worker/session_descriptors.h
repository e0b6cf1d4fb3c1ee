// The descriptors of a session in a worker that was started ahead, which gets them with Start
// instead of inheriting them: their numbers are kept, so that the driver, which is opened before,
// has none of them. One thread.
#pragma once

#include <vector>

#include "common/base/fd.h"
#include "common/base/status.h"

namespace fargpu::server {

// Before the driver is opened. Each number (kSessionFds) is something that holds nothing.
Status reserve_session_descriptors();
// Moves the descriptors of Start to their numbers. Unused numbers become free again. kProtocol: it
// is another number of descriptors than the session has.
Status place_session_descriptors(std::vector<Fd> received, bool may_have_further_connections);

}  // namespace fargpu::server
