// The one process-wide object of the client library: the state of the driver API, the sessions,
// and the tables that they share.
//
//   kFresh -> kReady -> kLost | kExiting       a child of fork() after cuInit: kForked, to its end
//
// kFresh: before cuInit (a connection may exist already: cuDriverGetVersion asks the server).
// kReady: cuInit succeeded. kLost: all connections are gone; every call fails at once. When one of
// several is, its contexts fail. kExiting: exit() runs. state() is one acquire load; all functions
// may be called from any thread. The object is constant-initialised and never destroyed: calls may
// come before any constructor and after every destructor.
#pragma once

#include <cuda.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

#include "common/base/status.h"

namespace fargpu::client {

struct Device;
class Session;
struct Tables;

enum class ProcessState : uint8_t { kFresh, kReady, kLost, kExiting, kForked };

class Process {
 public:
  static constexpr unsigned kMaxSessions = 16;
  static Process& get() { return the_process; }

  ProcessState state() const { return state_.load(std::memory_order_acquire); }
  // Null before the first connection and in a forked child.
  Tables* tables() const { return tables_.load(std::memory_order_acquire); }
  // Null: there is no session with this number. They count from 0.
  Session* session(unsigned number) const {
    return number < kMaxSessions ? sessions_[number].load(std::memory_order_acquire) : nullptr;
  }
  template <typename Visit>
  void for_each_session(Visit&& visit) const {
    for (unsigned i = 0; Session* each = session(i); ++i) visit(*each);
  }
  // The session that has the visible device `ordinal`; null: there is no such device.
  Session* session_of_device(int ordinal) const;
  const Device* device(int ordinal) const;
  int device_count() const;

  // cuInit: connects when that has not happened. Prints one line when it fails. A failure is not
  // final: the next call tries again, but prints no second line for the same reason.
  CUresult initialise();
  // The oldest driver's version of all servers, connecting if need be; the version that this
  // library implements when there is no server.
  int driver_version();
  // The result of a call that needs cuInit in this state; CUDA_SUCCESS when it may go on.
  CUresult check() const {
    const ProcessState now = state();
    return now == ProcessState::kReady ? CUDA_SUCCESS : result_in(now);
  }

  // Publishes a session, which then lives as long as the process; the first one also publishes the
  // tables. Its number must be the count of sessions so far. One thread at a time.
  void add(std::unique_ptr<Session> session);
  // The session's calls fail from now on. False: nobody needs to be told.
  bool lose(Session& session);
  // Says so on stderr, after lose(). May take half a second.
  void tell_lost(const Session& session, const Status& why);

 private:
  static Process the_process;

  static CUresult result_in(ProcessState state);
  bool has_session_left() const;
  CUresult connect_locked();
  void drop_sessions_locked();
  void on_exit();
  void on_fork_child();
  void install_handlers();

  std::atomic<ProcessState> state_{ProcessState::kFresh};
  std::atomic<Tables*> tables_{nullptr};
  std::array<std::atomic<Session*>, kMaxSessions> sessions_{};  // without gaps
};

// CUresult for a failed attempt to connect; docs/errors.md lists them.
CUresult connect_error(const Status& status);

}  // namespace fargpu::client
