// A library for ctypes.PyDLL: a call of the driver while an exception of Python is under way, which
// must stay as it is; and one that says when it is under way. Python is found in the process.
#include <cuda.h>
#include <dlfcn.h>

namespace {

template <typename Function>
Function* python(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_DEFAULT, name));
}

}  // namespace

// Copies 4 bytes, which waits. 0 where all is right, with a KeyError("kept") for Python to raise.
extern "C" __attribute__((visibility("default"))) int copy_with_exception(void* to,
                                                                          CUdeviceptr from) {
  void* const kind = *python<void*>("PyExc_KeyError");
  python<void(void*, const char*)>("PyErr_SetString")(kind, "kept");
  const CUresult result = cuMemcpyDtoH(to, from, 4);
  const bool is_kept = python<void*()>("PyErr_Occurred")() == kind;
  return result == CUDA_SUCCESS && is_kept ? 0 : 1;
}

extern "C" __attribute__((visibility("default"))) int in_copy;
int in_copy = 0;

extern "C" __attribute__((visibility("default"))) int copy_and_say(void* to, CUdeviceptr from) {
  in_copy = 1;
  const CUresult result = cuMemcpyDtoH(to, from, 4);
  in_copy = 0;
  return result;
}
