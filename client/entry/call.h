// What generated client code calls: the way of one driver call through the client.
//
// Three layers, all made or used by schema/apigen:
//   cuX          exported C entry (generated): CallScope checks state, traces, then calls
//                manual_cuX or call_cuX
//   manual_cuX   hand-written body in client/manual/ (call classes local and manual)
//   call_cuX     generated (generated/client/work): looks handles up, submits work, keeps tables;
//                wire::cuX has the message. A message without such policy is called by itself
// No exception leaves any of them. Thread safe unless said otherwise.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <span>

#include "client/link/link.h"
#include "common/rpc/handle_kind.h"

namespace fargpu::client {

class ContextScope;      // context.h
struct Context;          // context.h
struct CurrentContexts;  // context.h
class Session;           // session.h: a connection, its snapshot of devices, what is bound to it

// What must hold before a call may run; otherwise the entry returns NOT_INITIALIZED, DEINITIALIZED,
// INVALID_CONTEXT, the session-lost error or the context's sticky error by itself.
enum class Needs { kNothing, kInit, kContext, kHandle };

namespace watchdog {
struct Slot;
}

// An error that has arrived and that no call has returned: a sticky one, or one that is returned
// once.
CUresult take_kept(Context& context);

// One call through an exported entry. On the stack of the calling thread.
class CallScope {
 public:
  // kHandle: as kContext, but when no context is current, the context of `handle` is for this call.
  CallScope(uint16_t opcode, const char* name, Needs needs, const void* handle = nullptr);
  ~CallScope() {
    if (watched_ != nullptr || borrowed_ != nullptr) [[unlikely]]
      leave();
  }
  CallScope(const CallScope&) = delete;
  CallScope& operator=(const CallScope&) = delete;
  CUresult status() const { return status_; }  // not CUDA_SUCCESS: return it at once
  // The result that the application sees: `result`, or a kept error of an earlier async call when
  // `result` is success. Tracing is not done here: the generated entry prints the arguments after
  // finish() (trace.h).
  CUresult finish(CUresult result);

 private:
  void leave();

  const Needs needs_;
  CUresult status_ = CUDA_SUCCESS;
  watchdog::Slot* watched_ = nullptr;
  ContextScope* borrowed_ = nullptr;
  const CurrentContexts* contexts_ = nullptr;  // of this thread
};

// Where a call goes: the session that an operand of it names, and the context for its frame.
//
// The current context is the frame's if it is of that session. If it is of another one, the
// operand's own context is current while this lives, or none if the operand has none. So all that
// the call does finds a current context of `session`, or none.
// If the operand names no live object, the current context decides; the call refuses the operand.
// If no context is current either, it is the first session.
// Valid below a CallScope with kInit or kContext. On the stack of the calling thread.
class CallTarget {
 public:
  static CallTarget of_current();
  // A handle of any kind. NULL and the default streams: the current context, or the green one.
  static CallTarget of(const void* handle);
  static CallTarget of_device(CUdevice device);
  static CallTarget of_location(
      const CUmemLocation* location);  // nullptr, not a device: of_current()
  // Device memory, else device memory at `other`, else host memory that the driver knows or
  // reserved addresses at `address`. Costs a load while there is one session.
  static CallTarget of_memory(CUdeviceptr address, CUdeviceptr other = 0);

  ~CallTarget() {
    if (borrowed_ != nullptr) [[unlikely]]
      give_back();
  }
  CallTarget(const CallTarget&) = delete;
  CallTarget& operator=(const CallTarget&) = delete;

  Session& session;
  const uint16_t context;  // wire id; 0: none

 private:
  CallTarget(Session& in, uint16_t id, ContextScope* borrowed = nullptr)
      : session(in), context(id), borrowed_(borrowed) {}
  static CallTarget of_session(Session& session, Context* own);
  static CallTarget of_foreign(uint64_t id);
  void give_back();

  ContextScope* const borrowed_;
};

bool has_current_context();
// The context (a handle) of device or host memory; nullptr: none.
const void* context_of_memory(CUdeviceptr pointer);
// Wire id of the context for the frame of work in `stream`: the current one, but a green one has
// default streams of its own. 0: none.
uint16_t stream_context_id(CUstream stream);

// Handles. An application's handle value IS the typed id, made by the client
// (common/rpc/handle_kind.h). 0 stays 0. Streams also pass CU_STREAM_LEGACY (1).
//
// An id of another session than the call's is as wrong as one that was never made.
//
// The id of an object that is being made. Its slot is free again unless created() is called.
class NewHandle {
 public:
  // Lives in the current context, unless its kind does not.
  NewHandle(Session& session, rpc::HandleKind kind);
  ~NewHandle();
  NewHandle(const NewHandle&) = delete;
  NewHandle& operator=(const NewHandle&) = delete;
  // 0: the program has as many objects as there may be, CUDA_ERROR_OUT_OF_MEMORY.
  uint64_t id() const { return id_; }
  // The server (or a deferred call) accepted it. `parent`: id of the object that it was made from.
  // If that or the context has ended meanwhile, it has ended with it.
  void created(uint64_t parent = 0);

 private:
  Session& session_;
  Context* const context_;
  const uint32_t epoch_;  // of the context
  const uint64_t id_;
  bool live_ = false;
};
// The id alone, for an object whose record is made elsewhere.
uint64_t new_id(Session& session, rpc::HandleKind kind);
void give_id_back(Session& session, uint64_t id);
bool is_live(Session& session, rpc::HandleKind kind, uint64_t id);
// Resolves the calling thread's default stream: NULL -> legacy, or per-thread inside a _ptsz/_ptds
// entry; CU_STREAM_PER_THREAD -> the hidden blocking stream of this thread and context (made on
// first use). kInvalid for a handle that was never made or is destroyed.
CUresult stream_to_wire(Session& session, CUstream stream, uint64_t* id);
// Around a call in which the driver waits for all streams of the context's device: it may load
// something onto the GPU, or it takes away what work may use. Nobody else gets into the driver
// meanwhile; so the call waits here while functions of the application hold these streams, and
// later ones wait for it.
class DrainScope {
 public:
  DrainScope(Session& session, uint16_t context);
  ~DrainScope();
  DrainScope(const DrainScope&) = delete;
  DrainScope& operator=(const DrainScope&) = delete;

 private:
  Session& session_;
  const uint16_t device_;
};
// The same around a call in which a driver waits only for what is not loaded yet. A function may
// wait for what comes after the call, so this waits HostCalls::kPatience at most, once a period of
// functions; then the call is made all the same.
class BriefDrainScope {
 public:
  BriefDrainScope(Session& session, uint16_t context);
  ~BriefDrainScope();
  BriefDrainScope(const BriefDrainScope&) = delete;
  BriefDrainScope& operator=(const BriefDrainScope&) = delete;

 private:
  Session& session_;
  const uint16_t device_;
  const bool began_;
};
// Every other kind: checks kind and liveness. CUDA_ERROR_INVALID_HANDLE (contexts:
// CUDA_ERROR_INVALID_CONTEXT) when wrong. A context's wire id is the 16-bit one of frame headers.
// Generated code asks for kKernel when a CUfunction is a kernel's handle.
CUresult handle_to_wire(Session& session, rpc::HandleKind kind, const void* handle, uint64_t* id);
void handle_destroyed(Session& session, uint64_t id);
// Visible ordinal -> ordinal in the worker (CUDA_VISIBLE_DEVICES of the application).
// CUDA_ERROR_INVALID_DEVICE when it is none of the session's.
CUresult device_to_wire(Session& session, CUdevice device, int32_t* ordinal);
// The other way; CU_DEVICE_INVALID when no visible device stands for it.
CUdevice device_from_wire(Session& session, int32_t ordinal);
// Device memory that a message made, for the table behind cuPointerGetAttribute and cuMemcpy.
// `context`: wire id.
void allocation_created(Session& session, uint16_t context, CUdeviceptr pointer, size_t bytes);

// Runs the body of an exported function; what it throws (only memory can run out there) becomes a
// result.
CUresult exception_result() noexcept;  // inside a catch block
template <typename Body>
CUresult without_exception(Body&& body) noexcept {
  try {
    return body();
  } catch (...) {
    return exception_result();
  }
}

// Inside a scope NULL streams mean the per-thread default stream: generated _ptsz and _ptds entries
// hold one.
class PerThreadDefaultStream {
 public:
  PerThreadDefaultStream();
  ~PerThreadDefaultStream();

 private:
  bool before_;
};

// A function that wants a context of an old interface. The errors before that come first.
CUresult retired(uint16_t opcode, const char* name);
// Logs `name` and `why` once per process, returns CUDA_ERROR_NOT_SUPPORTED.
CUresult unsupported(uint16_t opcode, const char* name, const char* why);

}  // namespace fargpu::client
