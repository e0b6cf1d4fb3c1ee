#include "client/entry/call_target.h"

#include <chrono>

#include "client/entry/streams.h"
#include "client/process/process.h"

namespace fargpu::client {
namespace {

// The live object of any session with this id; a context in any state. Null: there is none.
Object* object_of(uint64_t id) {
  const Tables* const tables = Process::get().tables();
  return tables == nullptr ? nullptr : tables->handles.find(rpc::handle_kind(id), id);
}

// The one it is, or lives in; null: none.
Context* context_of(Object& object) {
  return object.kind() == rpc::HandleKind::kContext ? home_of(static_cast<Context*>(&object))
                                                    : object.context;
}

// Where a call without a current context goes: any session will do that is not lost.
Session& any_session() {
  const Process& process = Process::get();
  Session* const first = process.session(0);
  for (unsigned i = 0; Session* each = process.session(i); ++i) {
    if (!each->lost.load(std::memory_order_relaxed)) [[likely]]
      return *each;
  }
  return *first;
}

// For the frame of a call. None for a primary context that nobody retains, or one that has ended:
// what needs a context was refused before, and everything else works beside such a one.
uint16_t wire_id(const Context& current) {
  return current.usable() ? current.wire_id : uint16_t{0};
}

}  // namespace

Context* context_of_handle(const void* handle) {
  Object* const object = object_of(reinterpret_cast<uint64_t>(handle));
  return object == nullptr ? nullptr : context_of(*object);
}

CallTarget CallTarget::of_current() {
  const Context* const current = current_context();
  if (current != nullptr) [[likely]]
    return {*current->session, wire_id(*current)};
  return {any_session(), 0};
}

CallTarget CallTarget::of(const void* handle) {
  const auto id = reinterpret_cast<uint64_t>(handle);
  const Context* const current = current_context();
  if (current == nullptr) return of_foreign(id);
  if (is_default_stream(reinterpret_cast<CUstream>(id)))
    return {*current->session, named_current()->wire_id};
  // A wrong handle is refused by who looks it up.
  if (rpc::handle_session(id) == rpc::handle_session(current->id)) [[likely]]
    return {*current->session, wire_id(*current)};
  return of_foreign(id);
}

CallTarget CallTarget::of_foreign(uint64_t id) {
  Object* const object = object_of(id);
  return object == nullptr ? of_current() : of_session(*object->session, context_of(*object));
}

CallTarget CallTarget::of_session(Session& session, Context* own) {
  const Context* const current = current_context();
  // Without a current context a call has none: who needs one has borrowed the handle's already.
  if (current == nullptr) return {session, 0};
  if (current->session == &session) return {session, wire_id(*current)};
  const uint16_t id = own == nullptr ? uint16_t{0} : own->wire_id;
  return {session, id, new ContextScope(own)};
}

CallTarget CallTarget::of_device(CUdevice device) {
  Session* const session = Process::get().session_of_device(device);
  return session == nullptr ? of_current() : of_session(*session, nullptr);
}

CallTarget CallTarget::of_location(const CUmemLocation* location) {
  return location == nullptr || location->type != CU_MEM_LOCATION_TYPE_DEVICE
             ? of_current()
             : of_device(location->id);
}

CallTarget CallTarget::of_memory(CUdeviceptr address, CUdeviceptr other) {
  if (Process::get().session(1) == nullptr) [[likely]]
    return of_current();
  const Tables& tables = *Process::get().tables();
  auto region = tables.device_memory.find(address);
  if (!region && other != 0) region = tables.device_memory.find(other);
  if (!region) region = tables.host_memory.find(address);
  if (!region) region = tables.reservations.find(address);
  if (!region) return of_current();
  Context* own = region->context;
  // That of a pool and mapped memory belong to no context: their device's primary one stands in.
  if (own == nullptr) own = tables.contexts.primary(region->device);
  const bool fits = own != nullptr && own->session == region->session && own->usable();
  return of_session(*region->session, fits ? own : nullptr);
}

void CallTarget::give_back() { delete borrowed_; }

bool taken_by_other(Session& session, uint64_t address, uint64_t bytes) {
  if (Process::get().session(1) == nullptr) [[likely]]
    return false;
  return session.device_memory.overlaps_other(address, bytes, &session) ||
         session.reservations.overlaps_other(address, bytes, &session);
}

CUresult flush(Session& session) {
  // the channel's keepalive notices a dead server long before
  constexpr auto kPatience = std::chrono::minutes(10);
  if (const Status status = session.channel().ping(transport::Clock::now() + kPatience);
      !status.ok()) {
    return from_status(status);
  }
  Context* context = current_context();
  if (context == nullptr) return CUDA_SUCCESS;
  if (const int sticky = context->sticky.load()) return static_cast<CUresult>(sticky);
  return static_cast<CUresult>(context->kept.exchange(CUDA_SUCCESS));
}

}  // namespace fargpu::client
