// A synchronous copy from pageable memory waits for its stream before it reads: it copies what a
// host function before it wrote, and what another thread wrote before it let the stream go on. Of
// up to 64 KiB less is promised.
#include <thread>
#include <vector>

#include "tests/orderings/check.h"

namespace {

constexpr size_t kBytes = 4u << 20;
std::vector<unsigned char> source(kBytes);
CUdeviceptr target;

void fill(unsigned char value) {
  usleep(100'000);
  std::memset(source.data(), value, kBytes);
}

void CUDA_CB fill_by_function(void* value) { fill(*static_cast<unsigned char*>(value)); }

void copy_line() { CU(cuMemcpyHtoD(target, source.data(), kBytes)); }

void copy_rows() {
  CUDA_MEMCPY2D rows{};
  rows.srcMemoryType = CU_MEMORYTYPE_HOST;
  rows.srcHost = source.data();
  rows.srcPitch = rows.dstPitch = rows.WidthInBytes = 4096;
  rows.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  rows.dstDevice = target;
  rows.Height = kBytes / 4096;
  CU(cuMemcpy2D(&rows));
}

bool holds(unsigned char value) {
  std::vector<unsigned char> found(kBytes);
  CU(cuMemcpyDtoH(found.data(), target, kBytes));
  return found.front() == value && found.back() == value;
}

}  // namespace

int main() {
  begin();
  const CUcontext context = use_primary();
  target = device_memory(kBytes);
  unsigned char value = 0;
  for (const auto copy : {copy_line, copy_rows}) {
    step("behind a host function");
    ++value;
    CU(cuLaunchHostFunc(nullptr, fill_by_function, &value));
    copy();
    HOLDS(holds(value));
  }
  int waits = 0;
  CU(cuDeviceGetAttribute(&waits, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 0));
  if (waits == 0) right();
  const CUdeviceptr word = device_memory(sizeof(unsigned));
  CU(cuMemsetD32(word, 0, 1));
  CU(cuCtxSynchronize());
  const CUstream stream = make_stream();  // not behind a wait: natively that waits, too
  unsigned round = 0;
  for (const auto copy : {copy_line, copy_rows}) {
    step("behind a wait for a value");
    ++value;
    ++round;
    CU(cuStreamWaitValue32(nullptr, word, round, CU_STREAM_WAIT_VALUE_EQ));
    std::thread other([&] {
      CU(cuCtxSetCurrent(context));
      fill(value);
      CU(cuStreamWriteValue32(stream, word, round, CU_STREAM_WRITE_VALUE_DEFAULT));
      CU(cuStreamSynchronize(stream));
    });
    copy();
    other.join();
    HOLDS(holds(value));
  }
  right();
}
