// Passes further connections of a session from the daemon, which reads their Join, to the worker,
// over a pair of sockets that the worker inherits.
//
// The first message is the session's key; then one message for each connection: its index, with the
// connection attached. Each end is used by one thread.
#pragma once

#include <map>
#include <utility>

#include "common/base/fd.h"
#include "common/base/status.h"
#include "common/bootstrap/further_connections.h"
#include "common/host/session_key.h"
#include "common/transport/transport.h"

namespace fargpu::server {

// The refusal of every wrong join, so that it tells nothing of what there is.
Status no_such_join();

// The daemon's end.
class ConnectionJoiner {
 public:
  ConnectionJoiner() = default;
  // At most `most` connections altogether. The second one is for the worker to inherit.
  static Result<std::pair<ConnectionJoiner, Fd>> create(uint16_t most);
  uint16_t most() const { return most_; }
  // no_such_join(): the key is wrong, or the index is taken or out of range.
  Status check(std::span<const std::byte> key, uint16_t index) const;
  // Passes it on. kLost: the worker takes no connections any more.
  Status pass(int connection, uint16_t index);

 private:
  Fd socket_;
  bootstrap::SessionKey key_{};
  uint16_t most_ = 1;
  uint32_t joined_ = 1;  // by index
};

// The worker's end, until its transport is chosen.
class JoinedConnections {
 public:
  static Result<JoinedConnections> adopt(Fd socket);
  const bootstrap::SessionKey& key() const { return key_; }
  // The connection with that index; each once. kTimeout: it has not come.
  Result<Fd> take(size_t index, transport::Deadline deadline);

 private:
  Fd socket_;
  bootstrap::SessionKey key_{};
  std::map<size_t, Fd> waiting_;  // received and not taken yet
};

}  // namespace fargpu::server
