#include "client/manual/common.h"

#include <optional>
#include <utility>

#include "client/manual/apart.h"
#include "client/memory/reserve.h"
#include "client/object/image_records.h"
#include "client/transfer/managed.h"
#include "common/base/log.h"
#include "generated/client/wire/internal.h"
#include "generated/schema/opcodes.h"

namespace fargpu::client {

namespace {

CUresult remember_global(Session& session, const char* name, CUdeviceptr address, size_t bytes,
                         uint64_t owner) {
  const Context* context = current_context();
  // The variable is where the driver has put it: it cannot be moved.
  if (taken_by_other(session, address, bytes)) return refuse_address(session, name, address);
  if (session.device_memory.find(address)) return CUDA_SUCCESS;
  const Region region{.base = address,
                      .bytes = bytes,
                      .kind = MemoryKind::kGlobal,
                      .session = &session,
                      .context = current_context(),
                      .device = context == nullptr ? session.first_device : context->device,
                      .buffer_id = session.next_buffer_id(),
                      .reserved = reserve_addresses(address, bytes),
                      .owner = owner};
  if (!session.device_memory.insert(region) && region.reserved) release_reserved(address, bytes);
  return CUDA_SUCCESS;
}

// From a server that does not tell where the driver keeps it.
CUresult ask_for_variable(const CallTarget& target, const Object& image, const char* name,
                          CUdeviceptr* address, size_t* bytes) {
  return image.kind() == rpc::HandleKind::kLibrary
             ? call_cuLibraryGetGlobal(target.session, target.context, address, bytes,
                                       reinterpret_cast<CUlibrary>(image.id), name)
             : call_cuModuleGetGlobal_v2(target.session, target.context, address, bytes,
                                         reinterpret_cast<CUmodule>(image.id), name);
}

}  // namespace

CUresult find_variable(const CallTarget& target, const char* function, const Object& image,
                       const char* name, CUdeviceptr* address, size_t* bytes) {
  const bool is_library = image.kind() == rpc::HandleKind::kLibrary;
  int managed = 0;
  const CUresult result =
      target.session.knows(schema::op_fgImageVariable)
          ? wire::fgImageVariable(target.session, target.context, image.id, is_library ? 1 : 0,
                                  name, address, bytes, &managed)
          : ask_for_variable(target, image, name, address, bytes);
  if (result != CUDA_SUCCESS) return result;
  return managed != 0 ? remember_managed(target.session, function, image, *address, *bytes)
                      : remember_global(target.session, function, *address, *bytes, image.id);
}

CUresult remember_managed(Session& session, const char* function, const Object& image,
                          CUdeviceptr address, size_t bytes) {
  // A library's modules share its variables.
  const uint64_t owner = image.parent != 0 ? image.parent : image.id;
  const auto* const library =
      static_cast<const ImageRecord*>(session.find(rpc::HandleKind::kLibrary, owner));
  if (library != nullptr && !library->twins.empty()) {
    log::warn("{}: a __managed__ variable of a library cannot be on several servers: refused",
              function);
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  if (taken_by_other(session, address, bytes)) return refuse_address(session, function, address);
  Context* context = image.context;
  if (context == nullptr) {
    Context* const current = current_context();
    context = current != nullptr && current->session == &session
                  ? current
                  : session.contexts.primary(session.first_device);
  }
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return add_managed_variable(session, function, {address, bytes, owner, context});
}

namespace {

// `target` may have made another context current than the caller's.
CUresult in_default_stream_of(CUstream stream, Context* caller, const CallTarget& target,
                              const std::function<CUresult(const CallTarget&)>& work) {
  if (caller == nullptr || current_context() == caller) return work(target);
  {
    const ContextScope scope(caller);
    const CUresult before = call_cuStreamSynchronize(*caller->session, caller->wire_id, stream);
    if (before != CUDA_SUCCESS) return before;
  }
  const CUresult result = work(target);
  if (result != CUDA_SUCCESS) return result;
  return call_cuStreamSynchronize(target.session, target.context, stream);
}

}  // namespace

CUresult in_default_stream(CUstream stream, CUdeviceptr address, CUdeviceptr other,
                           const std::function<CUresult(const CallTarget&)>& work) {
  Context* const caller = current_context();
  const auto second = Process::get().tables()->device_memory.find(other);
  if (caller != nullptr && second && second->session == caller->session) std::swap(address, other);
  return in_default_stream_of(stream, caller, CallTarget::of_memory(address, other), work);
}

CUresult in_default_stream(CUstream stream, CUarray array,
                           const std::function<CUresult(const CallTarget&)>& work) {
  Context* const caller = current_context();
  return in_default_stream_of(stream, caller, CallTarget::of(array), work);
}

CUresult parameter_info(const Function& function, size_t index, size_t* offset, size_t* size) {
  if (offset == nullptr || index >= function.parameters.size()) return CUDA_ERROR_INVALID_VALUE;
  *offset = function.parameters[index].offset;
  if (size != nullptr) *size = function.parameters[index].size;
  return CUDA_SUCCESS;
}

CUresult check_event_of_launch(const CUlaunchAttribute& attribute, bool is_captured) {
  const bool is_programmatic = attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT;
  const auto [handle, flags] = is_programmatic
                                   ? std::pair(attribute.value.programmaticEvent.event,
                                               attribute.value.programmaticEvent.flags)
                                   : std::pair(attribute.value.launchCompletionEvent.event,
                                               attribute.value.launchCompletionEvent.flags);
  if (flags < 0 || flags > CU_EVENT_RECORD_EXTERNAL) return CUDA_ERROR_INVALID_VALUE;
  if (flags == CU_EVENT_RECORD_EXTERNAL)
    return is_captured ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_ILLEGAL_STATE;
  const auto* const event = static_cast<const Event*>(Process::get().tables()->handles.find(
      rpc::HandleKind::kEvent, reinterpret_cast<uint64_t>(handle)));
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return event->is_timed.load(std::memory_order_relaxed) ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

CUresult set_attribute(Function& function, int device, const Context* of_function,
                       CUfunction_attribute attribute, int value,
                       const std::function<CUresult()>& send) {
  const Context* const context = current_context();
  std::optional<DynamicSharedLimit::Setting> setting;
  if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
    DynamicSharedLimit& limit =
        of_function != nullptr ? function.dynamic_shared_in_context : function.dynamic_shared;
    if (context != nullptr && limit.is(*context, device, value)) return CUDA_SUCCESS;
    setting.emplace(limit, context, device);
  }
  const CUresult result = send();
  if (result != CUDA_SUCCESS) return result;
  if (setting) setting->succeeded(value);
  if (attribute == CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED) value = value != 0 ? 1 : 0;
  if (of_function != nullptr)
    function.set_in_context(*of_function, attribute, value);
  else
    function.set_on_device(device, attribute, value);
  return CUDA_SUCCESS;
}

CUresult flush_interprocess(Session& session, CUevent event, CUresult result) {
  if (result != CUDA_SUCCESS) return result;
  return flush_interprocess(
      session,
      static_cast<Event*>(session.find(rpc::HandleKind::kEvent, reinterpret_cast<uint64_t>(event))),
      result);
}

CUresult flush_interprocess(Session& session, const Event* event, CUresult result) {
  const bool told = result == CUDA_SUCCESS && event != nullptr &&
                    event->interprocess.load(std::memory_order_relaxed);
  return told ? flush(session) : result;
}

}  // namespace fargpu::client
