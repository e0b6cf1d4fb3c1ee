// Modules: images by content hash; functions and globals are remembered.
#include <algorithm>

#include "client/image/load.h"
#include "client/manual/common.h"
#include "client/servers/cross_server_work.h"
#include "client/transfer/managed.h"

namespace fargpu::client {
namespace {

CUresult find(const CallTarget& target, CUmodule module, ImageRecord** record) {
  return find_image(target.session, rpc::HandleKind::kModule, module, record);
}

}  // namespace

CUresult manual_cuModuleLoad(CUmodule* module, const char* fname) {
  if (module == nullptr || fname == nullptr || *fname == '\0') return CUDA_ERROR_INVALID_VALUE;
  std::vector<std::byte> contents;
  if (const CUresult result = read_image_file(fname, &contents); result != CUDA_SUCCESS)
    return result;
  return load_module(CallTarget::of_current().session, contents, module);
}

CUresult manual_cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned int numOptions,
                                   CUjit_option* options, void** optionValues) {
  if (module == nullptr || image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  JitOptions jit;
  if (const CUresult result = read_jit_options(numOptions, options, optionValues, &jit);
      result != CUDA_SUCCESS) {
    return result;
  }
  return load_module(CallTarget::of_current().session, image, jit, module);
}

CUresult manual_cuModuleUnload(CUmodule hmod) {
  const CallTarget target = CallTarget::of(hmod);
  CrossServerWork::finish_with_variables_of(reinterpret_cast<uint64_t>(hmod));
  return unload_with_variables(target.session, reinterpret_cast<uint64_t>(hmod), [&] {
    return call_cuModuleUnload(target.session, target.context, hmod);
  });
}

CUresult manual_cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *mode = CU_MODULE_LAZY_LOADING;
  return CUDA_SUCCESS;
}

CUresult manual_cuModuleGetFunction(CUfunction* hfunc, CUmodule hmod, const char* name) {
  if (hfunc == nullptr || name == nullptr || *name == '\0') return CUDA_ERROR_INVALID_VALUE;
  const CallTarget target = CallTarget::of(hmod);
  ImageRecord* record = nullptr;
  if (const CUresult result = find(target, hmod, &record); result != CUDA_SUCCESS) return result;
  // A library's kernel is its own function.
  if (record->parent != 0) {
    return manual_cuLibraryGetKernel(reinterpret_cast<CUkernel*>(hfunc),
                                     reinterpret_cast<CUlibrary>(record->parent), name);
  }
  uint64_t id = 0;
  const CUresult result = function_by_name(target.session, *record, name, &id);
  if (result == CUDA_SUCCESS) *hfunc = reinterpret_cast<CUfunction>(id);
  return result;
}

CUresult manual_cuModuleGetFunctionCount(unsigned int* count, CUmodule mod) {
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CallTarget target = CallTarget::of(mod);
  ImageRecord* record = nullptr;
  if (const CUresult result = find(target, mod, &record); result != CUDA_SUCCESS) return result;
  std::vector<std::string> names;
  const CUresult result = function_names(target.session, *record, &names);
  if (result == CUDA_SUCCESS) *count = static_cast<unsigned>(names.size());
  return result;
}

CUresult manual_cuModuleEnumerateFunctions(CUfunction* functions, unsigned int numFunctions,
                                           CUmodule mod) {
  if (functions == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CallTarget target = CallTarget::of(mod);
  ImageRecord* record = nullptr;
  if (const CUresult result = find(target, mod, &record); result != CUDA_SUCCESS) return result;
  std::vector<std::string> names;
  if (const CUresult result = function_names(target.session, *record, &names);
      result != CUDA_SUCCESS) {
    return result;
  }
  const size_t wanted = std::min<size_t>(numFunctions, names.size());
  for (size_t i = 0; i < wanted; ++i) {
    if (const CUresult result = manual_cuModuleGetFunction(&functions[i], mod, names[i].c_str());
        result != CUDA_SUCCESS) {
      return result;
    }
  }
  return CUDA_SUCCESS;
}

CUresult manual_cuModuleGetGlobal_v2(CUdeviceptr* dptr, size_t* bytes, CUmodule hmod,
                                     const char* name) {
  if (name == nullptr || *name == '\0' || (dptr == nullptr && bytes == nullptr))
    return CUDA_ERROR_INVALID_VALUE;
  const CallTarget target = CallTarget::of(hmod);
  ImageRecord* record = nullptr;
  if (const CUresult result = find(target, hmod, &record); result != CUDA_SUCCESS) return result;
  CUdeviceptr address = 0;
  size_t size = 0;
  const CUresult result =
      find_variable(target, "cuModuleGetGlobal", *record, name, &address, &size);
  if (result != CUDA_SUCCESS) return result;
  if (dptr != nullptr) *dptr = address;
  if (bytes != nullptr) *bytes = size;
  return CUDA_SUCCESS;
}

}  // namespace fargpu::client
