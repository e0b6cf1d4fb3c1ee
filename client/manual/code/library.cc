// Libraries and kernels: like modules, but of no context. A CUkernel also serves as the CUfunction
// of every context.
#include <algorithm>

#include "client/image/load.h"
#include "client/image/twins.h"
#include "client/manual/common.h"
#include "client/process/process.h"
#include "client/servers/cross_server_work.h"
#include "client/transfer/managed.h"

namespace fargpu::client {
namespace {

CUresult find(const CallTarget& target, CUlibrary library, ImageRecord** record) {
  return find_image(target.session, rpc::HandleKind::kLibrary, library, record);
}

// The kernel where the device is.
CUkernel on_device(CUkernel kernel, CUdevice device) {
  Session* const session = Process::get().session_of_device(device);
  return session == nullptr ? kernel : in_session(*session, kernel);
}

}  // namespace

CUresult manual_cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option* jitOptions,
                                  void** jitOptionsValues, unsigned int numJitOptions,
                                  CUlibraryOption* libraryOptions, void** libraryOptionValues,
                                  unsigned int numLibraryOptions) {
  if (library == nullptr || code == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // No values: fine for options that have none, as cuBLAS passes them.
  if (numLibraryOptions != 0 && libraryOptions == nullptr) return CUDA_ERROR_INVALID_VALUE;
  JitOptions jit;
  if (const CUresult result = read_jit_options(numJitOptions, jitOptions, jitOptionsValues, &jit);
      result != CUDA_SUCCESS) {
    return result;
  }
  // The library options concern memory of this process (host functions, whether `code` stays):
  // nothing for the server.
  return load_library(CallTarget::of_current().session, code, jit, library);
}

CUresult manual_cuLibraryLoadFromFile(CUlibrary* library, const char* fileName,
                                      CUjit_option* jitOptions, void** jitOptionsValues,
                                      unsigned int numJitOptions, CUlibraryOption* libraryOptions,
                                      void** libraryOptionValues, unsigned int numLibraryOptions) {
  if (library == nullptr || fileName == nullptr || *fileName == '\0')
    return CUDA_ERROR_INVALID_VALUE;
  // No values: fine for options that have none, as cuBLAS passes them.
  if (numLibraryOptions != 0 && libraryOptions == nullptr) return CUDA_ERROR_INVALID_VALUE;
  JitOptions jit;
  if (const CUresult result = read_jit_options(numJitOptions, jitOptions, jitOptionsValues, &jit);
      result != CUDA_SUCCESS) {
    return result;
  }
  std::vector<std::byte> contents;
  if (const CUresult result = read_image_file(fileName, &contents); result != CUDA_SUCCESS)
    return result;
  return load_library(CallTarget::of_current().session, contents, jit, library);
}

CUresult manual_cuLibraryUnload(CUlibrary library) {
  const CallTarget target = CallTarget::of(library);
  ImageRecord* record = nullptr;
  if (const CUresult result = find(target, library, &record); result != CUDA_SUCCESS) return result;
  for (const auto& [number, twin] : record->twins) {
    const ContextScope none(nullptr);
    CrossServerWork::finish_with_variables_of(twin);
    (void)call_cuLibraryUnload(*Process::get().session(number), 0,
                               reinterpret_cast<CUlibrary>(twin));
  }
  CrossServerWork::finish_with_variables_of(record->id);
  return unload_with_variables(target.session, record->id, [&] {
    return call_cuLibraryUnload(target.session, target.context, library);
  });
}

CUresult manual_cuLibraryGetKernel(CUkernel* pKernel, CUlibrary library, const char* name) {
  if (pKernel == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  library = surviving(library);
  const CallTarget target = CallTarget::of(library);
  ImageRecord* record = nullptr;
  if (const CUresult result = find(target, library, &record); result != CUDA_SUCCESS) return result;
  uint64_t id = 0;
  const CUresult result = function_by_name(target.session, *record, name, &id);
  if (result == CUDA_SUCCESS) *pKernel = reinterpret_cast<CUkernel>(id);
  return result;
}

CUresult manual_cuLibraryGetKernelCount(unsigned int* count, CUlibrary lib) {
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  lib = surviving(lib);
  const CallTarget target = CallTarget::of(lib);
  ImageRecord* record = nullptr;
  if (const CUresult result = find(target, lib, &record); result != CUDA_SUCCESS) return result;
  std::vector<std::string> names;
  const CUresult result = function_names(target.session, *record, &names);
  if (result == CUDA_SUCCESS) *count = static_cast<unsigned>(names.size());
  return result;
}

CUresult manual_cuLibraryEnumerateKernels(CUkernel* kernels, unsigned int numKernels,
                                          CUlibrary lib) {
  if (kernels == nullptr) return CUDA_ERROR_INVALID_VALUE;
  lib = surviving(lib);
  const CallTarget target = CallTarget::of(lib);
  ImageRecord* record = nullptr;
  if (const CUresult result = find(target, lib, &record); result != CUDA_SUCCESS) return result;
  std::vector<std::string> names;
  if (const CUresult result = function_names(target.session, *record, &names);
      result != CUDA_SUCCESS) {
    return result;
  }
  const size_t wanted = std::min<size_t>(numKernels, names.size());
  for (size_t i = 0; i < wanted; ++i) {
    if (const CUresult result = manual_cuLibraryGetKernel(&kernels[i], lib, names[i].c_str());
        result != CUDA_SUCCESS) {
      return result;
    }
  }
  return CUDA_SUCCESS;
}

CUresult manual_cuLibraryGetModule(CUmodule* pMod, CUlibrary library) {
  if (pMod == nullptr) return CUDA_ERROR_INVALID_VALUE;
  library = of_current_session(library);
  const CallTarget target = CallTarget::of(library);
  ImageRecord* record = nullptr;
  if (const CUresult result = find(target, library, &record); result != CUDA_SUCCESS) return result;
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;  // it is of another session
  std::lock_guard lock(record->mutex);
  uint64_t& module = record->modules[current_context()];
  // A reset of the context has taken its modules away.
  if (module != 0 && target.session.find(rpc::HandleKind::kModule, module) != nullptr) {
    *pMod = reinterpret_cast<CUmodule>(module);
    return CUDA_SUCCESS;
  }
  const CUresult result = use_image(target.session, target.context, *record, [&] {
    return call_cuLibraryGetModule(target.session, target.context, pMod, library);
  });
  if (result == CUDA_SUCCESS) module = reinterpret_cast<uint64_t>(*pMod);
  return result;
}

// No image of today's compilers has one; a driver answers this.
CUresult manual_cuLibraryGetUnifiedFunction(void** fptr, CUlibrary library, const char* symbol) {
  if (fptr == nullptr || symbol == nullptr) return CUDA_ERROR_INVALID_VALUE;
  library = surviving(library);
  ImageRecord* record = nullptr;
  const CUresult result = find(CallTarget::of(library), library, &record);
  return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
}

CUresult manual_cuKernelGetFunction(CUfunction* pFunc, CUkernel kernel) {
  if (pFunc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  kernel = of_current_session(kernel);
  const CallTarget target = CallTarget::of(kernel);
  Function* found = nullptr;
  if (const CUresult result = find_kernel(target.session, kernel, &found); result != CUDA_SUCCESS) {
    return result;
  }
  // Every place that takes a CUfunction takes the kernel's handle too, here and in the worker.
  *pFunc = reinterpret_cast<CUfunction>(kernel);
  return CUDA_SUCCESS;
}

CUresult manual_cuKernelGetLibrary(CUlibrary* pLib, CUkernel kernel) {
  if (pLib == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CallTarget target = CallTarget::of(kernel);
  Function* found = nullptr;
  if (const CUresult result = find_kernel(target.session, kernel, &found); result != CUDA_SUCCESS) {
    return result;
  }
  *pLib = reinterpret_cast<CUlibrary>(found->parent);
  return CUDA_SUCCESS;
}

CUresult manual_cuLibraryGetGlobal(CUdeviceptr* dptr, size_t* bytes, CUlibrary library,
                                   const char* name) {
  if (name == nullptr || *name == '\0' || (dptr == nullptr && bytes == nullptr))
    return CUDA_ERROR_INVALID_VALUE;
  library = of_current_session(library);
  const CallTarget target = CallTarget::of(library);
  ImageRecord* record = nullptr;
  if (const CUresult result = find(target, library, &record); result != CUDA_SUCCESS) return result;
  CUdeviceptr address = 0;
  size_t size = 0;
  const CUresult result = use_image(target.session, target.context, *record, [&] {
    return find_variable(target, "cuLibraryGetGlobal", *record, name, &address, &size);
  });
  if (result != CUDA_SUCCESS) return result;
  if (dptr != nullptr) *dptr = address;
  if (bytes != nullptr) *bytes = size;
  return CUDA_SUCCESS;
}

// The runtime asks when it has loaded the library, before there is a context.
CUresult manual_cuLibraryGetManaged(CUdeviceptr* dptr, size_t* bytes, CUlibrary library,
                                    const char* name) {
  if (name == nullptr || *name == '\0' || (dptr == nullptr && bytes == nullptr))
    return CUDA_ERROR_INVALID_VALUE;
  const CallTarget target = CallTarget::of(library);
  ImageRecord* record = nullptr;
  if (const CUresult result = find(target, library, &record); result != CUDA_SUCCESS) return result;
  CUdeviceptr address = 0;
  size_t size = 0;
  CUresult result =
      call_cuLibraryGetManaged(target.session, target.context, &address, &size, library, name);
  if (result == CUDA_SUCCESS)
    result = remember_managed(target.session, "cuLibraryGetManaged", *record, address, size);
  if (result != CUDA_SUCCESS) return result;
  if (dptr != nullptr) *dptr = address;
  if (bytes != nullptr) *bytes = size;
  return CUDA_SUCCESS;
}

CUresult manual_cuKernelGetAttribute(int* pi, CUfunction_attribute attrib, CUkernel kernel,
                                     CUdevice dev) {
  if (pi == nullptr || static_cast<size_t>(attrib) >= kFunctionAttributes)
    return CUDA_ERROR_INVALID_VALUE;
  kernel = on_device(kernel, dev);
  const CallTarget target = CallTarget::of(kernel);
  Function* found = nullptr;
  if (const CUresult result = find_kernel(target.session, kernel, &found); result != CUDA_SUCCESS)
    return result;
  if (target.session.device(dev) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  FunctionAttributes* attributes = nullptr;
  if (const CUresult result = attributes_on(target.session, *found, dev, &attributes);
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

CUresult manual_cuKernelSetAttribute(CUfunction_attribute attrib, int val, CUkernel kernel,
                                     CUdevice dev) {
  kernel = on_device(kernel, dev);
  const CallTarget target = CallTarget::of(kernel);
  Function* found = nullptr;
  if (const CUresult result = find_kernel(target.session, kernel, &found); result != CUDA_SUCCESS)
    return result;
  return set_attribute(*found, dev, nullptr, attrib, val, [&] {
    return call_cuKernelSetAttribute(target.session, target.context, attrib, val, kernel, dev);
  });
}

CUresult manual_cuKernelGetName(const char** name, CUkernel hfunc) {
  if (name == nullptr || hfunc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CallTarget target = CallTarget::of(hfunc);
  Function* found = nullptr;
  if (const CUresult result = find_kernel(target.session, hfunc, &found); result != CUDA_SUCCESS)
    return result;
  *name = found->name.c_str();
  return CUDA_SUCCESS;
}

CUresult manual_cuKernelGetParamInfo(CUkernel kernel, size_t paramIndex, size_t* paramOffset,
                                     size_t* paramSize) {
  if (kernel == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CallTarget target = CallTarget::of(kernel);
  Function* found = nullptr;
  if (const CUresult result = find_kernel(target.session, kernel, &found); result != CUDA_SUCCESS)
    return result;
  return parameter_info(*found, paramIndex, paramOffset, paramSize);
}

}  // namespace fargpu::client
