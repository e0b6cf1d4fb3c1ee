// From the stream socket of the hello to the session's transport: the conversation of client and
// worker right after the Welcome.
//
// The client leads: it goes through what it wishes and the worker offers, best first; a failure
// costs a line in the log, and the next transport is tried; in the end there is always the socket
// itself (unless the wish is forced). One thread at each end; ends within the deadline.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/base/fd.h"
#include "common/bootstrap/further_connections.h"
#include "common/bootstrap/transport_choice.h"
#include "common/transport/tcp/stream.h"
#include "common/transport/transport.h"

namespace fargpu::bootstrap {

// Time limit of one step (connecting, exchanging memory).
inline constexpr auto kStepTime = std::chrono::seconds(5);

struct Upgraded {
  std::unique_ptr<transport::Transport> transport;
  std::unique_ptr<transport::Transport> bulk;  // the bulk connection; null: there is none
  std::string reason;                          // why this one: "both ends are on one host"
  std::vector<std::string> failures;           // failed attempts: "rdma: ..."; worth a warning
  // "tcp 10.0.0.5:14900 with a bulk connection": for logs, doctor and ps.
  std::string describe() const;
};

// One of the wished upgrades as the worker sees it.
struct UpgradeOffer {
  Upgrade upgrade = Upgrade::kShm;
  std::string why_not;  // empty: it can be tried
};

// Those of a Welcome; names that this version does not know are left out. kProtocol: malformed.
Result<std::vector<UpgradeOffer>> read_offers(std::span<const std::byte> welcome_body);

// The client's half. `offers` and `more`: from the Welcome; nothing is said when both are empty.
// kInvalidArgument: the wish was forced and cannot be had, with the reason.
Result<Upgraded> upgrade_as_client(Fd socket, const TransportWish& wish,
                                   const std::vector<UpgradeOffer>& offers,
                                   const transport::StreamOptions& options,
                                   transport::Deadline deadline,
                                   const FurtherConnections& more = {});

// The transports of a client's wish that a worker can offer.
struct WorkerRules {
  std::vector<Upgrade> allowed{Upgrade::kShm, Upgrade::kRdma};  // by the server's configuration
  bool same_host = false;
  bool encrypted = false;  // the socket is the plain end of a TLS connection
};
std::vector<UpgradeOffer> make_offers(int socket, const std::vector<Upgrade>& wished,
                                      const WorkerRules& rules);

// The worker's half, after a Welcome that brought these offers; returns at once when there is
// nothing to say. kProtocol: the client broke the rules; kLost: it went away.
Result<Upgraded> upgrade_as_worker(Fd socket, const std::vector<UpgradeOffer>& offers,
                                   const transport::StreamOptions& options,
                                   transport::Deadline deadline,
                                   const FurtherConnections& more = {});

}  // namespace fargpu::bootstrap
