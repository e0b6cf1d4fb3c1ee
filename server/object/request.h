// The interface of generated dispatch code: one request, the worker that executes it, and the way
// back.
//
//   dispatch_cuX(Worker&, const Request&)
//       generated: decode, ids -> driver handles, set context, call driver, reply
//   manual_cuX(Worker&, const Request&)
//       hand-written in server/manual/ instead of the generated one; it replies by itself, at once
//       or later
//
// All on the executor's thread. A malformed body is reported by returning a Status (kProtocol): the
// session ends. A driver's error is a reply.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <functional>
#include <span>

#include "common/base/status.h"
#include "common/rpc/handle_kind.h"
#include "common/rpc/responder.h"
#include "common/wire/frame.h"
#include "server/object/frame_stream.h"

namespace fargpu::server {

// generated/server/driver_table.h: one function pointer per driver function, nullptr when the
// driver lacks it
struct DriverTable;

struct SessionParts;  // server/session/session_parts.h: for server/manual/

struct Request {
  const wire::FrameHeader& header;
  std::span<const std::byte> body;
  std::span<std::byte> bulk;
};

class Worker {
 public:
  virtual ~Worker() = default;
  virtual const DriverTable& driver() = 0;
  virtual SessionParts& parts() = 0;
  virtual rpc::Responder& responder() = 0;

  // Makes header.context current in the driver (cached). 0: leaves it. CUDA_ERROR_INVALID_CONTEXT
  // for an unknown id.
  virtual CUresult enter_context(uint16_t context) = 0;

  // id -> driver handle. 0 -> nullptr; stream ids 1 and 2 pass as they are.
  // CUDA_ERROR_INVALID_HANDLE for an unknown id or a wrong kind. kContext: the 16-bit id of frame
  // headers. kFunction also finds a kernel's id (a CUkernel passes as CUfunction).
  virtual CUresult find(rpc::HandleKind kind, uint64_t id, void** handle) = 0;
  // For Submission: finds the stream of a frame whose context is current, and makes the stream wait
  // for the copies that came before (server/stream/copy_fences.h).
  virtual CUresult submit(uint64_t stream_id, FrameStream* stream) = 0;
  // CUDA_ERROR_INVALID_VALUE when the id is in use or of the wrong kind. `context`: in which it was
  // made. `parent`: id of the object that it was made from; 0: none.
  virtual CUresult add(rpc::HandleKind kind, uint64_t id, void* handle, uint16_t context,
                       uint64_t parent = 0) = 0;
  // The object ends, and so do the objects made from it.
  virtual void remove(uint64_t id) = 0;

  // The memory ledger (quota). charge() before an allocation: CUDA_ERROR_OUT_OF_MEMORY when the
  // session's limit would be passed.
  virtual CUresult charge(uint64_t bytes) = 0;
  virtual void refund(uint64_t bytes) = 0;
  // Remembers a device allocation so that it is freed at the end and refunded by
  // forget_allocation().
  virtual void remember_allocation(CUdeviceptr pointer, uint64_t bytes) = 0;
  virtual void forget_allocation(CUdeviceptr pointer) = 0;

  // A request that found no memory, or no context, is executed again later, if that may help: the
  // workers of clients that have ended may still hold some. True: it is not to be answered now.
  // Only calls that make memory or contexts, of which nothing stays when they fail.
  virtual bool tries_again(const Request& request) = 0;
  // Before an error is answered: the driver's output about it is sent to the client first.
  virtual void before_error() = 0;

  // Polled between frames, in order per session, until it returns true (done; it has replied by
  // itself).
  virtual void defer(std::function<bool()> poll) = 0;
};

using Handler = Status (*)(Worker&, const Request&);

}  // namespace fargpu::server
