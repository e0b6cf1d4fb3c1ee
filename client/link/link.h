// Link: the connection to a worker, with data about its server. Messages take one
// (generated/client/wire); so a room that sends needs no session. A Session is one
// (client/process/session.h).
//
// Any thread, but set_channel(): before and after everything else.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "common/base/status.h"
#include "common/rpc/channel.h"
#include "common/wire/opcode_set.h"

namespace fargpu::client {

class Link {
 public:
  struct Server {
    std::string version;    // its release
    wire::OpcodeSet known;  // opcodes that it has
  };
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  rpc::Channel& channel() { return *channel_; }
  // Whether the server has a message for the call.
  bool knows(uint16_t opcode) const { return server_.known.contains(opcode); }
  // The refusal of a call that it has none for: logs `name` with the server's version once.
  CUresult unknown(const char* name) const;
  // Host memory that the worker shares, or accesses by its adapter, if the settings allow that;
  // nullptr where the transport has no such way.
  transport::DescriptorPassing* descriptor_passing() { return descriptor_passing_; }
  transport::RemoteMemory* remote_memory() { return remote_memory_; }

 protected:
  Link(Server server, bool zero_copy) : server_(std::move(server)), zero_copy_(zero_copy) {}
  ~Link() = default;
  void set_channel(std::unique_ptr<rpc::Channel> channel);

 private:
  const Server server_;
  const bool zero_copy_;
  std::unique_ptr<rpc::Channel> channel_;
  transport::DescriptorPassing* descriptor_passing_ = nullptr;
  transport::RemoteMemory* remote_memory_ = nullptr;
};

// exit() runs. Calls that fail from now on say so.
inline constinit std::atomic<bool> process_exits{false};

// Session-lost and protocol failures as a CUresult; logs once. CUDA_ERROR_DEVICE_UNAVAILABLE for
// kLost and kTimeout.
CUresult from_status(const Status& status);

// Whether nothing was said of `name` before, in this process.
bool first_time(const char* name);

}  // namespace fargpu::client
