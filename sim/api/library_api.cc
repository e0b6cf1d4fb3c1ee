// Libraries and their kernels: code that belongs to no context.
#include <algorithm>

#include "sim/object/api.h"
#include "sim/object/module.h"
#include "sim/work/jit_options.h"

using namespace fargpu::sim;

namespace {

std::shared_ptr<Context> context_or_null(Driver& driver) {
  std::shared_ptr<Context> context;
  return current_context(&context) == CUDA_SUCCESS ? context : nullptr;
}

CUresult load(Driver& driver, CUlibrary* handle, const void* image, unsigned num_jit,
              CUjit_option* jit_options, void** jit_values, unsigned num_library,
              CUlibraryOption* library_options) {
  if (handle == nullptr || image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (num_library != 0 && library_options == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < num_library; ++i) {
    if (library_options[i] < 0 || library_options[i] >= CU_LIBRARY_NUM_OPTIONS)
      return CUDA_ERROR_INVALID_VALUE;
  }
  JitOptions jit;
  if (CUresult result = jit.parse(num_jit, jit_options, jit_values); result != CUDA_SUCCESS)
    return result;
  const auto library = load_library(image, context_or_null(driver).get());
  jit.report(library->problem);
  *handle = to_handle<CUlibrary>(library->handle);
  return CUDA_SUCCESS;
}

// body(Library&, Module& in the current context).
template <typename Body>
CUresult in_current_context(CUlibrary handle, Body&& body) {
  return with_context([&](Context& context) -> CUresult {
    auto library = Driver::get().registry().find<Library>(handle);
    if (!library) return CUDA_ERROR_INVALID_HANDLE;
    std::shared_ptr<Module> module;
    if (CUresult result = library_module(*library, context, &module); result != CUDA_SUCCESS)
      return result;
    return body(*library, module);
  });
}

// body(Driver&, const std::shared_ptr<Kernel>&)
template <typename Body>
CUresult with_kernel(CUkernel handle, Body&& body) {
  return with_driver([&](Driver& driver) -> CUresult {
    auto kernel = driver.registry().find<Kernel>(handle);
    return kernel ? body(driver, kernel) : CUDA_ERROR_INVALID_HANDLE;
  });
}

// A driver loads the kernel's library in the current context, if there is one.
CUresult load_here(const Kernel& kernel) {
  std::shared_ptr<Context> context;
  const auto library = kernel.library.lock();
  if (!library || current_context(&context) != CUDA_SUCCESS) return CUDA_SUCCESS;
  std::shared_ptr<Module> module;
  return library_module(*library, *context, &module);
}

}  // namespace

CUresult CUDAAPI cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option* jitOptions,
                                   void** jitOptionsValues, unsigned int numJitOptions,
                                   CUlibraryOption* libraryOptions, void** libraryOptionValues,
                                   unsigned int numLibraryOptions) {
  return with_driver([&](Driver& driver) {
    return load(driver, library, code, numJitOptions, jitOptions, jitOptionsValues,
                numLibraryOptions, libraryOptions);
  });
}

CUresult CUDAAPI cuLibraryLoadFromFile(CUlibrary* library, const char* fileName,
                                       CUjit_option* jitOptions, void** jitOptionsValues,
                                       unsigned int numJitOptions, CUlibraryOption* libraryOptions,
                                       void** libraryOptionValues, unsigned int numLibraryOptions) {
  return with_driver([&](Driver& driver) -> CUresult {
    if (fileName == nullptr || *fileName == '\0') return CUDA_ERROR_INVALID_VALUE;
    std::string image;
    if (CUresult result = read_image_file(fileName, &image); result != CUDA_SUCCESS) return result;
    if (image.empty() || image.front() == '\0') return CUDA_ERROR_INVALID_IMAGE;
    return load(driver, library, image.data(), numJitOptions, jitOptions, jitOptionsValues,
                numLibraryOptions, libraryOptions);
  });
}

CUresult CUDAAPI cuLibraryUnload(CUlibrary handle) {
  return with_driver([&](Driver& driver) -> CUresult {
    auto library = driver.registry().remove<Library>(handle);
    if (!library) return CUDA_ERROR_INVALID_HANDLE;
    for (const auto& [name, kernel] : library->kernels) driver.registry().remove<Kernel>(kernel);
    std::map<uint64_t, std::shared_ptr<Module>> modules;
    {
      std::lock_guard lock(library->mutex);
      modules.swap(library->modules);
    }
    for (const auto& [id, module] : modules) {
      if (auto context = module->context.lock(); context && context->alive()) context->quiesce();
      driver.registry().remove<Module>(module->handle);
      std::lock_guard lock(module->mutex);
      for (const auto& [name, function] : module->functions)
        driver.registry().remove<Function>(function);
    }
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuLibraryGetKernel(CUkernel* pKernel, CUlibrary handle, const char* name) {
  return with_driver([&](Driver& driver) -> CUresult {
    if (pKernel == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
    auto library = driver.registry().find<Library>(handle);
    if (!library) return CUDA_ERROR_INVALID_HANDLE;
    if (CUresult result = usable(*library); result != CUDA_SUCCESS) return result;
    auto it = library->kernels.find(name);
    if (it == library->kernels.end()) return CUDA_ERROR_NOT_FOUND;
    *pKernel = to_handle<CUkernel>(it->second);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuLibraryGetKernelCount(unsigned int* count, CUlibrary lib) {
  return with_driver([&](Driver& driver) -> CUresult {
    if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
    auto library = driver.registry().find<Library>(lib);
    if (!library) return CUDA_ERROR_INVALID_HANDLE;
    *count = static_cast<unsigned>(library->kernels.size());
    return CUDA_SUCCESS;
  });
}

// Kernels of images have none that the host could call.
CUresult CUDAAPI cuLibraryGetUnifiedFunction(void** fptr, CUlibrary library, const char* symbol) {
  return with_driver([&](Driver& driver) -> CUresult {
    if (fptr == nullptr || symbol == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return driver.registry().find<Library>(library) ? CUDA_ERROR_INVALID_VALUE
                                                    : CUDA_ERROR_INVALID_HANDLE;
  });
}

CUresult CUDAAPI cuLibraryEnumerateKernels(CUkernel* kernels, unsigned int numKernels,
                                           CUlibrary lib) {
  return with_driver([&](Driver& driver) -> CUresult {
    if (kernels == nullptr) return CUDA_ERROR_INVALID_VALUE;
    auto library = driver.registry().find<Library>(lib);
    if (!library) return CUDA_ERROR_INVALID_HANDLE;
    if (CUresult result = usable(*library); result != CUDA_SUCCESS) return result;
    unsigned i = 0;
    for (const auto& [name, kernel] : library->kernels) {
      if (i == numKernels) break;
      kernels[i++] = to_handle<CUkernel>(kernel);
    }
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuLibraryGetModule(CUmodule* pMod, CUlibrary handle) {
  return in_current_context(handle,
                            [&](Library&, const std::shared_ptr<Module>& module) -> CUresult {
                              if (pMod == nullptr) return CUDA_ERROR_INVALID_VALUE;
                              *pMod = to_handle<CUmodule>(module->handle);
                              return CUDA_SUCCESS;
                            });
}

CUresult CUDAAPI cuLibraryGetGlobal(CUdeviceptr* dptr, size_t* bytes, CUlibrary handle,
                                    const char* name) {
  if (name == nullptr || *name == '\0' || (dptr == nullptr && bytes == nullptr))
    return CUDA_ERROR_INVALID_VALUE;
  return in_current_context(handle, [&](Library&, const std::shared_ptr<Module>& module) {
    return find_global(*module, name, dptr, bytes);
  });
}

CUresult CUDAAPI cuLibraryGetManaged(CUdeviceptr* dptr, size_t* bytes, CUlibrary handle,
                                     const char* name) {
  return with_driver([&](Driver& driver) -> CUresult {
    if (name == nullptr || *name == '\0' || (dptr == nullptr && bytes == nullptr))
      return CUDA_ERROR_INVALID_VALUE;
    const auto library = driver.registry().find<Library>(handle);
    if (!library) return CUDA_ERROR_INVALID_HANDLE;
    const auto found = library->managed->find(name);
    if (!found) return CUDA_ERROR_NOT_FOUND;
    if (dptr != nullptr) *dptr = found->address;
    if (bytes != nullptr) *bytes = found->bytes;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuKernelGetFunction(CUfunction* pFunc, CUkernel handle) {
  return with_context([&](Context& context) -> CUresult {
    if (pFunc == nullptr) return CUDA_ERROR_INVALID_VALUE;
    auto kernel = Driver::get().registry().find<Kernel>(handle);
    auto library = kernel ? kernel->library.lock() : nullptr;
    if (!library) return CUDA_ERROR_INVALID_HANDLE;
    std::shared_ptr<Module> module;
    if (CUresult result = library_module(*library, context, &module); result != CUDA_SUCCESS)
      return result;
    *pFunc = to_handle<CUfunction>(function_handle(module, kernel->info.name));
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuKernelGetLibrary(CUlibrary* pLib, CUkernel handle) {
  return with_kernel(handle, [&](Driver&, const std::shared_ptr<Kernel>& kernel) -> CUresult {
    if (pLib == nullptr) return CUDA_ERROR_INVALID_VALUE;
    auto library = kernel->library.lock();
    if (!library) return CUDA_ERROR_INVALID_HANDLE;
    *pLib = to_handle<CUlibrary>(library->handle);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuKernelGetAttribute(int* pi, CUfunction_attribute attrib, CUkernel handle,
                                      CUdevice dev) {
  return with_kernel(
      handle, [&](Driver& driver, const std::shared_ptr<Kernel>& kernel) -> CUresult {
        Device* device = driver.device(dev);
        if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
        if (pi == nullptr) return CUDA_ERROR_INVALID_VALUE;
        return function_attribute(kernel->info, *kernel->settings[static_cast<size_t>(dev)],
                                  device->compute_capability(), attrib, pi);
      });
}

CUresult CUDAAPI cuKernelSetAttribute(CUfunction_attribute attrib, int val, CUkernel handle,
                                      CUdevice dev) {
  return with_kernel(
      handle, [&](Driver& driver, const std::shared_ptr<Kernel>& kernel) -> CUresult {
        Device* device = driver.device(dev);
        if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
        if (CUresult result = load_here(*kernel); result != CUDA_SUCCESS) return result;
        return set_function_attribute(kernel->info, *kernel->settings[static_cast<size_t>(dev)],
                                      *device, attrib, val);
      });
}

CUresult CUDAAPI cuKernelSetCacheConfig(CUkernel handle, CUfunc_cache config, CUdevice dev) {
  return with_kernel(handle, [&](Driver& driver, const std::shared_ptr<Kernel>&) -> CUresult {
    if (driver.device(dev) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    const bool valid = config >= CU_FUNC_CACHE_PREFER_NONE && config <= CU_FUNC_CACHE_PREFER_EQUAL;
    return valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult CUDAAPI cuKernelGetName(const char** name, CUkernel handle) {
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return with_kernel(handle, [&](Driver&, const std::shared_ptr<Kernel>& kernel) -> CUresult {
    if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *name = kernel->info.name.c_str();
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuKernelGetParamInfo(CUkernel handle, size_t paramIndex, size_t* paramOffset,
                                      size_t* paramSize) {
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return with_kernel(handle, [&](Driver&, const std::shared_ptr<Kernel>& kernel) {
    const CUresult result = load_here(*kernel);
    return result != CUDA_SUCCESS
               ? result
               : parameter_info(kernel->info, paramIndex, paramOffset, paramSize);
  });
}
