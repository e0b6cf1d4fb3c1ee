// A __managed__ variable of a driver that has it where this program has something else: refused for
// the host, and the device has it all the same. When the addresses are free it works.
#include <sys/mman.h>

#include <cstdint>
#include <vector>

#include "driver_check.h"

#define EXPECT(condition)                                                            \
  do {                                                                               \
    if (!(condition)) {                                                              \
      std::fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
      return 1;                                                                      \
    }                                                                                \
  } while (0)

namespace {

// bump() adds 7 to `first` and copies it to *out.
const char* const kImage = R"ptx(
.version 7.5
.target sm_75
.address_size 64
.visible .global .attribute(.managed) .align 4 .u32 first = 5;
.visible .global .align 4 .u32 plain = 7;
.visible .entry bump(.param .u64 out)
{
  .reg .b32 %r<3>;
  .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [out];
  ld.global.u32 %r1, [first];
  add.u32 %r2, %r1, 7;
  st.global.u32 [first], %r2;
  st.global.u32 [%rd1], %r2;
  ret;
}
)ptx";

constexpr size_t kPage = 4096;
constexpr uint64_t kOurs = 0x5eed;

// Where the simulated GPU keeps such variables, whatever its slot.
std::vector<uint64_t*> take_addresses() {
  std::vector<uint64_t*> taken;
  for (uint64_t slot = 0; slot < 32; ++slot) {
    void* const wanted = reinterpret_cast<void*>((uint64_t{41} << 40) + (slot << 32));
    void* const got = mmap(wanted, kPage, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (got != wanted) continue;
    taken.push_back(static_cast<uint64_t*>(got));
    *taken.back() = kOurs;
  }
  return taken;
}

}  // namespace

int main() {
  const std::vector<uint64_t*> taken = take_addresses();
  EXPECT(taken.size() == 32);
  CHECK(cuInit(0));
  CUcontext context;
  CHECK(cuDevicePrimaryCtxRetain(&context, 0));
  CHECK(cuCtxSetCurrent(context));
  CUmodule module;
  CHECK(cuModuleLoadData(&module, kImage));
  CUdeviceptr first = 0, plain = 0, out = 0;
  size_t bytes = 0;
  EXPECT(cuModuleGetGlobal(&first, &bytes, module, "first") == CUDA_ERROR_NOT_SUPPORTED);
  EXPECT(first == 0 && bytes == 0);
  CHECK(cuModuleGetGlobal(&plain, nullptr, module, "plain"));

  CUfunction bump;
  CHECK(cuModuleGetFunction(&bump, module, "bump"));
  CHECK(cuMemAlloc(&out, 4));
  void* parameters[] = {&out};
  CHECK(cuLaunchKernel(bump, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr));
  uint32_t value = 0;
  CHECK(cuMemcpyDtoH(&value, out, 4));
  EXPECT(value == 12);
  for (uint64_t* page : taken) EXPECT(*page == kOurs);

  for (uint64_t* page : taken) EXPECT(munmap(page, kPage) == 0);
  CHECK(cuModuleGetGlobal(&first, &bytes, module, "first"));
  EXPECT(bytes == 4);
  auto* const here = reinterpret_cast<volatile uint32_t*>(first);
  EXPECT(*here == 12);
  *here = 20;
  CHECK(cuLaunchKernel(bump, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr));
  CHECK(cuCtxSynchronize());
  EXPECT(*here == 27);
  std::puts("managed_variables_taken: right");
  return 0;
}
