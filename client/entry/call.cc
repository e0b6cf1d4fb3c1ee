#include "client/entry/call.h"

#include <pthread.h>

#include <array>
#include <exception>
#include <new>
#include <vector>

#include "client/call/error_log.h"
#include "client/call/report.h"
#include "client/call/trace.h"
#include "client/entry/call_target.h"
#include "client/entry/object_ends.h"
#include "client/entry/streams.h"
#include "client/memory/memory_source.h"
#include "client/memory/reserve.h"
#include "client/object/array.h"
#include "client/object/image_records.h"
#include "client/process/process.h"
#include "client/process/session.h"
#include "client/process/watchdog.h"
#include "common/base/log.h"
#include "generated/client/make_record.h"
#include "generated/rpc/handle_rules.h"

namespace fargpu::client {
namespace {

// What stands for an object of each kind (schema/api/types.yml).
struct Records {
  using Array = client::Array;
  using Context = client::Context;
  using Event = client::Event;
  using Function = client::Function;
  using GreenContext = client::GreenContext;
  using ImageRecord = client::ImageRecord;
  using LinkRecord = client::LinkRecord;
  using MemorySource = client::MemorySource;
  using MipmappedArray = client::MipmappedArray;
  using Object = client::Object;
  using Stream = client::Stream;
  using TextureRecord = client::TextureRecord;
};

CUresult check_context(const CurrentContexts& current) {
  if (current.top == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  const Context* const named = current.green != nullptr ? current.green : current.top;
  if (!named->usable()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  return static_cast<CUresult>(current.top->sticky.load(std::memory_order_relaxed));
}

// Returned once: the first thread that takes it reports it.
CUresult take(std::atomic<int>& kept) {
  if (kept.load(std::memory_order_relaxed) == CUDA_SUCCESS) return CUDA_SUCCESS;
  return static_cast<CUresult>(kept.exchange(CUDA_SUCCESS));
}

}  // namespace

CallScope::CallScope(uint16_t, const char* name, Needs needs, const void* handle) : needs_(needs) {
  if (needs == Needs::kNothing) return;
  if (watchdog::enabled()) [[unlikely]]
    watched_ = watchdog::enter(name);
  contexts_ = &current_contexts;
  status_ = Process::get().check();
  if (status_ != CUDA_SUCCESS || needs == Needs::kInit) return;
  if (HostCalls::on_this_thread()) {
    status_ = CUDA_ERROR_NOT_PERMITTED;
    return;
  }
  status_ = check_context(*contexts_);
  // No current context, or one that is no more.
  const bool none =
      status_ == CUDA_ERROR_INVALID_CONTEXT || status_ == CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (handle == nullptr || !none) [[likely]]
    return;
  if (Context* context = context_of_handle(handle)) {
    borrowed_ = new ContextScope(context);
    status_ = check_context(*contexts_);
  }
}

void CallScope::leave() {
  if (watched_ != nullptr) watchdog::leave(watched_);
  delete borrowed_;
}

// An execution error that arrived while the call waited belongs to it.
CUresult take_kept(Context& context) {
  if (const int sticky = context.sticky.load(std::memory_order_relaxed))
    return static_cast<CUresult>(sticky);
  if (const CUresult kept = take(context.kept); kept != CUDA_SUCCESS) return kept;
  return take(context.session->kept);
}

CUresult CallScope::finish(CUresult result) {
  if (needs_ == Needs::kNothing) return result;
  Tables* tables = Process::get().tables();
  if (tables == nullptr) return result;
  tables->output.drain();
  Context* const context = contexts_->top;
  if (context == nullptr) return result;
  if (result == CUDA_SUCCESS) {
    if (needs_ == Needs::kInit) return result;
    return take_kept(*context);
  }
  if (is_sticky(result)) {
    int none = CUDA_SUCCESS;
    context->sticky.compare_exchange_strong(none, result);
  }
  return result;
}

bool has_current_context() { return current_context() != nullptr && named_current()->usable(); }

const void* context_of_memory(CUdeviceptr pointer) {
  if (Process::get().check() != CUDA_SUCCESS) return nullptr;
  const Tables& tables = *Process::get().tables();
  auto region = tables.device_memory.find(pointer);
  if (!region) region = tables.host_memory.find(pointer);
  return region && region->context != nullptr ? region->context->handle() : nullptr;
}

uint16_t stream_context_id(CUstream stream) {
  const Context* context = is_default_stream(stream) ? named_current() : current_context();
  return context == nullptr ? 0 : context->wire_id;
}

NewHandle::NewHandle(Session& session, rpc::HandleKind kind)
    : session_(session),
      context_(rpc::outlives_context(kind) ? nullptr : current_context()),
      epoch_(context_ == nullptr ? 0 : context_->epoch.load()),
      id_(session.handles.reserve(kind, session.number)) {}

NewHandle::~NewHandle() {
  if (!live_) session_.handles.give_back(id_);
}

CUresult handle_to_wire(Session& session, rpc::HandleKind kind, const void* handle, uint64_t* id) {
  const auto value = reinterpret_cast<uint64_t>(handle);
  *id = 0;
  if (kind == rpc::HandleKind::kContext) {
    if (value == 0) return CUDA_SUCCESS;  // the current one
    const Context* context = session.contexts.find(handle);
    if (context == nullptr || context->session != &session) return CUDA_ERROR_INVALID_CONTEXT;
    if (!context->usable()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    *id = context->wire_id;
    return CUDA_SUCCESS;
  }
  const Object* const found = session.find(kind, value);
  if (kind == rpc::HandleKind::kStream && found != nullptr) {
    const Context* const green = static_cast<const Stream*>(found)->green;
    if (green != nullptr && !green->usable()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  }
  if (found == nullptr) {
    // The driver calls a wrong one of these a wrong value.
    return kind == rpc::HandleKind::kMemGeneric || kind == rpc::HandleKind::kMemPool
               ? CUDA_ERROR_INVALID_VALUE
               : CUDA_ERROR_INVALID_HANDLE;
  }
  *id = value;
  return CUDA_SUCCESS;
}

namespace {

// The object is live from now on, unless its context, at this epoch, or its parent has ended. Who
// ends one of them does that first, and then looks for what ends with it.
void publish(Session& session, uint64_t id, Context* context, uint32_t epoch, uint64_t parent) {
  std::unique_ptr<Object> object = make_record<Records>(rpc::handle_kind(id));
  object->id = id;
  object->session = &session;
  object->context = context;
  object->parent = parent;
  if (object->kind() == rpc::HandleKind::kStream)
    static_cast<Stream&>(*object).green = current_green();
  session.handles.publish(std::move(object));
  const bool alone = parent != 0 && session.find(rpc::handle_kind(parent), parent) == nullptr;
  const bool late = context != nullptr && context->epoch.load() != epoch;
  if (alone || late) end_object(session, id);
}

}  // namespace

void NewHandle::created(uint64_t parent) {
  publish(session_, id_, context_, epoch_, parent);
  live_ = true;
}

uint64_t new_id(Session& session, rpc::HandleKind kind) {
  return session.handles.reserve(kind, session.number);
}

void give_id_back(Session& session, uint64_t id) { session.handles.give_back(id); }

bool is_live(Session& session, rpc::HandleKind kind, uint64_t id) {
  return session.find(kind, id) != nullptr;
}

void handle_destroyed(Session& session, uint64_t id) { end_object(session, id); }

CUresult device_to_wire(Session& session, CUdevice device, int32_t* ordinal) {
  const Device* found = session.device(device);
  if (found == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *ordinal = found->worker_ordinal;
  return CUDA_SUCCESS;
}

CUdevice device_from_wire(Session& session, int32_t ordinal) {
  for (const Device& device : session.snapshot.devices) {
    if (device.worker_ordinal == ordinal) return device.ordinal;
  }
  return CU_DEVICE_INVALID;
}

void allocation_created(Session& session, uint16_t wire_context, CUdeviceptr pointer,
                        size_t bytes) {
  Context* context = session.find_context(wire_context);
  // What the table still has there is gone: the driver has given the addresses out again.
  session.device_memory.erase_if([&](const Region& region) {
    const bool gone = region.session == &session && region.base < pointer + bytes &&
                      pointer < region.base + region.bytes;
    if (gone && region.reserved) release_reserved(region.base, region.bytes);
    return gone;
  });
  // Left out when another server has given out these addresses: who allocates looks for that
  // (client/manual/apart.h).
  if (taken_by_other(session, pointer, bytes)) return;
  const Region region{.base = pointer,
                      .bytes = bytes,
                      .kind = MemoryKind::kDevice,
                      .session = &session,
                      .context = context,
                      .device = context == nullptr ? session.first_device : context->device,
                      .buffer_id = session.next_buffer_id(),
                      .reserved = reserve_addresses(pointer, bytes)};
  if (!session.device_memory.insert(region) && region.reserved) release_reserved(pointer, bytes);
}

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

CUresult retired(uint16_t opcode, const char* name) {
  CallScope call(opcode, name, Needs::kInit);
  const CUresult result =
      call.status() != CUDA_SUCCESS ? call.status() : CUDA_ERROR_INVALID_CONTEXT;
  error_log::note(name, result);
  return result;
}

CUresult unsupported(uint16_t opcode, const char* name, const char* why) {
  // Functions that are not supported have no entry that would count them.
  if (trace::enabled() && report::enabled())
    report::count_call(opcode, rpc::thread_calls, 0, CUDA_ERROR_NOT_SUPPORTED);
  if (first_time(name)) log::warn("{} is not supported: {}", name, why);
  error_log::explain(why);
  error_log::note(name, CUDA_ERROR_NOT_SUPPORTED);
  return CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace fargpu::client
