// The daemon: listens, checks hellos, places sessions on GPUs, starts a worker for each, and cleans
// up when they end.
//
// One thread, one event loop. It opens no driver and reads nothing of a session but its hello, so
// neither a client nor a GPU can stop it. SIGTERM and SIGINT drain (twice:
// end at once); SIGHUP reads the token file again.
#pragma once

#include <memory>
#include <string>

#include "common/base/status.h"
#include "server/daemon/config.h"
#include "server/launch/launcher.h"

namespace fargpu::server {

class Daemon {
 public:
  // Probes the driver and listens. `worker_program`: path of fargpu-worker. `launcher` starts the
  // daemon's processes, and outlives it. Every error is one line for the operator.
  static Result<std::unique_ptr<Daemon>> start(DaemonConfig config, std::string worker_program,
                                               Launcher& launcher);
  ~Daemon();
  // Until drained.
  void run();

 private:
  struct Impl;
  explicit Daemon(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace fargpu::server
