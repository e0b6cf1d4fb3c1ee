// The rule of a copy between host memory and device memory (docs/adr/0068-the-rule-of-one-copy.md):
// by which route its bytes travel, which later work waits for it, how it may hold its stream, and
// when its call returns.
//
// plan() is a pure function of what the copy is, what may observe it, and what is possible here.
// tests/client/copy_plan_test.cc is its table. Any thread.
#pragma once

#include <cstdint>

#include "client/stream/observers.h"
#include "common/copy/copy.h"
#include "common/copy/limits.h"

namespace fargpu::client {

enum class CopyRoute : uint8_t {
  kMirror,   // on the device, from or to the mirror that the host end has in the worker
  kShared,   // one copy of the driver, from or to memory that both ends have (shm)
  kFetch,    // to the device, in stream order: the worker asks for the bytes
  kDeliver,  // to the host, in stream order: the bytes come when the stream has passed the copy
  kRemote,   // the adapter reads or writes pinned memory by itself (rdma)
  kStaged,   // through slots of a staging ring (shm, rdma)
  kFrames,   // in frames of the call
};

enum class HostMemory : uint8_t {
  kPageable,
  kCutOff,  // begins in pinned or registered memory and runs out of it
  kPinned,  // pinned or registered
};

// What is copied.
struct CopyFacts {
  bool to_device = false;
  bool waits = false;      // the call is a synchronous one
  bool legacy = false;     // in the legacy stream
  bool own_work = false;   // fargpu copies by itself, in a stream of its own
  bool takes_now = false;  // the call takes the source's bytes (SRC_ACCESS_ORDER_DURING_API_CALL)
  bool is_first = false;   // all in its stream is known to be done
  uint64_t bytes = 0;
  HostMemory host = HostMemory::kPageable;
  bool shared = false;     // the worker has the host end at the same addresses, in a driver's shape
  bool mirrored = false;   // it has a mirror at the same addresses, in a driver's shape
  bool reachable = false;  // device code can reach its bytes (Pages::touches); asynchronous ones
  bool registered = false;   // the application's own mapping, which other processes may have, too
  bool overwritten = false;  // a delivery under way will still write to it
};

// What is possible in the session, and with this host end.
struct CopyMeans {
  bool gates = false;            // streams wait for words of the worker
  bool bulk_channel = false;     // bytes have a connection beside that of the calls
  bool shared_segments = false;  // client and worker are on one host
  bool adapter = false;          // it reaches the host end
  bool amends = false;           // bytes of the host end that were sent may be amended
  bool staging = false;          // the context has a staging ring
};

// When the call of a copy returns.
enum class CopyReturn : uint8_t {
  kSent,          // when its frames are sent
  kUnobserved,    // the same, if nothing may observe it by then either; else as kPassed
  kEarlierEnded,  // when what was in the stream before it has ended
  kPassed,        // when the stream has passed it
};

struct CopyPlan {
  CopyRoute route = CopyRoute::kFrames;
  // Mapped memory at the host end whose pages come on access stays accessible from now on:
  // the route uses it by its own address, perhaps when the call has returned.
  bool opens = false;
  // The call waits for the stream before it reads the source. What is observed then counts.
  bool awaits_source = false;
  copy::Order order = copy::Order::kStream;  // of its last piece
  // Of a copy that follows its stream. kStaged: of the pieces that find no slot and are left to be
  // fetched; kNever: they travel in frames.
  copy::Hold hold = copy::Hold::kNever;
  copy::Completion::Kind completion = copy::Completion::Kind::kNothing;  // of each piece
  CopyReturn returns = CopyReturn::kSent;

  bool operator==(const CopyPlan&) const = default;
};

// What can tell somebody that a synchronous copy has returned, or how far a stream is, without
// sending it through the worker, which orders later work behind the copy.
inline constexpr Observers::Set kToldOfReturns = Observers::kHeldStreams | Observers::kCopies |
                                                 Observers::kValueWaits | Observers::kSharedMemory |
                                                 Observers::kMirrors | Observers::kOtherProcesses;
// What may write pinned memory between the call of a copy that reads it and the moment when the
// stream reaches the copy. A stream that is held counts, because the application can know that.
inline constexpr Observers::Set kWritesSources = Observers::kHostFunctions |
                                                 Observers::kValueWaits | Observers::kSharedMemory |
                                                 Observers::kMirrors;
// Among them what comes to streams by frames of this client alone, which compares sources before it
// sends them (AmendableCopies), unless device code can reach the source.
inline constexpr Observers::Set kAmendsSources = Observers::kHostFunctions | Observers::kMirrors;
// The same of pageable memory.
inline constexpr Observers::Set kWritesPageable =
    Observers::kHostFunctions | Observers::kValueWaits;
// Memory that a wait for a stream makes equal on both ends. A signal's handler may read it, on any
// thread. So no wait is answered here while there is some.
inline constexpr Observers::Set kEqualAfterWaits = Observers::kMirrors | Observers::kManagedMemory;

// For a copy that is not empty.
CopyPlan plan(const CopyFacts& copy, Observers::Set observers, const CopyMeans& means);

// The hold of a piece of a delivery. `unheld`: bytes of deliveries that hold no stream, with it.
inline copy::Hold delivery_hold(const CopyPlan& plan, uint64_t unheld) {
  return plan.hold == copy::Hold::kNever && unheld > copy::kMostUnheld ? copy::Hold::kForStaging
                                                                       : plan.hold;
}

}  // namespace fargpu::client
