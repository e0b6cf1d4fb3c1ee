// Physical memory that two processes have, by a file descriptor.
#include <fcntl.h>

#include "tests/conformance/two_processes.h"

namespace {

constexpr size_t kBytes = size_t{2} << 20;
constexpr auto kDescriptor = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

CUmemAllocationProp properties_for(CUmemAllocationHandleType types, int device = 0) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  properties.requestedHandleTypes = types;
  return properties;
}

void show_properties(CUmemGenericAllocationHandle handle) {
  CUmemAllocationProp properties{};
  SHOW(cuMemGetAllocationPropertiesFromHandle(&properties, handle));
  VALUE(properties.type);
  VALUE(properties.requestedHandleTypes);
  VALUE(properties.location.type);
  VALUE(properties.location.id);
}

CUdeviceptr map(CUmemGenericAllocationHandle handle, int device = 0) {
  CUdeviceptr address = 0;
  NEED(cuMemAddressReserve(&address, kBytes, 0, 0, 0));
  NEED(cuMemMap(address, kBytes, 0, handle, 0));
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = device;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  NEED(cuMemSetAccess(address, kBytes, &access, 1));
  return address;
}

uint32_t read_all(CUdeviceptr address) {
  std::vector<unsigned char> bytes(kBytes);
  NEED(cuMemcpyDtoH(bytes.data(), address, kBytes));
  return checksum(bytes);
}

void* handle_of(int descriptor) {
  return reinterpret_cast<void*>(static_cast<intptr_t>(descriptor));
}

void wrong_calls(CUmemGenericAllocationHandle plain, CUmemGenericAllocationHandle handle) {
  int descriptor = -1;
  SHOW(cuMemExportToShareableHandle(&descriptor, plain, kDescriptor, 0));
  SHOW(cuMemExportToShareableHandle(&descriptor, handle, CU_MEM_HANDLE_TYPE_NONE, 0));
  SHOW(cuMemExportToShareableHandle(&descriptor, handle, CU_MEM_HANDLE_TYPE_WIN32, 0));
  SHOW(cuMemExportToShareableHandle(&descriptor, handle, kDescriptor, 1));
  SHOW(cuMemExportToShareableHandle(nullptr, handle, kDescriptor, 0));
  SHOW(cuMemExportToShareableHandle(&descriptor, 0, kDescriptor, 0));
  VALUE(descriptor);
  CUmemGenericAllocationHandle none = 0;
  SHOW(cuMemImportFromShareableHandle(&none, handle_of(-1), kDescriptor));
  SHOW(cuMemImportFromShareableHandle(&none, handle_of(::open("/dev/null", O_RDWR)), kDescriptor));
  int pipe_ends[2];
  if (::pipe(pipe_ends) != 0) return;
  SHOW(cuMemImportFromShareableHandle(&none, handle_of(pipe_ends[0]), kDescriptor));
  VALUE(none);
}

void first(const Peer& peer) {
  make_context();
  int supported = 0;
  SHOW(cuDeviceGetAttribute(&supported,
                            CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 0));
  VALUE(supported);
  const CUmemAllocationProp plain_properties = properties_for(CU_MEM_HANDLE_TYPE_NONE);
  const CUmemAllocationProp properties = properties_for(kDescriptor);
  CUmemGenericAllocationHandle plain = 0, handle = 0;
  SHOW(cuMemCreate(&plain, kBytes, &plain_properties, 0));
  SHOW(cuMemCreate(&handle, kBytes, &properties, 0));
  show_properties(plain);
  show_properties(handle);
  wrong_calls(plain, handle);

  const CUdeviceptr address = map(handle);
  unsigned long long allowed = 0;
  SHOW(cuPointerGetAttribute(&allowed, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, address));
  VALUE(allowed);
  // Copies of all sizes before and after the export: the other process sees them.
  const std::vector<unsigned char> large(kBytes, 0x31), small(4096, 0x32);
  SHOW(cuMemcpyHtoD(address, large.data(), large.size()));
  SHOW(cuMemcpyHtoD(address + 8192, small.data(), small.size()));
  SHOW(cuCtxSynchronize());
  int descriptor = -1;
  SHOW(cuMemExportToShareableHandle(&descriptor, handle, kDescriptor, 0));
  VALUE(descriptor >= 0);
  VALUE(::fcntl(descriptor, F_GETFD));
  peer.give_descriptor(descriptor);
  peer.await();
  SHOW(cuMemcpyHtoD(address + 65536, small.data(), small.size()));
  SHOW(cuCtxSynchronize());
  peer.turn();
  peer.await();
  VALUE(read_all(address));  // the other one has written

  // Back into this process, and away with what it had.
  CUmemGenericAllocationHandle again = 0;
  SHOW(cuMemImportFromShareableHandle(&again, handle_of(descriptor), kDescriptor));
  const CUdeviceptr twice = map(again);
  SHOW(cuMemsetD8(twice + 5, 0x44, 1));
  VALUE(read_all(address));
  SHOW(cuMemUnmap(twice, kBytes));
  // The mapping keeps it, for others too; what was imported cannot be exported again.
  SHOW(cuMemRelease(handle));
  peer.turn();
  peer.await();
  VALUE(read_all(address));
  SHOW(cuMemRelease(again));
  SHOW(cuMemUnmap(address, kBytes));
  peer.turn();
  peer.await();
}

void second(const Peer& peer) {
  const int descriptor = peer.get_descriptor();
  make_context();
  CUmemGenericAllocationHandle handle = 0, again = 0;
  SHOW(cuMemImportFromShareableHandle(nullptr, handle_of(descriptor), kDescriptor));
  SHOW(cuMemImportFromShareableHandle(&handle, handle_of(descriptor), CU_MEM_HANDLE_TYPE_WIN32));
  SHOW(cuMemImportFromShareableHandle(&handle, handle_of(descriptor), kDescriptor));
  SHOW(cuMemImportFromShareableHandle(&again, handle_of(descriptor), kDescriptor));
  show_properties(handle);
  int more = -1;
  SHOW(cuMemExportToShareableHandle(&more, handle, kDescriptor, 0));
  const CUdeviceptr address = map(handle);
  unsigned long long allowed = 0;
  SHOW(cuPointerGetAttribute(&allowed, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, address));
  VALUE(allowed);
  VALUE(read_all(address));
  peer.turn();
  peer.await();
  VALUE(read_all(address));
  SHOW(cuMemsetD32(address, 0x55555555, kBytes / 8));
  SHOW(cuCtxSynchronize());
  SHOW(cuMemRelease(again));
  peer.turn();
  peer.await();
  CUmemGenericAllocationHandle late = 0;
  SHOW(cuMemImportFromShareableHandle(&late, handle_of(descriptor), kDescriptor));
  SHOW(cuMemRelease(late));
  SHOW(cuMemsetD8(address + 9, 0x66, 1));
  SHOW(cuCtxSynchronize());
  peer.turn();
  peer.await();
  VALUE(read_all(address));  // the exporter has it no more
  CUmemGenericAllocationHandle kept = 0;
  SHOW(cuMemRetainAllocationHandle(&kept, reinterpret_cast<void*>(address)));
  SHOW(cuMemRelease(kept));
  SHOW(cuMemRelease(handle));
  SHOW(cuMemUnmap(address, kBytes));
  peer.turn();
}

}  // namespace

int main() { return run_two(first, second); }
