// nvml_by_rpath: loads libnvidia-ml.so.1 by its name; its RPATH leads to the simulator's. Prints
// how many devices that library has, and where it is.
#include <dlfcn.h>

#include <cstdio>

int main() {
  void* const library = ::dlopen("libnvidia-ml.so.1", RTLD_NOW);
  if (library == nullptr) return std::puts(::dlerror()), 1;
  const auto init = reinterpret_cast<int (*)()>(::dlsym(library, "nvmlInit_v2"));
  const auto count =
      reinterpret_cast<int (*)(unsigned*)>(::dlsym(library, "nvmlDeviceGetCount_v2"));
  unsigned devices = 0;
  Dl_info about{};
  if (init == nullptr || count == nullptr || init() != 0 || count(&devices) != 0 ||
      ::dladdr(reinterpret_cast<void*>(init), &about) == 0)
    return 1;
  std::printf("%u %s\n", devices, about.dli_fname);
  return 0;
}
