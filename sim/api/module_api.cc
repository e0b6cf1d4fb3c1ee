// Modules: loading images, functions and globals by name.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>

#include "sim/base/program_report.h"
#include "sim/context/primary_context.h"
#include "sim/object/api.h"
#include "sim/object/module.h"
#include "sim/work/jit_options.h"

using namespace fargpu::sim;

namespace {

CUresult load_module(Context& context, CUmodule* handle, const void* image, JitOptions& options) {
  ImageTexts texts;
  std::string problem;
  std::shared_ptr<Module> module;
  CUresult result = texts_of_image(image, context.device().compute_capability(), &texts, &problem);
  if (result == CUDA_SUCCESS) result = load_texts(context, texts, nullptr, &module, &problem);
  options.report(problem);
  if (result != CUDA_SUCCESS) {
    report_to_program("cannot load a module: " + problem);
    return result;
  }
  context.quiesce_if_locked();
  if (const auto primary = PrimaryContext::of(context.device()).get();
      primary && primary.get() != &context)
    primary->quiesce_if_locked();
  *handle = to_handle<CUmodule>(module->handle);
  return CUDA_SUCCESS;
}

// A module of the current context, or CUDA_ERROR_INVALID_HANDLE.
CUresult find_module(CUmodule handle, std::shared_ptr<Module>* module) {
  *module = Driver::get().registry().find<Module>(handle);
  return *module ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

}  // namespace

CUresult CUDAAPI cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned int numOptions,
                                    CUjit_option* options, void** optionValues) {
  return with_context([&](Context& context) -> CUresult {
    if (module == nullptr || image == nullptr) return CUDA_ERROR_INVALID_VALUE;
    JitOptions jit;
    if (CUresult result = jit.parse(numOptions, options, optionValues); result != CUDA_SUCCESS)
      return result;
    return load_module(context, module, image, jit);
  });
}

CUresult CUDAAPI cuModuleLoadData(CUmodule* module, const void* image) {
  return cuModuleLoadDataEx(module, image, 0, nullptr, nullptr);
}

CUresult CUDAAPI cuModuleLoadFatBinary(CUmodule* module, const void* fatCubin) {
  return cuModuleLoadDataEx(module, fatCubin, 0, nullptr, nullptr);
}

CUresult CUDAAPI cuModuleLoad(CUmodule* module, const char* fname) {
  return with_context([&](Context& context) -> CUresult {
    if (module == nullptr || fname == nullptr || *fname == '\0') return CUDA_ERROR_INVALID_VALUE;
    std::string image;
    if (CUresult result = read_image_file(fname, &image); result != CUDA_SUCCESS) return result;
    JitOptions jit;
    return load_module(context, module, image.data(), jit);
  });
}

CUresult CUDAAPI cuModuleUnload(CUmodule hmod) {
  return with_context_of(hmod, [&](Context&) -> CUresult {
    Registry& registry = Driver::get().registry();
    auto module = registry.find<Module>(hmod);
    if (!module) return CUDA_ERROR_INVALID_HANDLE;
    if (module->library.lock()) return CUDA_ERROR_NOT_PERMITTED;  // goes with its library
    if (auto owner = module->context.lock()) owner->quiesce();
    if (!registry.remove<Module>(hmod)) return CUDA_ERROR_INVALID_HANDLE;
    std::lock_guard lock(module->mutex);
    for (const auto& [name, handle] : module->functions) registry.remove<Function>(handle);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  return with_driver([&](Driver&) -> CUresult {
    if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *mode = CU_MODULE_LAZY_LOADING;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuModuleGetFunction(CUfunction* hfunc, CUmodule hmod, const char* name) {
  return with_context_of(hmod, [&](Context&) -> CUresult {
    if (hfunc == nullptr || name == nullptr || *name == '\0') return CUDA_ERROR_INVALID_VALUE;
    std::shared_ptr<Module> module;
    if (CUresult result = find_module(hmod, &module); result != CUDA_SUCCESS) return result;
    const uint64_t handle = function_handle(module, name);
    if (handle == 0) return CUDA_ERROR_NOT_FOUND;
    *hfunc = to_handle<CUfunction>(handle);
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuModuleGetFunctionCount(unsigned int* count, CUmodule mod) {
  return with_context_of(mod, [&](Context&) -> CUresult {
    if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::shared_ptr<Module> module;
    if (CUresult result = find_module(mod, &module); result != CUDA_SUCCESS) return result;
    *count = static_cast<unsigned>(module->program->kernel_names().size());
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuModuleEnumerateFunctions(CUfunction* functions, unsigned int numFunctions,
                                            CUmodule mod) {
  return with_context_of(mod, [&](Context&) -> CUresult {
    if (functions == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::shared_ptr<Module> module;
    if (CUresult result = find_module(mod, &module); result != CUDA_SUCCESS) return result;
    const auto names = module->program->kernel_names();
    const size_t count = std::min<size_t>(numFunctions, names.size());
    for (size_t i = 0; i < count; ++i)
      functions[i] = to_handle<CUfunction>(function_handle(module, names[i]));
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuModuleGetGlobal_v2(CUdeviceptr* dptr, size_t* bytes, CUmodule hmod,
                                      const char* name) {
  return with_context_of(hmod, [&](Context&) -> CUresult {
    if (name == nullptr || *name == '\0' || (dptr == nullptr && bytes == nullptr))
      return CUDA_ERROR_INVALID_VALUE;
    std::shared_ptr<Module> module;
    if (CUresult result = find_module(hmod, &module); result != CUDA_SUCCESS) return result;
    return find_global(*module, name, dptr, bytes);
  });
}
