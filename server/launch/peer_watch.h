// PeerWatch: a thread that notices the end of a connection while the worker sits in a call of a
// library of NVIDIA's, which may hang with its GPU and then reads nothing. It watches the daemon's
// socket of every worker, and the client's of a management session.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <thread>

#include "common/base/fd.h"
#include "common/base/status.h"

namespace fargpu::server {

class PeerWatch {
 public:
  // `socket`: a duplicate is watched, for its end only. `gone` is called on the thread, once, if
  // the watch still lives `grace` after the other end was closed.
  static Result<std::unique_ptr<PeerWatch>> start(int socket, std::function<void()> gone,
                                                  std::chrono::milliseconds grace);
  ~PeerWatch();
  PeerWatch(const PeerWatch&) = delete;
  PeerWatch& operator=(const PeerWatch&) = delete;

 private:
  PeerWatch(Fd peer, EventFd end, std::function<void()> gone, std::chrono::milliseconds grace);
  void watch();

  const Fd peer_;
  const EventFd end_;
  const std::function<void()> gone_;
  const std::chrono::milliseconds grace_;
  std::thread thread_;
};

}  // namespace fargpu::server
