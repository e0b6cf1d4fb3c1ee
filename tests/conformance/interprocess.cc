// Memory and events that two processes have, by CUDA's IPC handles.
#include <atomic>
#include <barrier>
#include <thread>

#include "tests/conformance/by_name.h"
#include "tests/conformance/two_processes.h"

namespace {

constexpr size_t kSmall = 4096, kLarge = size_t{8} << 20;
constexpr unsigned kLazy = CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS;

uint32_t read(CUdeviceptr address, size_t bytes) {
  std::vector<unsigned char> data(bytes);
  NEED(cuMemcpyDtoH(data.data(), address, bytes));
  return checksum(data);
}

void write(CUdeviceptr address, unsigned char value, size_t bytes) {
  const std::vector<unsigned char> data(bytes, value);
  SHOW(cuMemcpyHtoD(address, data.data(), bytes));
  NEED(cuCtxSynchronize());  // a driver may return before the bytes are there for other processes
}

void show_attributes(CUdeviceptr address) {
  int capable = -1, type = -1, device = -1;
  CUdeviceptr start = 0, base = 0;
  size_t size = 0, bytes = 0;
  SHOW(cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, address));
  SHOW(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address));
  SHOW(cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address));
  SHOW(cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address));
  SHOW(cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, address));
  SHOW(cuMemGetAddressRange(&base, &bytes, address));
  VALUE(capable);
  VALUE(type);
  VALUE(device);
  VALUE(address - start);
  VALUE(size);
  VALUE(address - base);
  VALUE(bytes);
}

void wrong_memory(CUdeviceptr memory) {
  CUipcMemHandle handle{}, zeros{};
  SHOW(cuIpcGetMemHandle(nullptr, memory));
  SHOW(cuIpcGetMemHandle(&handle, 0));
  void* host = nullptr;
  NEED(cuMemAllocHost(&host, 4096));
  SHOW(cuIpcGetMemHandle(&handle, reinterpret_cast<CUdeviceptr>(host)));
  CUdeviceptr managed = 0, reserved = 0;
  NEED(cuMemAllocManaged(&managed, kSmall, CU_MEM_ATTACH_GLOBAL));
  SHOW(cuIpcGetMemHandle(&handle, managed));
  SHOW(cuIpcCloseMemHandle(managed));
  NEED(cuMemFree(managed));
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemAccessDesc access{properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUmemGenericAllocationHandle physical = 0;
  constexpr size_t kMapped = size_t{2} << 20;
  NEED(cuMemCreate(&physical, kMapped, &properties, 0));
  NEED(cuMemAddressReserve(&reserved, kMapped, 0, 0, 0));
  NEED(cuMemMap(reserved, kMapped, 0, physical, 0));
  NEED(cuMemSetAccess(reserved, kMapped, &access, 1));
  SHOW(cuIpcGetMemHandle(&handle, reserved));
  SHOW(cuIpcCloseMemHandle(reserved));
  NEED(cuMemUnmap(reserved, kMapped));
  NEED(cuMemRelease(physical));
  NEED(cuMemAddressFree(reserved, kMapped));
  CUdeviceptr address = 0;
  SHOW(cuIpcOpenMemHandle(&address, zeros, kLazy));
  SHOW(cuIpcCloseMemHandle(memory));
  SHOW(cuIpcCloseMemHandle(0));
  NEED(cuIpcGetMemHandle(&handle, memory));
  SHOW(cuIpcOpenMemHandle(nullptr, handle, kLazy));
  SHOW(cuIpcOpenMemHandle(&address, handle, kLazy));  // in the same process
}

void memory_of_first(const Peer& peer) {
  CUdeviceptr small = 0, large = 0;
  NEED(cuMemAlloc(&small, kSmall));
  NEED(cuMemAlloc(&large, kLarge));
  show_attributes(small);
  wrong_memory(small);
  write(small, 0x21, kSmall);
  write(large, 0x22, kLarge);
  CUipcMemHandle handle{}, again{};
  SHOW(cuIpcGetMemHandle(&handle, small));
  SHOW(cuIpcGetMemHandle(&again, small));
  VALUE(std::memcmp(&handle, &again, sizeof handle) == 0);
  peer.give(handle);
  SHOW(cuIpcGetMemHandle(&handle, large));
  peer.give(handle);
  peer.await();
  // The copy has returned, so the other one sees it.
  for (unsigned char round = 0; round < 8; ++round) {
    write(large + kLarge - kSmall, round, kSmall);
    peer.turn();
    peer.await();
  }
  VALUE(read(large, kLarge));  // the other one has written
  peer.turn();
  peer.await();
  SHOW(cuMemFree(large));
}

// Two threads, of which each opens what the other one closes.
void open_and_close(const CUipcMemHandle& handle) {
  CUcontext context = nullptr;
  NEED(cuCtxGetCurrent(&context));
  std::atomic<int> failures{0};
  const auto work = [&] {
    cuCtxSetCurrent(context);
    for (int round = 0; round < 100; ++round) {
      CUdeviceptr address = 0;
      unsigned char byte = 0;
      if (cuIpcOpenMemHandle(&address, handle, kLazy) != CUDA_SUCCESS) {
        ++failures;
        continue;
      }
      if (cuMemcpyDtoH(&byte, address, 1) != CUDA_SUCCESS) ++failures;
      if (cuIpcCloseMemHandle(address) != CUDA_SUCCESS) ++failures;
    }
  };
  std::thread other(work);
  work();
  other.join();
  VALUE(failures.load());
}

// Threads open by the first version, which opens once: one of them has it.
void open_once(const CUipcMemHandle& handle) {
  CUcontext context = nullptr;
  NEED(cuCtxGetCurrent(&context));
  constexpr int kThreads = 8, kRounds = 300;
  std::barrier all(kThreads);
  std::atomic<int> opened{0}, refused{0};
  const auto work = [&] {
    cuCtxSetCurrent(context);
    for (int round = 0; round < kRounds; ++round) {
      CUdeviceptr address = 0;
      all.arrive_and_wait();
      const CUresult result = call("cuIpcOpenMemHandle", &address, handle, kLazy);
      all.arrive_and_wait();
      if (result == CUDA_ERROR_ALREADY_MAPPED) ++refused;
      if (result == CUDA_SUCCESS && cuIpcCloseMemHandle(address) == CUDA_SUCCESS) ++opened;
    }
  };
  std::vector<std::thread> others;
  for (int i = 1; i < kThreads; ++i) others.emplace_back(work);
  work();
  for (std::thread& other : others) other.join();
  VALUE(opened == kRounds);
  VALUE(refused == (kThreads - 1) * kRounds);
}

void memory_of_second(const Peer& peer) {
  const auto small_handle = peer.get<CUipcMemHandle>(), large_handle = peer.get<CUipcMemHandle>();
  CUdeviceptr small = 0, large = 0, again = 0;
  open_and_close(large_handle);
  open_once(large_handle);
  SHOW(cuIpcOpenMemHandle(&small, small_handle, 0));
  SHOW(cuIpcOpenMemHandle(&small, small_handle, kLazy));
  SHOW(cuIpcOpenMemHandle(&large, large_handle, kLazy));
  SHOW(cuIpcOpenMemHandle(&again, large_handle, kLazy));
  VALUE(again == large);
  show_attributes(large);
  VALUE(read(small, kSmall));
  VALUE(read(large, kLarge));
  peer.turn();
  for (int round = 0; round < 8; ++round) {
    peer.await();
    VALUE(read(large + kLarge - kSmall, kSmall));
    if (round == 7) write(large, 0x66, kLarge / 2);
    peer.turn();
  }
  peer.await();
  SHOW(cuMemFree(large));
  SHOW(cuMemFreeAsync(large, nullptr));
  SHOW(cuIpcCloseMemHandle(large + 256));
  CUipcMemHandle handle{};
  SHOW(cuIpcGetMemHandle(&handle, large));
  SHOW(cuIpcCloseMemHandle(large));
  VALUE(read(large, kSmall));
  SHOW(cuIpcCloseMemHandle(large));
  SHOW(cuIpcCloseMemHandle(large));
  SHOW(cuIpcCloseMemHandle(small));
  peer.turn();
}

CUstream make_stream() {
  CUstream stream = nullptr;
  NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  return stream;
}

void wrong_events(CUevent event) {
  CUevent made = nullptr;
  CUipcEventHandle handle{};
  SHOW(cuEventCreate(&made, CU_EVENT_INTERPROCESS));
  SHOW(cuEventCreate(&made, CU_EVENT_DISABLE_TIMING));
  SHOW(cuIpcGetEventHandle(&handle, made));
  SHOW(cuIpcGetEventHandle(nullptr, event));
  SHOW(cuIpcOpenEventHandle(&made, handle));
  const CUstream stream = make_stream();
  CUgraph graph = nullptr;
  NEED(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  SHOW(cuEventRecord(event, stream));
  (void)cuStreamEndCapture(stream, &graph);
  float elapsed = 0;
  SHOW(cuEventElapsedTime(&elapsed, event, event));
}

// A launch that records the event in a stream that is held.
CUgraphExec make_recording_graph(CUevent event) {
  CUgraph graph = nullptr;
  CUgraphNode node = nullptr;
  CUgraphExec exec = nullptr;
  SHOW(cuGraphCreate(&graph, 0));
  SHOW(cuGraphAddEventRecordNode(&node, graph, nullptr, 0, event));
  SHOW(cuGraphInstantiate(&exec, graph, 0));
  SHOW(cuGraphDestroy(graph));
  return exec;
}

// A stream of the other process is held by a wait for a value, so that nothing is over by chance.
void events_of_first(const Peer& peer) {
  CUevent event = nullptr;
  SHOW(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
  wrong_events(event);
  CUipcEventHandle handle{};
  SHOW(cuIpcGetEventHandle(&handle, event));
  SHOW(cuEventQuery(event));
  CUdeviceptr word = 0, data = 0;
  NEED(cuMemAlloc(&word, 4));
  NEED(cuMemAlloc(&data, kSmall));
  NEED(cuMemsetD32(word, 0, 1));
  NEED(cuCtxSynchronize());
  CUipcMemHandle memory{};
  NEED(cuIpcGetMemHandle(&memory, data));
  peer.give(handle);
  peer.give(memory);
  peer.await();
  const CUstream held = make_stream(), other = make_stream();
  SHOW(cuStreamWaitValue32(held, word, 1, CU_STREAM_WAIT_VALUE_GEQ));
  SHOW(cuMemsetD8Async(data, 0x77, kSmall, held));
  SHOW(cuEventRecord(event, held));
  peer.turn();
  peer.await();  // a stream of its waits for the record
  SHOW(cuEventQuery(event));
  SHOW(cuStreamWriteValue32(other, word, 1, CU_STREAM_WRITE_VALUE_DEFAULT));
  SHOW(cuStreamSynchronize(held));
  SHOW(cuEventQuery(event));
  peer.turn();
  peer.await();
  // The other one has recorded.
  SHOW(cuEventSynchronize(event));
  SHOW(cuStreamWaitEvent(held, event, 0));
  SHOW(cuStreamSynchronize(held));
  VALUE(read(data, kSmall));
  // A graph records it, in a stream that is held.
  const CUgraphExec exec = make_recording_graph(event);
  NEED(cuMemsetD32(word, 0, 1));
  NEED(cuCtxSynchronize());
  SHOW(cuStreamWaitValue32(held, word, 1, CU_STREAM_WAIT_VALUE_GEQ));
  SHOW(cuGraphLaunch(exec, held));
  peer.turn();
  peer.await();
  SHOW(cuStreamWriteValue32(other, word, 1, CU_STREAM_WRITE_VALUE_DEFAULT));
  SHOW(cuStreamSynchronize(held));
  SHOW(cuGraphExecDestroy(exec));
  peer.turn();
  peer.await();
  SHOW(cuEventDestroy(event));
  peer.turn();
  peer.await();
}

void events_of_second(const Peer& peer) {
  const auto handle = peer.get<CUipcEventHandle>();
  const auto memory = peer.get<CUipcMemHandle>();
  CUevent event = nullptr, again = nullptr;
  CUdeviceptr data = 0;
  SHOW(cuIpcOpenMemHandle(&data, memory, kLazy));
  SHOW(cuIpcOpenEventHandle(nullptr, handle));
  SHOW(cuIpcOpenEventHandle(&event, handle));
  SHOW(cuIpcOpenEventHandle(&again, handle));
  VALUE(event == again);
  SHOW(cuEventQuery(event));
  peer.turn();
  peer.await();
  const CUstream stream = make_stream();
  SHOW(cuEventQuery(event));
  SHOW(cuStreamWaitEvent(stream, event, 0));
  std::vector<unsigned char> bytes(kSmall);
  void* host = nullptr;
  NEED(cuMemAllocHost(&host, kSmall));
  SHOW(cuMemcpyDtoHAsync(host, data, kSmall, stream));
  SHOW(cuStreamQuery(stream));
  peer.turn();
  SHOW(cuStreamSynchronize(stream));
  SHOW(cuEventQuery(again));
  VALUE(checksum(host, kSmall));
  peer.await();  // from here the event stands for what this one records
  SHOW(cuMemsetD8Async(data, 0x78, kSmall, stream));
  SHOW(cuEventRecord(event, stream));
  peer.turn();
  peer.await();
  SHOW(cuEventQuery(event));  // a graph has recorded it
  peer.turn();
  peer.await();
  SHOW(cuEventQuery(event));
  peer.turn();
  peer.await();
  SHOW(cuEventQuery(event));  // the exporter has destroyed its own
  SHOW(cuEventDestroy(event));
  SHOW(cuEventDestroy(again));
  SHOW(cuIpcCloseMemHandle(data));
  peer.turn();
}

void first(const Peer& peer) {
  make_context();
  int supported = 0;
  SHOW(cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED, 0));
  VALUE(supported);
  memory_of_first(peer);
  events_of_first(peer);
}

void second(const Peer& peer) {
  make_context();
  memory_of_second(peer);
  events_of_second(peer);
}

// Memory that its process has freed. A driver may still open it, where somebody has memory beside
// it open, so only the simulated GPU is asked.
void freeing_first(const Peer& peer) {
  make_context();
  CUdeviceptr brief = 0;
  CUipcMemHandle handle{};
  NEED(cuMemAlloc(&brief, kSmall));
  SHOW(cuIpcGetMemHandle(&handle, brief));
  SHOW(cuMemFree(brief));
  peer.give(handle);
  peer.await();
}

void freeing_second(const Peer& peer) {
  make_context();
  CUdeviceptr opened = 0;
  const auto gone = peer.get<CUipcMemHandle>();
  SHOW(cuIpcOpenMemHandle(&opened, gone, kLazy));
  peer.turn();
}

}  // namespace

int main(int argc, char**) {
  return argc == 1 ? run_two(first, second) : run_two(freeing_first, freeing_second);
}
