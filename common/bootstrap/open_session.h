// One function for all clients of a fargpud: the client library's sessions, `fargpu`'s probes, and
// the jobs it opens. Connect, greet, read the answer or the refusal; a session also agrees on its
// transport.
//
// One thread; everything ends at its deadline. The Status' code is the kind of failure: those of
// connect_server() and greet(). kProtocol, kLost and kTimeout of a server that took the connection
// say that it does not answer like a fargpud.
#pragma once

#include <chrono>

#include "common/base/fd.h"
#include "common/bootstrap/connect.h"
#include "common/bootstrap/connections_wish.h"
#include "common/bootstrap/greeting.h"
#include "common/bootstrap/transport_choice.h"
#include "common/bootstrap/upgrade.h"
#include "common/transport/frame_io.h"
#include "common/wire/opcode_set.h"

namespace fargpu::bootstrap {

struct Patience {
  transport::Deadline connect;  // also to send the greeting
  transport::Deadline answer;   // a session's comes when its worker has started its driver
  transport::Deadline upgrade = transport::kNoDeadline;
};

// What was asked, and the connection that the answer came on.
struct Conversation {
  Fd socket;
  transport::OwnedFrame answer;
};
Result<Conversation> ask(const ServerAddress& server, const Greeting& greeting,
                         const Patience& patience);

// Why a session has ended, by the word of its server's daemon. `greeting`: the token and the
// session. Asks again while the session lives, in the daemon's eyes. Errors of ask(); kNotFound:
// the daemon does not know it; kTimeout: it lives.
Result<std::string> ask_for_end(const ServerAddress& server, const Greeting& greeting,
                                transport::Deadline deadline);

// How a session's bytes shall travel.
struct LinkWish {
  TransportWish transport;
  ConnectionsWish connections;
  std::chrono::microseconds spin{0};
};
struct OpenedSession {
  transport::OwnedFrame welcome;
  wire::OpcodeSet known;  // what the server knows
  Upgraded link;
};
// `greeting`: a hello, without the wishes for the link.
Result<OpenedSession> open_session(const ServerAddress& server, Greeting greeting,
                                   const LinkWish& wish, const Patience& patience);

}  // namespace fargpu::bootstrap
