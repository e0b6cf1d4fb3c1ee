// The one process-wide object of the client library: which state the driver API is in, and the
// session.
//
//   kFresh -> kReady -> kLost | kExiting          a child of fork() after cuInit: kForked, for ever
//
// kFresh: before cuInit (a connection may exist already: cuDriverGetVersion asks the server).
// kReady: cuInit succeeded. kLost: the connection is gone; every call fails at once. kExiting:
// exit() runs. state() is one acquire load; all functions may be called from any thread. The object
// is constant-initialised and never destroyed: calls may come before any constructor and after
// every destructor.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>

#include "common/base/status.h"

namespace fargpu::client {

class Session;

enum class ProcessState : uint8_t { kFresh, kReady, kLost, kExiting, kForked };

class Process {
 public:
  static Process& get();

  ProcessState state() const { return state_.load(std::memory_order_acquire); }
  // Null before the first connection and in a forked child.
  Session* session() const { return session_.load(std::memory_order_acquire); }

  // cuInit: connects when that has not happened. Prints one line when it fails. A failure is not
  // final: the next call tries again, but prints no second line for the same reason.
  CUresult initialise();
  // The server's driver version, connecting if need be; what this library implements when there is
  // no server.
  int driver_version();
  // What a call that needs cuInit returns in this state; CUDA_SUCCESS when it may go on.
  CUresult check() const;

  void session_lost(Session& session, const Status& why);

 private:
  CUresult connect_locked();
  void on_exit();
  void on_fork_child();
  void install_handlers();

  std::atomic<ProcessState> state_{ProcessState::kFresh};
  std::atomic<Session*> session_{nullptr};
  std::atomic<bool> lost_reported_{false};
};

// CUresult for a failed attempt to connect; docs/errors.md lists them.
CUresult connect_error(const Status& status);

}  // namespace fargpu::client
