// Wrong arguments of calls that put work into a stream: the call itself returns the error, does
// nothing, and the right calls behind it succeed. Only what a driver can know in the call.
#include <functional>
#include <vector>

#include "tests/conformance/conformance.h"
#include "tests/conformance/kernels.h"

namespace {

constexpr size_t kBytes = 4096;
constexpr CUdeviceptr kNowhere = 0x10000;

CUstream stream;
CUdeviceptr device, other;
char pageable[kBytes];

// Right calls, and that the wrong one has left the memory as it was.
void after() {
  unsigned seen[17] = {};
  NEED(cuMemsetD8Async(device, 0x11, 64, stream));
  const CUresult asked = cuStreamQuery(stream);
  if (asked != CUDA_ERROR_NOT_READY) NEED(asked);
  NEED(cuStreamSynchronize(stream));
  NEED(cuCtxSynchronize());
  NEED(cuMemcpyDtoH(seen, device, sizeof seen));
  if (seen[0] != 0x11111111 || seen[15] != 0x11111111) std::printf("  a right fill is lost\n");
  if (seen[16] != 0x22222222) std::printf("  the wrong call did something\n");
}
#define WRONG(call) (SHOW(call), after())

struct HostMemory {
  void* pinned = nullptr;
  char* registered = nullptr;
  HostMemory() {
    static char area[3 * kBytes];
    NEED(cuMemHostAlloc(&pinned, kBytes, 0));
    registered = reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(area) + kBytes - 1) &
                                         ~uintptr_t{kBytes - 1});
    NEED(cuMemHostRegister(registered, kBytes, 0));
  }
  CUdeviceptr pinned_address() const { return reinterpret_cast<CUdeviceptr>(pinned); }
  CUdeviceptr registered_address() const { return reinterpret_cast<CUdeviceptr>(registered); }
};

CUdeviceptr address(const void* memory) { return reinterpret_cast<CUdeviceptr>(memory); }

void fills(const HostMemory& host, CUdeviceptr reserved) {
  WRONG(cuMemsetD8Async(kNowhere, 0, 64, stream));
  WRONG(cuMemsetD8Async(0, 0, 64, stream));
  WRONG(cuMemsetD8Async(device, 0, size_t{1} << 40, stream));
  WRONG(cuMemsetD8Async(device + 4000, 0, 200, stream));
  WRONG(cuMemsetD8Async(reserved, 0, 64, stream));
  WRONG(cuMemsetD8Async(address(pageable), 0, 64, stream));
  WRONG(cuMemsetD8Async(host.pinned_address(), 0, 2 * kBytes, stream));
  WRONG(cuMemsetD8Async(host.registered_address(), 0, kBytes + 1, stream));
  WRONG(cuMemsetD16Async(device + 65, 0, 4, stream));
  WRONG(cuMemsetD32Async(device + 66, 0, 4, stream));
  WRONG(cuMemsetD32Async(kNowhere, 0, 4, stream));
  WRONG(cuMemsetD2D8Async(kNowhere, 16, 1, 16, 4, stream));
  WRONG(cuMemsetD2D8Async(device, 8, 1, 16, 4, stream));
  WRONG(cuMemsetD2D32Async(device, 2048, 1, 16, 4, stream));
  WRONG(cuMemsetD8(kNowhere, 0, 64));
  WRONG(cuMemsetD8(device + 4000, 0, 200));
}

void copies(const HostMemory& host, CUdeviceptr reserved) {
  void* const pinned = host.pinned;
  WRONG(cuMemcpyHtoDAsync(kNowhere, pinned, 4, stream));
  WRONG(cuMemcpyHtoDAsync(kNowhere, host.registered, 4, stream));
  WRONG(cuMemcpyHtoDAsync(kNowhere, pageable, 4, stream));
  WRONG(cuMemcpyHtoDAsync(reserved, pinned, 4, stream));
  WRONG(cuMemcpyHtoDAsync(address(pageable), pinned, 4, stream));
  WRONG(cuMemcpyHtoDAsync(device + 4000, pinned, 200, stream));
  WRONG(cuMemcpyHtoDAsync(device + 64, nullptr, 4, stream));
  WRONG(cuMemcpyHtoDAsync(host.pinned_address(), pageable, 2 * kBytes, stream));
  WRONG(cuMemcpyDtoHAsync(pinned, kNowhere, 4, stream));
  WRONG(cuMemcpyDtoHAsync(host.registered, kNowhere, 4, stream));
  WRONG(cuMemcpyDtoHAsync(pageable, kNowhere, 4, stream));
  WRONG(cuMemcpyDtoHAsync(pinned, device + 4000, 200, stream));
  WRONG(cuMemcpyDtoHAsync(pinned, address(pageable), 4, stream));
  WRONG(cuMemcpyDtoDAsync(device + 64, kNowhere, 4, stream));
  WRONG(cuMemcpyDtoDAsync(kNowhere, device, 4, stream));
  WRONG(cuMemcpyDtoDAsync(kNowhere, kNowhere + 64, 4, stream));
  WRONG(cuMemcpyDtoDAsync(device + 64, reserved, 4, stream));
  WRONG(cuMemcpyDtoDAsync(device + 64, address(pageable), 4, stream));
  WRONG(cuMemcpyDtoDAsync(device + 4000, other, 200, stream));
  WRONG(cuMemcpyDtoD(device + 64, kNowhere, 4));
  WRONG(cuMemcpyDtoD(kNowhere, device, 4));
  WRONG(cuMemcpyHtoD(kNowhere, pinned, 4));
  WRONG(cuMemcpyDtoH(pinned, kNowhere, 4));
}

CUDA_MEMCPY2D rows(CUdeviceptr to, size_t to_pitch, CUdeviceptr from, size_t from_pitch) {
  CUDA_MEMCPY2D copy{};
  copy.dstMemoryType = copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = to;
  copy.dstPitch = to_pitch;
  copy.srcDevice = from;
  copy.srcPitch = from_pitch;
  copy.WidthInBytes = 16;
  copy.Height = 4;
  return copy;
}
CUresult copy_rows(const CUDA_MEMCPY2D& copy) { return cuMemcpy2DAsync(&copy, stream); }

CUresult copy_rows_of_host(CUdeviceptr to, const void* from) {
  CUDA_MEMCPY2D copy = rows(to, 16, 0, 16);
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = from;
  return cuMemcpy2DAsync(&copy, stream);
}

CUresult copy_boxes(CUdeviceptr to, CUdeviceptr from, size_t to_pitch = 16) {
  CUDA_MEMCPY3D copy{};
  copy.dstMemoryType = copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = to;
  copy.srcDevice = from;
  copy.dstPitch = to_pitch;
  copy.srcPitch = 16;
  copy.dstHeight = copy.srcHeight = copy.Height = 4;
  copy.WidthInBytes = 16;
  copy.Depth = 2;
  return cuMemcpy3DAsync(&copy, stream);
}

CUresult copy_to_array(CUdeviceptr from) {
  static CUarray array = [] {
    CUDA_ARRAY_DESCRIPTOR description{16, 4, CU_AD_FORMAT_UNSIGNED_INT8, 1};
    CUarray made;
    NEED(cuArrayCreate(&made, &description));
    return made;
  }();
  CUDA_MEMCPY2D copy = rows(0, 0, from, 16);
  copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.dstArray = array;
  return cuMemcpy2DAsync(&copy, stream);
}

void shapes(const HostMemory& host) {
  WRONG(copy_rows(rows(kNowhere, 16, device, 16)));
  WRONG(copy_rows(rows(device + 64, 16, kNowhere, 16)));
  WRONG(copy_rows(rows(device + 64, 8, other, 16)));
  WRONG(copy_rows(rows(device + 64, 16, other, 2048)));
  WRONG(copy_rows_of_host(kNowhere, host.pinned));
  WRONG(copy_rows_of_host(kNowhere, pageable));
  WRONG(copy_rows_of_host(device + 4064, pageable));
  WRONG(copy_boxes(kNowhere, device));
  WRONG(copy_boxes(device + 64, kNowhere));
  WRONG(copy_boxes(device + 64, other, 8));
  WRONG(copy_boxes(device + 4000, other));
  WRONG(copy_to_array(kNowhere));
  CUcontext context;
  NEED(cuCtxGetCurrent(&context));
  WRONG(cuMemcpyPeerAsync(device + 64, context, kNowhere, context, 4, stream));
  WRONG(cuMemcpyPeerAsync(kNowhere, context, device, context, 4, stream));
  WRONG(cuMemcpyPeerAsync(device + 4000, context, other, context, 200, stream));
}

CUresult operate(CUstreamBatchMemOpType type, CUdeviceptr at, unsigned flags = 0) {
  CUstreamBatchMemOpParams operation{};
  operation.operation = type;
  operation.writeValue.address = at;
  operation.writeValue.flags = flags;
  return cuStreamBatchMemOp(stream, 1, &operation, 0);
}

void values() {
  WRONG(cuStreamWriteValue32(stream, kNowhere, 0, 0));
  WRONG(cuStreamWriteValue32(stream, 0, 0, 0));
  WRONG(cuStreamWriteValue32(stream, device + 66, 0, 0));
  WRONG(cuStreamWriteValue32(stream, device + 64, 0, 99));
  WRONG(cuStreamWriteValue32(stream, address(pageable) & ~CUdeviceptr{7}, 0, 0));
  WRONG(cuStreamWriteValue64(stream, kNowhere, 0, 0));
  WRONG(cuStreamWriteValue64(stream, device + 68, 0, 0));
  WRONG(cuStreamWaitValue32(stream, kNowhere, 0, 0));
  WRONG(cuStreamWaitValue32(stream, device + 64, 0, 99));
  WRONG(cuStreamWaitValue64(stream, kNowhere, 0, 0));
  WRONG(operate(CU_STREAM_MEM_OP_WRITE_VALUE_32, kNowhere));
  WRONG(operate(CU_STREAM_MEM_OP_WRITE_VALUE_32, device + 66));
  WRONG(operate(CU_STREAM_MEM_OP_WRITE_VALUE_64, device + 68));
  WRONG(operate(CU_STREAM_MEM_OP_WAIT_VALUE_32, kNowhere));
  WRONG(operate(static_cast<CUstreamBatchMemOpType>(77), device));
}

CUdeviceptr freed() {
  CUdeviceptr memory;
  NEED(cuMemAlloc(&memory, size_t{64} << 20));
  NEED(cuMemFree(memory));
  return memory;
}

CUresult in_pool(const std::function<CUresult(CUdeviceptr)>& use, bool is_freed) {
  CUdeviceptr memory;
  NEED(cuMemAllocAsync(&memory, kBytes, stream));
  if (is_freed) NEED(cuMemFreeAsync(memory, stream));
  const CUresult result = use(memory);
  if (!is_freed) NEED(cuMemFreeAsync(memory, stream));
  return result;
}

void memory_that_ended() {
  WRONG(cuMemsetD8Async(freed(), 0, 64, stream));
  WRONG(cuMemcpyDtoDAsync(device + 64, freed(), 4, stream));
  WRONG(cuStreamWriteValue32(stream, freed(), 0, 0));
  WRONG(cuMemFreeAsync(kNowhere, stream));
  WRONG(cuMemFreeAsync(device + 16, stream));
  WRONG(in_pool([](CUdeviceptr memory) { return cuMemFreeAsync(memory, stream); }, true));
  WRONG(in_pool([](CUdeviceptr memory) { return cuMemFreeAsync(memory + 16, stream); }, false));
  WRONG(in_pool([](CUdeviceptr memory) { return cuMemsetD8Async(memory, 0, 2 * kBytes, stream); },
                false));
}

void objects() {
  CUevent event;
  NEED(cuEventCreate(&event, 0));
  WRONG(cuEventRecord(nullptr, stream));
  WRONG(cuEventRecordWithFlags(event, stream, 99));
  WRONG(cuStreamWaitEvent(stream, nullptr, 0));
  WRONG(cuStreamWaitEvent(stream, event, 99));
  WRONG(cuLaunchHostFunc(stream, nullptr, nullptr));
  WRONG(cuGraphLaunch(nullptr, stream));
  WRONG(cuMemPoolTrimTo(nullptr, 0));
}

// The same mistake, far from the memory of which the process knows.
void variables() {
  CUmodule module;
  NEED(cuModuleLoadData(&module, kKernels));
  CUfunction function;
  NEED(cuModuleGetFunction(&function, module, "add"));
  void* parameters[] = {&device, &device, &other, nullptr};
  unsigned count = 0;
  parameters[3] = &count;
  WRONG(cuLaunchKernel(function, 0, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr));
  WRONG(cuLaunchKernel(function, 1, 1, 1, 1025, 1, 1, 0, stream, parameters, nullptr));
  WRONG(cuLaunchKernel(function, 1, 65536, 1, 1, 1, 1, 0, stream, parameters, nullptr));
  WRONG(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 49153, stream, parameters, nullptr));
  WRONG(cuLaunchKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr));
  WRONG(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr));
}

}  // namespace

int main() {
  make_context();
  NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  NEED(cuMemAlloc(&device, kBytes));
  NEED(cuMemAlloc(&other, kBytes));
  NEED(cuMemsetD8(device, 0x22, kBytes));
  NEED(cuCtxSynchronize());
  CUdeviceptr reserved = 0;
  NEED(cuMemAddressReserve(&reserved, size_t{2} << 20, 0, 0, 0));
  const HostMemory host;
  fills(host, reserved);
  copies(host, reserved);
  shapes(host);
  values();
  memory_that_ended();
  objects();
  variables();
  return 0;
}
