// The routes of a copy between host memory and device memory. A route is chosen by what both ends
// of the copy can do: the first one in the list of its direction (copy.cc) that fits carries the
// bytes. Any thread; needs a current context.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "client/call/report.h"
#include "client/copy/pack.h"
#include "client/entry/call_target.h"
#include "client/hostmem/remote_host.h"
#include "client/hostmem/staging_ring.h"
#include "client/transfer/coherence.h"
#include "client/transfer/endpoint.h"
#include "common/copy/copy.h"

namespace fargpu::client {

// A copy under way, with what the routes that were asked have found. On the stack of its call.
struct Transfer {
  Session& session;
  const uint16_t context;  // current; of frames
  const bool to_device;
  const Endpoint &device, &host;
  const copy::Shape shape;
  const CUstream stream;  // as the application gave it
  // The call is a synchronous one.
  const bool wait;
  // The source is read when the stream comes to the copy, not before the call returns.
  const bool in_stream = true;

  const uint64_t bytes = shape.bytes();
  // The host end lies in memory that the application pinned or registered.
  const bool pinned = host.region && span_of(shape, host.rows) <= host.known;
  // Nothing is known here of the memory at the device end.
  const bool is_unknown = client::is_unknown(session, device);
  std::optional<Submission> work{};  // around the calls that send work
  std::optional<RemoteHost::RegisteredRange> registered{};
  std::shared_ptr<StagingRing> ring{};
  PackBuffer packed{};    // of pieces that travel in frames
  bool passed = false;    // the stream is known to have passed the copy
  bool answered = false;  // the worker has said what became of the copy itself

  // What the worker is told of a piece. `host_end`: where its bytes are on this side.
  copy::Copy piece(const copy::Piece& piece, const copy::Location& host_end,
                   const copy::Completion& completion = {},
                   copy::Order order = copy::Order::kStream) const {
    const copy::Location device_end = device.location().part(piece);
    return to_device ? copy::Copy{host_end, device_end, piece.shape, completion, order}
                     : copy::Copy{device_end, host_end, piece.shape, completion, order};
  }
};

struct CopyRoute {
  report::Route name;
  bool (*fits)(Transfer& transfer);
  CUresult (*carry)(Transfer& transfer);
};

// To the worker. `data`: the packed rows of a frame.
inline CUresult send_copy(const Transfer& transfer, const copy::Copy& copy,
                          const void* data = nullptr, uint64_t data_bytes = 0) {
  const copy::Words words = encode(copy);
  return call_fgCopy(transfer.session, transfer.context, words.data(), words.bytes(),
                     transfer.stream, data, data_bytes);
}
inline CUresult send_copy_and_wait(const Transfer& transfer, const copy::Copy& copy,
                                   void* data = nullptr, uint64_t data_bytes = 0) {
  const copy::Words words = encode(copy);
  return call_fgCopyWait(transfer.session, transfer.context, words.data(), words.bytes(),
                         transfer.stream, data, data_bytes);
}
// A piece in a frame, packed if need be.
CUresult send_in_frame(Transfer& transfer, const copy::Piece& piece, copy::Order order);
CUresult receive_in_frame(Transfer& transfer, const copy::Piece& piece);
// Whether the adapter can reach the host end by itself; then transfer.registered says where.
bool find_registered(Transfer& transfer);
// To be called before a source is read here that earlier work in the stream may write.
CUresult await_source(const Transfer& transfer);

// The host end has a mirror in the worker: a copy there, in the order of the stream, which kernels
// that use the memory are in as well.
extern const CopyRoute kMirrorRoute;
// The host end is memory that the worker shares (shm): one copy of the driver, straight from or to
// the application's memory. Its order is the stream's own, whatever else may write the memory.
extern const CopyRoute kSharedRoute;
// Asynchronous, and the bytes cross the network when the stream has come to the copy
// (ordered_copy.h).
extern const CopyRoute kFetchRoute;    // to the device: something may still write the source
extern const CopyRoute kDeliverRoute;  // to the host
// The adapter moves the bytes from or to pinned memory by itself (rdma).
extern const CopyRoute kRemoteRoute;
// Through slots of a staging ring (shm, rdma): the CPU's copy and the GPU's overlap.
extern const CopyRoute kStagedRoute;
// In frames. Fits always.
extern const CopyRoute kFrameRoute;

}  // namespace fargpu::client
