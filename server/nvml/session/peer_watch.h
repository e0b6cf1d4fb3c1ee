// PeerWatch: a thread that notices that the client of a management session is gone while its worker
// sits in a call of the server's NVML. NVIDIA's library may hang with its GPU; the worker then
// reads nothing and would keep its place among the management sessions.
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
  // What the session gets to end by itself once its client is gone.
  static constexpr std::chrono::milliseconds kGrace{3000};

  // `socket`: the client's; a duplicate is watched. `stuck` is called on the thread, once, if the
  // watch still lives kGrace after the client has gone.
  static Result<std::unique_ptr<PeerWatch>> start(int socket, std::function<void()> stuck,
                                                  std::chrono::milliseconds grace = kGrace);
  ~PeerWatch();
  PeerWatch(const PeerWatch&) = delete;
  PeerWatch& operator=(const PeerWatch&) = delete;

 private:
  PeerWatch(Fd peer, EventFd end, std::function<void()> stuck, std::chrono::milliseconds grace);
  void watch();

  const Fd peer_;
  const EventFd end_;
  const std::function<void()> stuck_;
  const std::chrono::milliseconds grace_;
  std::thread thread_;
};

}  // namespace fargpu::server
