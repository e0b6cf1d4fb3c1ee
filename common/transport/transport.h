// The transport contract: moves frames between two ends of one session, in order, each exactly
// once.
//
// A Transport is made connected. Sending (reserve, commit, flush) is serialised by the caller (the
// channel's send lock); receiving (receive) belongs to one thread at a time; sending and receiving
// may run at once; wake() and close() may be called from any thread. Every wait ends: in data, in
// the deadline, or in kLost. After kLost every call returns kLost. All implementations pass one
// test suite (tests/transport); capability flags are checked there against behaviour.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "common/base/status.h"
#include "common/wire/frame.h"

namespace fargpu::transport {

class DescriptorPassing;
class RemoteMemory;

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;
inline constexpr Deadline kNoDeadline = Deadline::max();

struct Capabilities {
  const char* name = "";       // "loopback", "tcp", "shm", "rdma"
  size_t max_slot_bytes = 0;   // largest reserve(); at least header + FrameLimits::max_body_bytes
  bool same_host = false;      // both ends share memory: descriptor_passing() is there
  bool remote_memory = false;  // one-sided access to registered memory: remote_memory() is there
  // A peer that is awake sees frames at commit(); flush() only wakes a peer that sleeps.
  bool visible_at_commit = false;
  // set_aside() works: another thread than the sender's can hand frames to the system.
  bool sends_aside = false;
  // Bytes leave this machine (or an emulator pretends so): it is worth some work to send fewer.
  bool crosses_network = false;
  bool survives_peer_death = true;  // a dead peer is noticed (kLost) without a keepalive
};

struct Statistics {
  uint64_t frames_sent = 0, frames_received = 0, bytes_sent = 0, bytes_received = 0,
           system_calls = 0;
};

// Receives frames. Called on the thread inside receive(). A Status that is not ok closes the
// transport.
class FrameHandler {
 public:
  virtual ~FrameHandler() = default;
  // The memory for the bulk bytes of this frame: exactly header.bulk_bytes long, valid until
  // on_frame returns. Called only when bulk_bytes > 0, after check_header has accepted the header.
  // `body` is valid during the call.
  virtual Result<std::span<std::byte>> bulk_buffer(const wire::FrameHeader& header,
                                                   std::span<const std::byte> body) = 0;
  // One whole frame; `body` and `bulk` are valid during the call only.
  virtual Status on_frame(const wire::FrameHeader& header, std::span<const std::byte> body,
                          std::span<std::byte> bulk) = 0;
};

// A word in shared memory that becomes `value` when something has happened. The writer need not be
// a CPU.
struct WatchedWord {
  const std::atomic<uint32_t>* word = nullptr;
  uint32_t value = 0;
  bool reached() const { return word->load(std::memory_order_acquire) == value; }
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual Capabilities capabilities() const = 0;

  // A slot of exactly `bytes` (8-byte aligned, contents undefined) for header + body. Waits for
  // room until the deadline. At most one slot is reserved at a time; a slot never committed is
  // given back by the next reserve().
  virtual Result<std::span<std::byte>> reserve(size_t bytes, Deadline deadline) = 0;
  // The first `bytes` of the reserved slot become a frame, followed by the `bulk` pieces (together
  // header.bulk_bytes). When this returns, the bulk bytes have been taken and their memory may
  // change. Bulk is not copied by the CPU where the transport can send from the caller's memory
  // (small bulk may be copied, which batches better). The frame may stay buffered until flush(), or
  // leave earlier. A frame below 2 KiB without bulk never waits here: reserve() did. A deadline
  // that passes while bulk is on its way ends the session: half a frame cannot be taken back.
  virtual Status commit(size_t bytes, std::span<const std::span<const std::byte>> bulk,
                        Deadline deadline) = 0;
  // reserve() and commit() in one step, for a frame below 2 KiB without bulk that is there already.
  // Never waits: kTimeout means that there is no room now, and that nothing was sent.
  virtual Status post(const wire::FrameHeader& header, std::span<const std::byte> body);
  // Hands everything that was committed to the system or to the peer. With a deadline in the past
  // it hands over as much as possible without waiting; kTimeout then means that bytes are left for
  // a later flush. Nothing is lost.
  virtual Status flush(Deadline deadline) = 0;
  // Deferred sending, with capabilities().sends_aside: another thread makes the system call for the
  // threads that call reserve, commit and flush. set_aside() defers the committed frames; it is
  // called like flush(). False: not possible now. send_aside() hands deferred frames to the system
  // without waiting, and may run at the same time as all other calls; kTimeout: frames are left, so
  // call it again. Deferred frames are sent before frames that are committed later.
  virtual bool set_aside() { return false; }
  virtual Status send_aside() { return Status(); }
  // With capabilities().visible_at_commit: true when the peer is awake, so that it sees committed
  // frames without a flush. Called like flush().
  virtual bool seen_without_flush() { return false; }
  // Takes up to `bytes` more of the memory that frames pass through from the system, so that no
  // frame is the first to touch a page. False: nothing is left to take. For one thread, at the same
  // time as other calls.
  virtual bool take_memory([[maybe_unused]] size_t bytes) { return false; }

  // Waits until at least one whole frame was delivered to `handler`, wake() was called, or the
  // deadline passed; delivers every frame that is there. Returns how many. A deadline in the past
  // polls.
  virtual Result<size_t> receive(FrameHandler& handler, Deadline deadline) = 0;
  // Makes the current or next receive() return.
  virtual void wake() = 0;
  // From now on receive() also returns when it sees that the word has been written: looked at while
  // it spins, not while it sleeps. Null: no word any more. Called like receive(). Transports that
  // share no memory with the peer ignore it.
  virtual void watch_word(const WatchedWord* word) { (void)word; }
  // Features of some transports; null if missing. They live as long as the transport.
  virtual DescriptorPassing* descriptor_passing() { return nullptr; }  // capabilities().same_host
  virtual RemoteMemory* remote_memory() { return nullptr; }  // capabilities().remote_memory

  // A descriptor that polls readable when receive() may have something to do; -1: there is none. A
  // thread that sleeps on it outside receive() calls arm() before each sleep.
  virtual int poll_descriptor() const = 0;
  // Prepares a sleep on poll_descriptor(), for transports whose peer must be asked to signal.
  // Called like receive(); holds until the next receive(). False: receive() has something to do
  // already.
  virtual bool arm() { return true; }
  // A socket, of every transport, that ends when the peer does; -1: there is none. To be polled for
  // POLLRDHUP, never to be read.
  virtual int peer_socket() const { return -1; }

  // Ends the session at both sides. Idempotent.
  virtual void close() = 0;
  // For a forked child, which shares the connection with its parent: closes this process's
  // descriptors without telling the peer. Afterwards every call returns kLost.
  virtual void abandon_after_fork() = 0;
  virtual Statistics statistics() const = 0;
  // "tcp 127.0.0.1:14900": for logs, doctor and ps.
  virtual std::string describe() const = 0;
};

}  // namespace fargpu::transport
