// RemoteHost: pinned memory of the application that is registered with the client's adapter (rdma),
// so that the worker fetches and delivers its bytes by itself, without a copy by this CPU.
//
// Registered when it is pinned, until it is freed or unregistered. Where the transport has no
// remote memory, or the worker cannot take part, or the limit of locked memory is reached, memory
// is simply not known here, and its bytes travel in frames. Any thread.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "common/transport/remote_memory.h"

namespace fargpu::client {

class Session;
struct Box;
struct Side;

class RemoteHost {
 public:
  // Smaller copies travel in frames: one message instead of two.
  static constexpr size_t kFrom = (64u << 10) + 1;
  // What the worker takes in one call.
  static constexpr size_t kPieceBytes = 16u << 20;

  // Registers the memory if that is possible. Needs a current context.
  void add(Session& session, uint64_t address, size_t bytes);
  // Waits until the worker has executed what was sent, then ends the registration; nothing for
  // memory that has none.
  CUresult remove(Session& session, uint64_t address);

  struct Place {
    transport::RemoteKey key;
    uint64_t offset = 0;  // of the address asked for
  };
  // nullopt: not all of it is registered.
  std::optional<Place> find(uint64_t address, uint64_t bytes) const;

 private:
  // Asks the worker, once.
  bool possible(Session& session);

  mutable std::mutex mutex_;
  std::map<uint64_t, std::unique_ptr<transport::RegisteredMemory>>
      registered_;                // by address; guarded by mutex_
  std::optional<bool> possible_;  // guarded by mutex_
};

// The place of a host side that this copy should go to or come from by remote access; nullopt: it
// travels in frames.
std::optional<RemoteHost::Place> remote_place(Session& session, const Side& host, const Box& box);
// The worker has the bytes before it executes the next call, but perhaps not yet when this returns.
CUresult remote_to_device(Session& session, const RemoteHost::Place& place, const Side& dst,
                          const Side& src, const Box& box, CUstream stream);
// The bytes are there when this returns.
CUresult remote_to_host(Session& session, const RemoteHost::Place& place, const Side& dst,
                        const Side& src, const Box& box, CUstream stream);

}  // namespace fargpu::client
