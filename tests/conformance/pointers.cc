// What the driver says about pointers.
#include "tests/conformance/conformance.h"

namespace {

void describe(const char* what, CUdeviceptr pointer) {
  unsigned type = 0;
  CUresult result = cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer);
  std::printf("%s: type %s %u\n", what, error_name(result), type);
  int ordinal = -5;
  result = cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, pointer);
  std::printf("  ordinal %s %d\n", error_name(result), ordinal);
  size_t size = 0;
  result = cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, pointer);
  std::printf("  range %s %zu\n", error_name(result), size);
  unsigned managed = 9;
  result = cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, pointer);
  std::printf("  managed %s %u\n", error_name(result), managed);

  // The form that libcudart uses: no error for unknown pointers.
  unsigned many_type = 9, many_managed = 9;
  CUdeviceptr device_pointer = 1;
  CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                  CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
                                  CU_POINTER_ATTRIBUTE_IS_MANAGED};
  void* out[] = {&many_type, &device_pointer, &many_managed};
  result = cuPointerGetAttributes(3, wanted, out, pointer);
  std::printf("  together %s %u %u %s\n", error_name(result), many_type, many_managed,
              device_pointer == pointer ? "same"
              : device_pointer == 0     ? "none"
                                        : "other");
}

}  // namespace

int main() {
  CUcontext context = make_context();
  CUdeviceptr p;
  NEED(cuMemAlloc(&p, 1 << 16));
  describe("device", p);
  describe("inside", p + 1234);
  void* host;
  NEED(cuMemAllocHost(&host, 8192));
  describe("pinned", reinterpret_cast<CUdeviceptr>(host));
  static int local;
  describe("pageable", reinterpret_cast<CUdeviceptr>(&local));
  CUcontext of = nullptr;
  SHOW(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_CONTEXT, p));
  VALUE(of == context);
  unsigned long long id = 0, other = 0;
  SHOW(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, p));
  SHOW(cuPointerGetAttribute(&other, CU_POINTER_ATTRIBUTE_BUFFER_ID, p + 64));
  VALUE(id == other && id != 0);
  SHOW(cuPointerGetAttribute(nullptr, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));
  SHOW(cuPointerGetAttribute(&id, static_cast<CUpointer_attribute>(999), p));
  int yes = 1;
  SHOW(cuPointerSetAttribute(&yes, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p));
  SHOW(cuMemFree(p));
  unsigned type = 0;
  SHOW(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));
  return 0;
}
