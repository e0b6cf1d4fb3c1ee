// One-sided access to memory that the peer has registered, without the peer's CPU (rdma).
//
// One end registers memory and sends its RemoteKey to the other. The other may then read or write
// exactly that range, until the registration or the session ends. Keys from a peer are untrusted: a
// wrong key or range fails at the owner's adapter and ends the session of the end that used it.
// Registration, read_now() and write_now(): any thread. Other transfers: one thread, the one that
// receives.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "common/base/status.h"

namespace fargpu::transport {

// Memory of the peer.
struct RemoteKey {
  uint64_t address = 0;
  uint64_t bytes = 0;
  uint32_t key = 0;
};

enum class RemoteAccess : uint8_t {
  kNone,  // only for transfers that this end starts
  kRead,
  kReadWrite,
};

// Memory of this process that the adapter may use. The destructor deregisters it; it must run
// before the memory is freed, and may run after the transport is destroyed.
class RegisteredMemory {
 public:
  virtual ~RegisteredMemory() = default;
  virtual std::span<std::byte> memory() const = 0;
  virtual RemoteKey key() const = 0;  // for the peer; all zero with RemoteAccess::kNone
};

class RemoteMemory {
 public:
  using Deadline = std::chrono::steady_clock::time_point;
  using Ticket = uint64_t;

  virtual ~RemoteMemory() = default;
  // kNoCapacity: the limit of locked memory or of the adapter is reached (the text says which limit
  // to raise); kUnsupported: this memory cannot be registered.
  virtual Result<std::unique_ptr<RegisteredMemory>> register_memory(std::span<std::byte> memory,
                                                                    RemoteAccess access) = 0;
  // The same for memory behind a dma-buf, such as a GPU's: `memory` is where it is in this
  // process's address space, which the CPU may not be able to read. kUnsupported where the adapter
  // or the kernel has no dma-buf support.
  virtual Result<std::unique_ptr<RegisteredMemory>> register_dmabuf(int dmabuf, uint64_t offset,
                                                                    std::span<std::byte> memory,
                                                                    RemoteAccess access) = 0;
  // Start to move bytes between the peer's memory at from.address + from_offset (at to.address +
  // to_offset) and registered memory of ours. The range is checked against the key here;
  // kInvalidArgument when it is outside. Many may be under way; they wait for room when too many
  // are. Writes are seen by the peer before every frame committed later.
  virtual Result<Ticket> read(const RemoteKey& from, uint64_t from_offset,
                              const RegisteredMemory& to, std::span<std::byte> destination) = 0;
  virtual Result<Ticket> write(const RegisteredMemory& from, std::span<const std::byte> source,
                               const RemoteKey& to, uint64_t to_offset) = 0;
  // The same, complete on return. For a thread with nothing else to do, such as a host function in
  // a stream: it polls and cannot be woken. Few transfers are under way at a time, so that frames
  // need not wait long. A deadline that passes ends the session.
  virtual Status read_now(const RemoteKey& from, uint64_t from_offset, const RegisteredMemory& to,
                          std::span<std::byte> destination, Deadline deadline) = 0;
  virtual Status write_now(const RegisteredMemory& from, std::span<const std::byte> source,
                           const RemoteKey& to, uint64_t to_offset, Deadline deadline) = 0;
  // Everything up to this ticket is complete. A deadline in the past polls (kTimeout: not yet).
  // kLost: the transfer failed, and with it the session.
  virtual Status wait(Ticket ticket, Deadline deadline) = 0;
  // The adapter and port, for `fargpu doctor`: "rxe0 port 1, GID 1 ::ffff:10.0.0.1 (RoCE v2), path
  // MTU 4096".
  virtual std::string route() const = 0;
};

}  // namespace fargpu::transport
