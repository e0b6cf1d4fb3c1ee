// Modules: loading text, errors of images, functions, globals, unloading; the same through
// libraries.
#include "tests/conformance/conformance.h"
#include "tests/conformance/kernels.h"

namespace {

void bad_images() {
  CUmodule module = nullptr;
  SHOW(cuModuleLoadData(&module, nullptr));
  SHOW(cuModuleLoadData(&module, "this is not PTX"));
  SHOW(cuModuleLoadData(&module,
                        ".version 7.5\n.target sm_75\n.address_size 64\n.visible .entry f() { "
                        "frobnicate.u32 %r1; ret; }\n"));
  SHOW(cuModuleLoad(&module, "/nonexistent/file.ptx"));
  char errors[512] = "";
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {errors, reinterpret_cast<void*>(sizeof(errors))};
  SHOW(cuModuleLoadDataEx(&module, "neither is this", 2, options, values));
  VALUE(errors[0] != 0);
}

void module_calls() {
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  CUdeviceptr address = 0;
  size_t bytes = 0;
  SHOW(cuModuleLoadData(&module, kKernels));
  unsigned functions = 0;
  SHOW(cuModuleGetFunctionCount(&functions, module));
  VALUE(functions);
  SHOW(cuModuleGetFunction(&function, module, "add"));
  SHOW(cuModuleGetFunction(&function, module, "none_such"));
  SHOW(cuModuleGetFunction(nullptr, module, "add"));
  SHOW(cuModuleGetFunction(&function, module, nullptr));
  SHOW(cuModuleGetFunction(&function, nullptr, "add"));
  CUmodule of = nullptr;
  SHOW(cuModuleGetFunction(&function, module, "add"));
  SHOW(cuFuncGetModule(&of, function));
  VALUE(of == module);
  const char* name = nullptr;
  SHOW(cuFuncGetName(&name, function));
  std::printf("  name %s\n", name == nullptr ? "(null)" : name);

  SHOW(cuModuleGetGlobal(&address, &bytes, module, "counter"));
  VALUE(bytes);
  unsigned value = 0;
  SHOW(cuMemcpyDtoH(&value, address, sizeof(value)));
  VALUE(value);
  NEED(cuModuleGetFunction(&function, module, "bump"));
  SHOW(cuLaunchKernel(function, 2, 1, 1, 10, 1, 1, 0, nullptr, nullptr, nullptr));
  SHOW(cuMemcpyDtoH(&value, address, sizeof(value)));
  VALUE(value);
  SHOW(cuModuleGetGlobal(&address, &bytes, module, "area"));
  VALUE(bytes);
  SHOW(cuModuleGetGlobal(&address, nullptr, module, "factor"));
  value = 7;
  SHOW(cuMemcpyHtoD(address, &value, sizeof(value)));
  NEED(cuModuleGetFunction(&function, module, "scale"));
  CUdeviceptr p;
  NEED(cuMemAlloc(&p, 128));
  NEED(cuMemsetD32(p, 6, 32));
  void* arguments[] = {&p};
  SHOW(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, nullptr, arguments, nullptr));
  SHOW(cuMemcpyDtoH(&value, p + 124, sizeof(value)));
  VALUE(value);
  SHOW(cuModuleGetGlobal(&address, &bytes, module, "none_such"));
  SHOW(cuModuleUnload(module));
}

void library_calls() {
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  CUfunction function = nullptr;
  CUdeviceptr address = 0;
  CUmodule module = nullptr;
  size_t bytes = 0;
  SHOW(cuLibraryLoadData(&library, kKernels, nullptr, nullptr, 0, nullptr, nullptr, 0));
  SHOW(cuLibraryGetKernel(&kernel, library, "none_such"));
  SHOW(cuLibraryGetKernel(&kernel, library, "bump"));
  unsigned kernels = 0;
  SHOW(cuLibraryGetKernelCount(&kernels, library));
  VALUE(kernels);
  void* unified = nullptr;
  SHOW(cuLibraryGetUnifiedFunction(&unified, library, "add"));
  SHOW(cuLibraryGetUnifiedFunction(&unified, library, "nothing"));
  SHOW(cuLibraryGetUnifiedFunction(nullptr, library, "add"));
  SHOW(cuLibraryGetGlobal(&address, &bytes, library, "counter"));
  VALUE(bytes);
  SHOW(cuLaunchKernel(reinterpret_cast<CUfunction>(kernel), 1, 1, 1, 5, 1, 1, 0, nullptr, nullptr,
                      nullptr));
  unsigned value = 0;
  SHOW(cuMemcpyDtoH(&value, address, sizeof(value)));
  VALUE(value);
  SHOW(cuKernelGetFunction(&function, kernel));
  SHOW(cuLaunchKernel(function, 1, 1, 1, 5, 1, 1, 0, nullptr, nullptr, nullptr));
  SHOW(cuMemcpyDtoH(&value, address, sizeof(value)));
  VALUE(value);
  SHOW(cuLibraryGetModule(&module, library));
  SHOW(cuModuleGetGlobal(&address, &bytes, module, "counter"));
  const char* name = nullptr;
  SHOW(cuKernelGetName(&name, kernel));
  std::printf("  name %s\n", name == nullptr ? "(null)" : name);
  int attribute = 0;
  SHOW(cuKernelGetAttribute(&attribute, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel, 0));
  VALUE(attribute);
  SHOW(cuLibraryUnload(library));
}

}  // namespace

int main() {
  make_context();
  bad_images();
  module_calls();
  library_calls();
  return 0;
}
