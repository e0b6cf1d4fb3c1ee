#include "client/bench/measure/driver.h"

#include <dlfcn.h>

namespace fargpu::bench {

Driver driver;

Status load_driver() {
  void* const library = ::dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) return Status(StatusCode::kNotFound, ::dlerror());
#define FARGPU_LOAD(name, symbol)                                                  \
  driver.name = reinterpret_cast<decltype(driver.name)>(::dlsym(library, symbol)); \
  if (driver.name == nullptr) return Status(StatusCode::kNotFound, "libcuda.so.1 lacks " symbol);
  FARGPU_MEASURED_FUNCTIONS(FARGPU_LOAD)
#undef FARGPU_LOAD
  Dl_info info{};
  if (::dladdr(reinterpret_cast<void*>(driver.cuInit), &info) != 0) driver.path = info.dli_fname;
  return {};
}

void need(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return;
  const char* name = nullptr;
  if (driver.cuGetErrorName(result, &name) != CUDA_SUCCESS || name == nullptr) name = "an error";
  const std::string text = call;
  throw Failed(text.substr(0, text.find('(')) + ": " + name);
}

}  // namespace fargpu::bench
