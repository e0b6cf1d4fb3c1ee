// A pool that one process makes and another one imports, and memory of it that both have.
#include <fcntl.h>

#include "tests/conformance/two_processes.h"

namespace {

constexpr auto kDescriptor = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
constexpr size_t kBytes = 65536;

CUmemoryPool make_pool(CUmemAllocationHandleType types) {
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.handleTypes = types;
  CUmemoryPool pool = nullptr;
  SHOW(cuMemPoolCreate(&pool, &properties));
  return pool;
}

CUdeviceptr make_memory(CUmemoryPool pool, CUstream stream) {
  CUdeviceptr memory = 0;
  NEED(cuMemAllocFromPoolAsync(&memory, kBytes, pool, stream));
  NEED(cuStreamSynchronize(stream));
  return memory;
}

uint32_t read(CUdeviceptr address) {
  std::vector<unsigned char> data(kBytes);
  SHOW(cuMemcpyDtoH(data.data(), address, kBytes));
  return checksum(data);
}

void* as_handle(int descriptor) {
  return reinterpret_cast<void*>(static_cast<intptr_t>(descriptor));
}

void wrong_exports(CUmemoryPool pool, CUmemoryPool plain, CUdeviceptr memory, CUstream stream) {
  int descriptor = -1;
  CUmemoryPool standard = nullptr;
  NEED(cuDeviceGetDefaultMemPool(&standard, 0));
  SHOW(cuMemPoolExportToShareableHandle(&descriptor, plain, kDescriptor, 0));
  SHOW(cuMemPoolExportToShareableHandle(&descriptor, standard, kDescriptor, 0));
  SHOW(cuMemPoolExportToShareableHandle(&descriptor, pool, CU_MEM_HANDLE_TYPE_NONE, 0));
  SHOW(cuMemPoolExportToShareableHandle(&descriptor, pool, kDescriptor, 1));
  SHOW(cuMemPoolExportToShareableHandle(nullptr, pool, kDescriptor, 0));
  CUmemPoolPtrExportData data{};
  CUdeviceptr ordinary = 0, of_plain = make_memory(plain, stream);
  NEED(cuMemAlloc(&ordinary, kBytes));
  SHOW(cuMemPoolExportPointer(&data, ordinary));
  SHOW(cuMemPoolExportPointer(&data, of_plain));
  SHOW(cuMemPoolExportPointer(&data, 0));
  SHOW(cuMemPoolExportPointer(nullptr, memory));
  SHOW(cuMemPoolImportPointer(&ordinary, pool, &data));
  SHOW(cuMemPoolExportPointer(&data, memory));  // its pool is not exported yet
  unsigned long long types = 9;
  SHOW(cuPointerGetAttribute(&types, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, memory));
  VALUE(types);
  CUipcMemHandle handle{};
  SHOW(cuIpcGetMemHandle(&handle, memory));
  SHOW(cuMemFreeAsync(of_plain, stream));
  SHOW(cuStreamSynchronize(stream));
  SHOW(cuMemPoolExportPointer(&data, of_plain));
  SHOW(cuMemPoolDestroy(plain));
  SHOW(cuMemFree(ordinary));
}

void first(const Peer& peer) {
  make_context();
  CUstream stream = nullptr;
  NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  int types = 0;
  SHOW(cuDeviceGetAttribute(&types, CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES, 0));
  VALUE(types & kDescriptor);
  const CUmemoryPool pool = make_pool(kDescriptor), plain = make_pool(CU_MEM_HANDLE_TYPE_NONE);
  const CUdeviceptr one = make_memory(pool, stream), other = make_memory(pool, stream);
  wrong_exports(pool, plain, one, stream);
  int descriptor = -1;
  CUmemPoolPtrExportData data{};
  SHOW(cuMemPoolExportToShareableHandle(&descriptor, pool, kDescriptor, 0));
  VALUE(::fcntl(descriptor, F_GETFD));
  SHOW(cuMemsetD8Async(one, 0x31, kBytes, stream));
  SHOW(cuMemsetD8Async(other, 0x32, kBytes, stream));
  SHOW(cuStreamSynchronize(stream));
  peer.give_descriptor(descriptor);
  for (const CUdeviceptr each : {one, other}) {
    SHOW(cuMemPoolExportPointer(&data, each));
    peer.give(data);
  }
  peer.await();
  VALUE(read(one));
  for (unsigned char round = 0; round < 8; ++round) {
    const std::vector<unsigned char> bytes(kBytes, round);
    SHOW(cuMemcpyHtoD(other, bytes.data(), kBytes));
    SHOW(cuCtxSynchronize());
    peer.turn();
    peer.await();
  }
  peer.await();  // the other one has freed them
  SHOW(cuMemFreeAsync(one, stream));
  SHOW(cuMemFreeAsync(other, stream));
  SHOW(cuStreamSynchronize(stream));
  peer.turn();
  peer.await();
  SHOW(cuMemPoolDestroy(pool));
  ::close(descriptor);
}

void wrong_imports(int descriptor) {
  CUmemoryPool pool = nullptr;
  SHOW(cuMemPoolImportFromShareableHandle(nullptr, as_handle(descriptor), kDescriptor, 0));
  SHOW(cuMemPoolImportFromShareableHandle(&pool, as_handle(descriptor), kDescriptor, 1));
  SHOW(
      cuMemPoolImportFromShareableHandle(&pool, as_handle(descriptor), CU_MEM_HANDLE_TYPE_NONE, 0));
  const int null = ::open("/dev/null", O_RDWR);
  SHOW(cuMemPoolImportFromShareableHandle(&pool, as_handle(null), kDescriptor, 0));
  SHOW(cuMemPoolImportFromShareableHandle(&pool, as_handle(-1), kDescriptor, 0));
  SHOW(cuMemPoolImportFromShareableHandle(&pool, as_handle(descriptor), CU_MEM_HANDLE_TYPE_WIN32,
                                          0));
  ::close(null);
}

void wrong_uses(CUmemoryPool pool, CUstream stream) {
  CUdeviceptr memory = 0;
  int descriptor = -1;
  CUmemPoolPtrExportData zeros{};
  SHOW(cuMemAllocFromPoolAsync(&memory, kBytes, pool, stream));
  SHOW(cuDeviceSetMemPool(0, pool));
  SHOW(cuMemPoolExportToShareableHandle(&descriptor, pool, kDescriptor, 0));
  SHOW(cuMemPoolImportPointer(&memory, pool, &zeros));
  SHOW(cuMemPoolImportPointer(nullptr, pool, &zeros));
  cuuint64_t threshold = 7;
  SHOW(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
  SHOW(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
}

void set_access(CUmemoryPool pool) {
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  SHOW(cuMemPoolSetAccess(pool, &access, 1));
  CUmemAccess_flags flags{};
  SHOW(cuMemPoolGetAccess(&flags, pool, &access.location));
  VALUE(flags);
}

void second(const Peer& peer) {
  make_context();
  CUstream stream = nullptr;
  NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  const int descriptor = peer.get_descriptor();
  auto data = peer.get<CUmemPoolPtrExportData>(), other_data = peer.get<CUmemPoolPtrExportData>();
  wrong_imports(descriptor);
  CUmemoryPool pool = nullptr, found = nullptr;
  SHOW(cuMemPoolImportFromShareableHandle(&pool, as_handle(descriptor), kDescriptor, 0));
  SHOW(cuMemPoolImportFromShareableHandle(&found, as_handle(descriptor), kDescriptor, 0));
  VALUE(found == pool);
  ::close(descriptor);
  wrong_uses(pool, stream);
  set_access(pool);
  CUdeviceptr one = 0, other = 0, start = 0;
  size_t size = 0;
  int device = -1;
  SHOW(cuMemPoolImportPointer(&one, pool, &data));
  SHOW(cuMemPoolImportPointer(&other, pool, &other_data));
  SHOW(cuPointerGetAttribute(&found, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, one));
  VALUE(found == pool);
  SHOW(cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, one));
  VALUE(device);
  SHOW(cuMemGetAddressRange(&start, &size, one));
  VALUE(one - start);
  VALUE(size);
  VALUE(read(one));
  SHOW(cuMemsetD8Async(one, 0x41, kBytes, stream));
  SHOW(cuStreamSynchronize(stream));
  peer.turn();
  for (int round = 0; round < 8; ++round) {
    peer.await();
    VALUE(read(other));
    peer.turn();
  }
  SHOW(cuMemPoolExportPointer(&data, one));
  SHOW(cuMemPoolDestroy(pool));  // it has memory
  SHOW(cuMemPoolImportPointer(&start, pool, &data));
  VALUE(start == one);
  SHOW(cuMemFreeAsync(one, stream));
  SHOW(cuStreamSynchronize(stream));
  SHOW(cuMemcpyDtoH(&device, one, sizeof device));
  SHOW(cuMemFree(other));
  SHOW(cuMemFree(other));
  peer.turn();
  peer.await();
  SHOW(cuMemPoolDestroy(pool));
  peer.turn();
}

}  // namespace

int main() { return run_two(first, second); }
