// What became of a session that is lost, by the word of its server.
#pragma once

#include <string>

#include "client/process/session.h"
#include "common/base/status.h"

namespace fargpu::client {

// `why` it is lost here, and what the server's daemon says of it, for a message. Asks for half a
// second at most. Any thread, with any stack.
std::string describe_loss(const Session& session, const Status& why);

}  // namespace fargpu::client
