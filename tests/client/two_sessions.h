// A process with two sessions, each with a scripted worker behind a loopback transport. Calls are
// made through the exported functions. Each test is a process of its own, because the client
// library's state is the process's.
#pragma once

#include <cuda.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "client/process/process.h"
#include "client/process/session.h"
#include "tests/transport/scripted_server.h"

namespace fargpu::client {

// Answers every call with success, but those with the failing opcode.
class FakeWorker {
 public:
  // `first`: the device address that it allocates.
  FakeWorker(std::unique_ptr<transport::Transport> transport, CUdeviceptr first);
  // The contexts of the calls with this opcode, in order.
  std::vector<uint16_t> contexts_of(uint16_t opcode) const;
  void die() { server_.stop(); }
  // Called for each call with this opcode from now on, on the worker's thread, before the answer.
  using Handler = std::function<void(rpc::Responder&, const test::ReceivedFrame&)>;
  void on(uint16_t opcode, Handler handler) {
    const std::lock_guard lock(mutex_);
    handlers_[opcode] = std::move(handler);
  }
  // Answers what it has left unanswered.
  void answer_the_silent();

  std::atomic<uint16_t> failing_opcode{0};
  std::atomic<uint64_t> graph_value{0x7f0000001000};  // of executable graphs that kernels launch
  std::atomic<uint16_t> silent_opcode{0};             // not answered
  std::atomic<CUdeviceptr> memory;
  std::atomic<CUdeviceptr> step{0};  // from one allocation to the next

 private:
  Status answer(rpc::Responder& responder, const wire::FrameHeader& header);

  mutable std::mutex mutex_;
  std::vector<std::pair<uint16_t, uint16_t>> calls_;
  std::vector<wire::FrameHeader> silent_;
  rpc::Responder* responder_ = nullptr;
  std::map<uint16_t, Handler> handlers_;
  test::ScriptedServer server_;
};

inline constexpr CUdeviceptr kMemory[] = {0x6000'0000'0000, 0x6100'0000'0000};

// Two servers with a GPU each: device 0 is a's, device 1 is b's.
struct Program {
  Program();

  // What the servers do not know; set before.
  static inline uint16_t unknown = 0;
  // The servers share memory with this process; set before.
  static inline bool same_host = false;

  static FakeWorker* add(Tables& tables, unsigned number);

  FakeWorker *a, *b;
  CUcontext contexts[2]{};
  CUstream streams[2]{};
  CUevent events[2]{};
};

// Runs the test in a process of its own.
void in_process(const std::function<void(Program&)>& body);
// Whether `holds()` becomes true in time.
bool soon(const std::function<bool()>& holds);

// An object as a call makes it, when the worker has answered.
uint64_t made(Session& session, rpc::HandleKind kind, uint64_t parent = 0);
bool lives(const Session& session, uint64_t id);

}  // namespace fargpu::client
