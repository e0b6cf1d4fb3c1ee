// Which ranges can be registered: all of it must be there and writable, as a driver pins every page
// for writing.
#include <sys/mman.h>
#include <unistd.h>

#include "tests/conformance/conformance.h"

namespace {

constexpr size_t kMiB = size_t{1} << 20, kBytes = 4 * kMiB, kPage = 4096;

char* map(int protection = PROT_READ | PROT_WRITE, int file = -1) {
  void* const memory = ::mmap(nullptr, kBytes, protection,
                              file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) std::exit(3);
  return static_cast<char*>(memory);
}

int file_of(size_t bytes) {
  const int file = ::memfd_create("registered_ranges", 0);
  if (file < 0 || ::ftruncate(file, static_cast<off_t>(bytes)) != 0) std::exit(3);
  return file;
}

// With each flag; what was registered is used and given back.
void try_range(const char* what, char* memory, size_t bytes = kBytes) {
  std::printf("%s\n", what);
  for (const unsigned flags :
       {0u, unsigned{CU_MEMHOSTREGISTER_PORTABLE}, unsigned{CU_MEMHOSTREGISTER_DEVICEMAP}}) {
    if (SHOW(cuMemHostRegister(memory, bytes, flags)) != CUDA_SUCCESS) continue;
    CUdeviceptr device = 0;
    NEED(cuMemHostGetDevicePointer(&device, memory, 0));
    NEED(cuMemsetD8(device, 7, bytes));
    NEED(cuCtxSynchronize());
    VALUE(memory[bytes - 1]);
    NEED(cuMemHostUnregister(memory));
  }
}

// With CU_MEMHOSTREGISTER_READ_ONLY: device code reads it.
void try_read_only(const char* what, char* memory, size_t bytes = kBytes) {
  std::printf("%s, for reading\n", what);
  for (const unsigned more : {0u, unsigned{CU_MEMHOSTREGISTER_DEVICEMAP}}) {
    if (SHOW(cuMemHostRegister(memory, bytes, CU_MEMHOSTREGISTER_READ_ONLY | more)) != CUDA_SUCCESS)
      continue;
    CUdeviceptr device = 0, own = 0;
    unsigned flags = 0, access = 0;
    NEED(cuMemHostGetDevicePointer(&device, memory, 0));
    NEED(cuMemHostGetFlags(&flags, memory));
    VALUE(flags);
    NEED(cuPointerGetAttribute(&access, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, device));
    VALUE(access);
    NEED(cuMemAlloc(&own, bytes));
    NEED(cuMemcpyDtoD(own, device, bytes));
    NEED(cuMemcpyHtoD(own, memory, bytes));
    char last = 1;
    NEED(cuMemcpyDtoH(&last, own + bytes - 1, 1));
    VALUE(last == memory[bytes - 1]);
    NEED(cuMemFree(own));
    SHOW(cuMemHostRegister(memory, bytes, 0));
    NEED(cuMemHostUnregister(memory));
  }
}

}  // namespace

int main() {
  make_context();
  int supported = -1;
  NEED(cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, 0));
  VALUE(supported);
  char* memory = map();
  try_range("all there", memory);
  ::munmap(memory + kMiB, kMiB);
  try_range("a part in the middle is not mapped", memory);
  memory = map();
  ::munmap(memory + 3 * kMiB, kMiB);
  try_range("the end is not mapped", memory);
  try_range("up to the end of what is mapped", memory, 3 * kMiB);
  memory = map();
  ::munmap(memory, kBytes);
  try_range("nothing is mapped", memory);
  memory = map();
  ::mprotect(memory + kMiB, kPage, PROT_NONE);
  try_range("a guard page", memory);
  try_range("before a guard page", memory, kMiB);
  memory = map();
  ::mprotect(memory + kMiB, kPage, PROT_READ);
  try_range("a page that is read only", memory);
  try_range("no access at all", map(PROT_NONE));
  try_range("read only", map(PROT_READ));
  try_read_only("all there", map());
  try_read_only("a page that is read only", memory);
  try_read_only("read only", map(PROT_READ));
  try_read_only("no access at all", map(PROT_NONE));
  try_read_only("a file", map(PROT_READ, file_of(kBytes)));
  try_read_only("a file that ends before", map(PROT_READ, file_of(kBytes / 2)));
  try_range("a file", map(PROT_READ | PROT_WRITE, file_of(kBytes)));
  try_range("a file that ends before", map(PROT_READ | PROT_WRITE, file_of(kBytes / 2)));

  // Its owner has unmapped it meanwhile.
  memory = map();
  NEED(cuMemHostRegister(memory, kBytes, CU_MEMHOSTREGISTER_DEVICEMAP));
  ::munmap(memory, kBytes);
  SHOW(cuMemHostRegister(memory, kMiB, 0));
  SHOW(cuMemHostUnregister(memory));
  SHOW(cuMemHostUnregister(memory));
  SHOW(cuMemHostRegister(memory, kMiB, 0));
  SHOW(cuMemHostRegister(reinterpret_cast<void*>(0x10000), kPage, 0));
  return 0;
}
