// The connection that keeps an opened job: it says nothing after its first frame, and its end is
// the end of the program that was started with it. On the daemon's event loop.
//
// Keeps itself alive until the connection ends, or close().
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "common/base/fd.h"

namespace fargpu::server {

class JobConnection : public std::enable_shared_from_this<JobConnection> {
 public:
  // `on_end`: the connection has ended, or said something; called once, unless close() came first.
  JobConnection(boost::asio::io_context& loop, Fd socket, std::function<void()> on_end);
  // Sends the answer to OpenJob, then waits for the end.
  void start(std::vector<std::byte> answer);
  void close();

 private:
  void wait_for_end();
  void end();

  boost::asio::posix::stream_descriptor socket_;
  std::function<void()> on_end_;
  std::vector<std::byte> answer_;
  char unexpected_[1];
};

// A TCP connection whose other host has gone without a word ends by itself within about this time
// (0: a minute, unless something was to be sent). Other sockets stay as they are.
void notice_dead_peers(int socket, std::chrono::milliseconds within);

}  // namespace fargpu::server
