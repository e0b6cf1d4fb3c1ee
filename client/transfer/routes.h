// A copy between host memory and device memory under way, and what carries its bytes on each route.
// Which route, and what the call waits for, is decided by plan() (client/copy/copy_plan.h). Any
// thread; needs a current context.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "client/copy/copy_plan.h"
#include "client/copy/pack.h"
#include "client/entry/call_target.h"
#include "client/hostmem/remote_host.h"
#include "client/hostmem/staging_ring.h"
#include "client/transfer/coherence.h"
#include "client/transfer/endpoint.h"
#include "common/copy/copy.h"
#include "generated/client/wire/internal.h"

namespace fargpu::client {

// On the stack of its call.
struct Transfer {
  // Not an aggregate: an initialiser of one would clear the bytes of `packed`, too.
  Transfer(const CallTarget& target, bool is_to_device, const Endpoint& device_end,
           const Endpoint& host_end, const copy::Shape& copied, CUstream named,
           const CopyFacts& known)
      : session(target.session),
        context(target.context),
        to_device(is_to_device),
        device(device_end),
        host(host_end),
        shape(copied),
        stream(named),
        facts(known) {}

  Session& session;
  const uint16_t context;  // current; of frames
  const bool to_device;
  const Endpoint &device, &host;
  const copy::Shape shape;
  const CUstream stream;  // as the application gave it
  CopyFacts facts;  // as the call has them; the rest is found when the bytes are to be carried

  const uint64_t bytes = shape.bytes();
  // Nothing is known here of the memory at the device end.
  const bool is_unknown = client::is_unknown(session, device);
  std::optional<Submission> work{};  // around the calls that send work
  CopyMeans means{};
  CopyPlan plan{};
  // How often streams had come to be held (HostCalls::period()) before the plan was made.
  uint64_t hold_period = 0;
  uint64_t amendable = 0;  // its id among the copies that may be amended
  std::optional<RemoteHost::RegisteredRange> registered{};
  std::shared_ptr<StagingRing> ring{};
  PackBuffer packed{};  // of pieces that travel in frames

  // The host end lies in memory that the application pinned or registered.
  bool pinned() const { return facts.host == HostMemory::kPinned; }
  // When the call is about to return: the stream is known to have passed the copy; the worker has
  // said what became of the copy itself.
  bool passed() const { return plan.returns == CopyReturn::kPassed; }
  bool answered() const {
    return plan.completion == copy::Completion::Kind::kReply ||
           (!to_device && plan.route == CopyRoute::kStaged);
  }

  // What the worker is told of a piece. `host_end`: where its bytes are on this side.
  copy::Copy piece(const copy::Piece& piece, const copy::Location& host_end,
                   const copy::Completion& completion = {},
                   copy::Order order = copy::Order::kStream) const {
    const copy::Location device_end = device.location().part(piece);
    return to_device ? copy::Copy{host_end, device_end, piece.shape, completion, order}
                     : copy::Copy{device_end, host_end, piece.shape, completion, order};
  }
};

// Makes the plan, by what may observe the copy now.
void make_plan(Transfer& transfer);

// To the worker. `data`: the packed rows of a frame.
inline CUresult send_copy(const Transfer& transfer, const copy::Copy& copy,
                          const void* data = nullptr, uint64_t data_bytes = 0) {
  const copy::Words words = encode(copy);
  return submit(transfer.session, transfer.context, transfer.stream, Submission::kQueuePlace,
                [&](uint64_t stream) {
                  return wire::fgCopy(transfer.session, transfer.context, words.data(),
                                      words.bytes(), stream, data, data_bytes);
                });
}
inline CUresult send_copy_and_wait(const Transfer& transfer, const copy::Copy& copy,
                                   void* data = nullptr, uint64_t data_bytes = 0) {
  const copy::Words words = encode(copy);
  return submit(transfer.session, transfer.context, transfer.stream, Submission::kQueuePlace,
                [&](uint64_t stream) {
                  return wire::fgCopyWait(transfer.session, transfer.context, words.data(),
                                          words.bytes(), stream, data, data_bytes);
                });
}
// A piece in a frame, packed if need be.
CUresult send_in_frame(Transfer& transfer, const copy::Piece& piece, copy::Order order);
CUresult receive_in_frame(Transfer& transfer, const copy::Piece& piece);
// Whether the adapter can reach the host end by itself; then transfer.registered says where.
bool find_registered(Transfer& transfer);
// Whether there is room for one more copy that may be amended; then transfer.amendable is its id.
bool find_amendable(Transfer& transfer);
// Whether the context has a staging ring; then it is transfer.ring.
bool find_ring(Transfer& transfer);
// Where the plan says so, before the source is read here. Afterwards the plan is by what may
// observe the copy then.
CUresult await_source(Transfer& transfer);

// The end of a copy to the device whose bytes the call takes: what the call waits for, by the plan.
// Made after await_source() and before the first frame is sent, on the calling thread's stack. What
// other threads submit in between is not missed: either its frame comes after the copy's frames, or
// finish() sees that its submission has begun.
class TakenCopy {
 public:
  explicit TakenCopy(const Transfer& transfer);
  // For a piece of the copy; that of its last piece counts for all.
  copy::Order order(const copy::Piece& piece) const;
  // After the frames were sent.
  CUresult finish();

 private:
  const Transfer& transfer_;
  std::optional<StreamMark> before_;  // what is awaited instead of the copy
};

// Each carries all bytes of the copy by its route.
CUresult carry_by_mirror(Transfer& transfer);
CUresult carry_shared(Transfer& transfer);
CUresult carry_fetched(Transfer& transfer);
CUresult carry_delivered(Transfer& transfer);
CUresult carry_by_adapter(Transfer& transfer);
CUresult carry_staged(Transfer& transfer);
CUresult carry_in_frames(Transfer& transfer);

}  // namespace fargpu::client
