#include "client/call/call.h"

#include <pthread.h>

#include <array>
#include <exception>
#include <mutex>
#include <new>
#include <set>
#include <string>
#include <vector>

#include "client/entry/streams.h"
#include "client/image/linked.h"
#include "client/image/records.h"
#include "client/memory/memory_source.h"
#include "client/memory/reserve.h"
#include "client/process/process.h"
#include "client/process/session.h"
#include "client/process/watchdog.h"
#include "common/base/log.h"

namespace fargpu::client {
namespace {

CUresult check_context() {
  Context* context = current_context();
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (!context->usable()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  return static_cast<CUresult>(context->sticky.load(std::memory_order_relaxed));
}

// The context in which `handle` lives, of whatever kind it is; nullptr: none, or no handle.
Context* context_of_handle(Session& session, const void* handle) {
  const auto id = reinterpret_cast<uint64_t>(handle);
  const rpc::HandleKind kind = rpc::handle_kind(id);
  if (kind == rpc::HandleKind::kContext) return session.contexts.find(handle);
  const Object* object = session.handles.find(kind, id);
  return object == nullptr ? nullptr : object->context;
}

// Returned once: the first thread that takes it reports it.
CUresult take(std::atomic<int>& kept) {
  if (kept.load(std::memory_order_relaxed) == CUDA_SUCCESS) return CUDA_SUCCESS;
  return static_cast<CUresult>(kept.exchange(CUDA_SUCCESS));
}

}  // namespace

Entry::Entry(uint16_t opcode, const char* name, Needs needs, const void* handle)
    : opcode_(opcode), name_(name), needs_(needs), status_(CUDA_SUCCESS) {
  if (needs == Needs::kNothing) return;
  if (watchdog::enabled()) [[unlikely]]
    watched_ = watchdog::enter(name);
  status_ = Process::get().check();
  if (status_ != CUDA_SUCCESS || needs == Needs::kInit) return;
  if (HostCalls::on_this_thread()) {
    status_ = CUDA_ERROR_NOT_PERMITTED;
    return;
  }
  if (handle != nullptr && current_context() == nullptr) [[unlikely]] {
    if (Context* context = context_of_handle(current_session(), handle))
      borrowed_ = std::make_unique<ContextScope>(context);
  }
  status_ = check_context();
}

Entry::~Entry() {
  if (watched_ != nullptr) [[unlikely]]
    watchdog::leave(watched_);
}

CUresult Entry::finish(CUresult result) {
  if (needs_ == Needs::kNothing) return result;
  Session* session = Process::get().session();
  if (session == nullptr) return result;
  session->output.drain();
  Context* context = current_context();
  if (context == nullptr) return result;
  if (result == CUDA_SUCCESS) {
    if (needs_ == Needs::kInit) return result;
    // An execution error that arrived while this call waited belongs to it.
    if (const int sticky = context->sticky.load(std::memory_order_relaxed))
      return static_cast<CUresult>(sticky);
    if (const CUresult kept = take(context->kept); kept != CUDA_SUCCESS) return kept;
    return take(session->kept);
  }
  if (is_sticky(result)) {
    int none = CUDA_SUCCESS;
    context->sticky.compare_exchange_strong(none, result);
  }
  return result;
}

Session& current_session() { return *Process::get().session(); }

rpc::Channel& channel(Session& session) { return session.channel(); }

RemoteHost& remote_host(Session& session) { return session.remote_host; }

bool zero_copy(const Session& session) { return session.settings.zero_copy; }

bool has_current_context() { return current_context() != nullptr; }

const void* context_of_memory(CUdeviceptr pointer) {
  if (Process::get().check() != CUDA_SUCCESS) return nullptr;
  Session& session = current_session();
  auto region = session.device_memory.find(pointer);
  if (!region) region = session.host_memory.find(pointer);
  return region && region->context != nullptr ? region->context->handle() : nullptr;
}

uint16_t current_context_id() {
  const Context* context = current_context();
  return context == nullptr ? 0 : context->wire_id;
}

CUresult from_status(const Status& status) {
  switch (status.code()) {
    case StatusCode::kOk:
      return CUDA_SUCCESS;
    case StatusCode::kLost:
    case StatusCode::kTimeout:
      return Process::get().state() == ProcessState::kExiting ? CUDA_ERROR_DEINITIALIZED
                                                              : CUDA_ERROR_DEVICE_UNAVAILABLE;
    case StatusCode::kInvalidArgument:
      log::warn("{}", status.message());
      return CUDA_ERROR_INVALID_VALUE;
    case StatusCode::kUnsupported:
      log::warn("{}", status.message());
      return CUDA_ERROR_NOT_SUPPORTED;
    default:
      log::error("{}", status.message());
      return CUDA_ERROR_UNKNOWN;
  }
}

NewHandle::NewHandle(rpc::HandleKind kind)
    : session_(current_session()), id_(session_.handles.reserve(kind)) {}

NewHandle::~NewHandle() {
  if (!live_) session_.handles.give_back(id_);
}

CUresult handle_to_wire(rpc::HandleKind kind, const void* handle, uint64_t* id) {
  const auto value = reinterpret_cast<uint64_t>(handle);
  *id = 0;
  if (kind == rpc::HandleKind::kContext) {
    if (value == 0) return CUDA_SUCCESS;  // the current one
    const Context* context = current_session().contexts.find(handle);
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    if (!context->usable()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    *id = context->wire_id;
    return CUDA_SUCCESS;
  }
  if (current_session().handles.find(kind, value) == nullptr) {
    // The driver calls a wrong one of these a wrong value.
    return kind == rpc::HandleKind::kMemGeneric || kind == rpc::HandleKind::kMemPool
               ? CUDA_ERROR_INVALID_VALUE
               : CUDA_ERROR_INVALID_HANDLE;
  }
  *id = value;
  return CUDA_SUCCESS;
}

void NewHandle::created() {
  const rpc::HandleKind kind = rpc::handle_kind(id_);
  std::unique_ptr<Object> object;
  switch (kind) {
    case rpc::HandleKind::kStream:
      object = std::make_unique<Stream>();
      break;
    case rpc::HandleKind::kModule:
    case rpc::HandleKind::kLibrary:
      object = std::make_unique<ImageRecord>();
      break;
    case rpc::HandleKind::kLinkState:
      object = std::make_unique<LinkRecord>();
      break;
    case rpc::HandleKind::kMemGeneric:
    case rpc::HandleKind::kMemPool:
      object = std::make_unique<MemorySource>();
      break;
    case rpc::HandleKind::kFunction:
    case rpc::HandleKind::kKernel:
      object = std::make_unique<Function>();
      break;
    default:
      object = std::make_unique<Object>();
  }
  object->id = id_;
  // These outlive the context in which they were made.
  const bool global = kind == rpc::HandleKind::kLibrary || kind == rpc::HandleKind::kKernel ||
                      kind == rpc::HandleKind::kMemPool || kind == rpc::HandleKind::kMemGeneric ||
                      kind == rpc::HandleKind::kGraph || kind == rpc::HandleKind::kUserObject;
  if (!global) object->context = current_context();
  session_.handles.publish(std::move(object));
  live_ = true;
}

void handle_destroyed(uint64_t id) { current_session().handles.erase(id); }

CUresult device_to_wire(CUdevice device, int32_t* ordinal) {
  const Device* found = current_session().device(device);
  if (found == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *ordinal = found->worker_ordinal;
  return CUDA_SUCCESS;
}

CUdevice device_from_wire(int32_t ordinal) {
  const auto& devices = current_session().snapshot.devices;
  for (size_t i = 0; i < devices.size(); ++i) {
    if (devices[i].worker_ordinal == ordinal) return static_cast<CUdevice>(i);
  }
  return ordinal;
}

void allocation_created(uint16_t wire_context, CUdeviceptr pointer, size_t bytes) {
  Session& session = current_session();
  Context* context = session.contexts.find_wire(wire_context);
  // What the table still has there is gone: the driver has given the addresses out again.
  session.device_memory.erase_if([&](const Region& region) {
    const bool gone = region.base < pointer + bytes && pointer < region.base + region.bytes;
    if (gone && region.reserved) release_reserved(region.base, region.bytes);
    return gone;
  });
  session.device_memory.insert({.base = pointer,
                                .bytes = bytes,
                                .kind = MemoryKind::kDevice,
                                .context = context,
                                .device = context == nullptr ? 0 : context->device,
                                .buffer_id = session.next_buffer_id(),
                                .reserved = reserve_addresses(pointer, bytes)});
}

// Freed memory left the table before the call (manual/memory.cc).
void allocation_destroyed(CUdeviceptr) {}

CUresult exception_result() noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  } catch (const std::exception& error) {
    return from_status(Status(StatusCode::kSystem, error.what()));
  } catch (...) {
    return CUDA_ERROR_UNKNOWN;
  }
}

CUresult unsupported(uint16_t opcode, const char* name, const char* why) {
  (void)opcode;
  // Never destroyed: calls come until the very end of the process.
  static auto& mutex = *new std::mutex;
  static auto& named = *new std::set<std::string>;
  std::lock_guard lock(mutex);
  if (named.insert(name).second) log::warn("{} is not supported: {}", name, why);
  return CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace fargpu::client
