// Functions: what came back with them, and the old way of launching by parameter setters.
#include "client/image/load.h"
#include "client/image/twins.h"
#include "client/manual/common.h"

namespace fargpu::client {
namespace {

// A kernel that is of another session than the current context has no device to speak of.
CUresult find(const CallTarget& target, CUfunction handle, Function** function) {
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return find_function(target.session, handle, function);
}

}  // namespace

CUresult manual_cuFuncGetAttribute(int* pi, CUfunction_attribute attrib, CUfunction hfunc) {
  if (pi == nullptr || static_cast<size_t>(attrib) >= kFunctionAttributes)
    return CUDA_ERROR_INVALID_VALUE;
  hfunc = of_current_session(hfunc);
  const CallTarget target = CallTarget::of(hfunc);
  Function* function = nullptr;
  if (const CUresult result = find(target, hfunc, &function); result != CUDA_SUCCESS) return result;
  FunctionAttributes* attributes = nullptr;
  if (const CUresult result =
          attributes_in(target.session, *function, *current_context(), &attributes);
      result != CUDA_SUCCESS) {
    return result;
  }
  const int value = (*attributes)[attrib].load(std::memory_order_relaxed);
  if (value == kUnknownAttribute && attrib != CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *pi = value;
  return CUDA_SUCCESS;
}

CUresult manual_cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute attrib, int value) {
  hfunc = of_current_session(hfunc);
  const CallTarget target = CallTarget::of(hfunc);
  Function* function = nullptr;
  if (const CUresult result = find(target, hfunc, &function); result != CUDA_SUCCESS) return result;
  const Context& context = *current_context();
  const bool of_kernel = function->kind() == rpc::HandleKind::kKernel;
  FunctionAttributes* known = nullptr;  // what the others of a kernel's function are
  if (const CUresult result = of_kernel
                                  ? attributes_on(target.session, *function, context.device, &known)
                                  : CUDA_SUCCESS;
      result != CUDA_SUCCESS) {
    return result;
  }
  return set_attribute(
      *function, context.device, of_kernel ? &context : nullptr, attrib, value, [&] {
        return call_cuFuncSetAttribute(target.session, target.context, hfunc, attrib, value);
      });
}

CUresult manual_cuFuncGetModule(CUmodule* hmod, CUfunction hfunc) {
  if (hmod == nullptr || hfunc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  hfunc = of_current_session(hfunc);
  const CallTarget target = CallTarget::of(hfunc);
  Function* function = nullptr;
  if (const CUresult result = find(target, hfunc, &function); result != CUDA_SUCCESS) return result;
  if (function->kind() == rpc::HandleKind::kKernel) {
    return manual_cuLibraryGetModule(hmod, reinterpret_cast<CUlibrary>(function->parent));
  }
  *hmod = reinterpret_cast<CUmodule>(function->parent);
  return CUDA_SUCCESS;
}

CUresult manual_cuFuncGetName(const char** name, CUfunction hfunc) {
  if (name == nullptr || hfunc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  hfunc = of_current_session(hfunc);
  const CallTarget target = CallTarget::of(hfunc);
  Function* function = nullptr;
  if (const CUresult result = find(target, hfunc, &function); result != CUDA_SUCCESS) return result;
  *name = function->name.c_str();
  return CUDA_SUCCESS;
}

CUresult manual_cuFuncGetParamInfo(CUfunction func, size_t paramIndex, size_t* paramOffset,
                                   size_t* paramSize) {
  if (func == nullptr) return CUDA_ERROR_INVALID_VALUE;
  func = of_current_session(func);
  const CallTarget target = CallTarget::of(func);
  Function* function = nullptr;
  if (const CUresult result = find(target, func, &function); result != CUDA_SUCCESS) return result;
  return parameter_info(*function, paramIndex, paramOffset, paramSize);
}

CUresult manual_cuFuncIsLoaded(CUfunctionLoadingState* state, CUfunction function) {
  if (state == nullptr) return CUDA_ERROR_INVALID_VALUE;
  function = of_current_session(function);
  const CallTarget target = CallTarget::of(function);
  Function* found = nullptr;
  if (const CUresult result = find(target, function, &found); result != CUDA_SUCCESS) return result;
  *state = CU_FUNCTION_LOADING_STATE_LOADED;
  return CUDA_SUCCESS;
}

CUresult manual_cuFuncLoad(CUfunction function) {
  function = of_current_session(function);
  Function* found = nullptr;
  return find(CallTarget::of(function), function, &found);
}

}  // namespace fargpu::client
