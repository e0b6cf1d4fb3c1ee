// The daemon's listening sockets: TCP endpoints and unix sockets. Owns them; removes the unix
// sockets' files at the end.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/fd.h"
#include "common/base/status.h"

namespace boost::asio {
class io_context;
}

namespace fargpu::server {

class Listeners {
 public:
  // A connection and the name of its other end.
  using OnConnection = std::function<void(Fd socket, std::string peer)>;
  // `make_room`: the process has no descriptor left; whether one has become free.
  Listeners(boost::asio::io_context& loop, OnConnection on_connection,
            std::function<bool()> make_room);
  ~Listeners();

  // "host:port" (port 0: the system chooses) or a path, whose socket gets these permissions. An
  // address in use is kSystem. The text names the address.
  Status add(const std::string& where, mode_t socket_mode = 0600);
  // Writes the bound TCP ports to a file, one per line, in the order of add(). It appears whole:
  // a process that waits for the file may read it at once. kInvalidArgument: it cannot be written.
  Status write_ports(const std::string& path) const;
  void stop();

 private:
  struct Listener;
  void wait(const std::shared_ptr<Listener>& listener);
  Status accept_some(Listener& listener);
  boost::asio::io_context& loop_;
  const OnConnection on_connection_;
  const std::function<bool()> make_room_;
  std::vector<std::shared_ptr<Listener>> listeners_;
};

}  // namespace fargpu::server
