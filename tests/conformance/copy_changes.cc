// What may change of a copy node in an executable graph: by cuGraphExecMemcpyNodeSetParams, and by
// cuGraphExecUpdate from another graph. What is taken is launched, and copies from and to where it
// was changed to.
#include <sys/mman.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "tests/conformance/graphs.h"

namespace {

using namespace in_world;

constexpr size_t kBytes = 64, kPitch = 128, kRoom = 4096;

// Memory of one kind.
struct Memory {
  const char* name;
  CUdeviceptr at;
  bool is_host;
  uint32_t value;  // of its words, before a copy
};

CUdeviceptr as_pointer(const void* host) { return reinterpret_cast<CUdeviceptr>(host); }

void put(const Memory& memory) {
  NEED(cuCtxSynchronize());
  if (memory.is_host)
    for (size_t i = 0; i < kRoom / 4; ++i) reinterpret_cast<uint32_t*>(memory.at)[i] = memory.value;
  else
    NEED(cuMemsetD32(memory.at, memory.value, kRoom / 4));
  NEED(cuCtxSynchronize());
}

uint32_t value_in(const Memory& memory) {
  uint32_t value = 0;
  if (memory.is_host)
    std::memcpy(&value, reinterpret_cast<const void*>(memory.at), 4);
  else
    NEED(cuMemcpyDtoH(&value, memory.at, 4));
  return value;
}

CUDA_MEMCPY3D copy_between(CUmemorytype from_type, CUdeviceptr from, CUmemorytype to_type,
                           CUdeviceptr to) {
  CUDA_MEMCPY3D copy = row(kBytes);
  copy.srcMemoryType = from_type;
  copy.dstMemoryType = to_type;
  if (from_type == CU_MEMORYTYPE_HOST)
    copy.srcHost = reinterpret_cast<const void*>(from);
  else
    copy.srcDevice = from;
  if (to_type == CU_MEMORYTYPE_HOST)
    copy.dstHost = reinterpret_cast<void*>(to);
  else
    copy.dstDevice = to;
  return copy;
}

CUDA_MEMCPY3D rows_between(CUmemorytype from_type, CUdeviceptr from, CUdeviceptr to) {
  CUDA_MEMCPY3D copy = copy_between(from_type, from, CU_MEMORYTYPE_DEVICE, to);
  copy.WidthInBytes = 16;
  copy.Height = 3;
  copy.srcPitch = copy.dstPitch = kPitch;
  return copy;
}

// A graph of one copy, which may be inside of a child.
struct Copying {
  Copying(const CUDA_MEMCPY3D& copy, bool in_child) {
    NEED(cuGraphCreate(&graph, 0));
    if (!in_child) {
      NEED(cuGraphAddMemcpyNode(&node, graph, nullptr, 0, &copy, context));
      return;
    }
    CUgraph child;
    CUgraphNode first, outer;
    NEED(cuGraphCreate(&child, 0));
    NEED(cuGraphAddEmptyNode(&first, child, nullptr, 0));
    NEED(cuGraphAddMemcpyNode(&node, child, &first, 1, &copy, context));
    NEED(cuGraphAddChildGraphNode(&outer, graph, nullptr, 0, child));
    NEED(cuGraphDestroy(child));
  }
  ~Copying() { NEED(cuGraphDestroy(graph)); }
  Copying(const Copying&) = delete;
  Copying& operator=(const Copying&) = delete;
  CUgraph graph = nullptr;
  CUgraphNode node = nullptr;
};

void launch(CUgraphExec exec) {
  NEED(cuGraphLaunch(exec, stream));
  NEED(cuStreamSynchronize(stream));
}

CUresult update(CUgraphExec exec, const CUDA_MEMCPY3D& copy, bool in_child, int* why) {
  const Copying other(copy, in_child);
  CUgraphExecUpdateResultInfo info{};
  const CUresult result = cuGraphExecUpdate(exec, other.graph, &info);
  *why = info.result;
  return result;
}

// `check`: shows what a launch has done.
template <typename Check>
void change(const std::string& what, const CUDA_MEMCPY3D& was, const CUDA_MEMCPY3D& is,
            Check&& check) {
  for (const bool in_child : {false, true}) {
    const Copying first(was, in_child);
    CUgraphExec exec;
    NEED(cuGraphInstantiate(&exec, first.graph, 0));
    std::printf("-- %s%s\n", what.c_str(), in_child ? ", in a child" : "");
    if (!in_child && show("  set", cuGraphExecMemcpyNodeSetParams(exec, first.node, &is,
                                                                  context)) == CUDA_SUCCESS) {
      launch(exec);
      check("set");
      show("  set back", cuGraphExecMemcpyNodeSetParams(exec, first.node, &was, context));
    }
    int why = 0;
    const bool taken = show("  update", update(exec, is, in_child, &why)) == CUDA_SUCCESS;
    std::printf("  because of %d\n", why);
    launch(exec);
    check("updated");
    if (taken) {
      show("  update back", update(exec, was, in_child, &why));
      launch(exec);
      check("updated back");
      show("  and again", update(exec, is, in_child, &why));
      launch(exec);
      check("updated again");
    }
    NEED(cuGraphExecDestroy(exec));
  }
}

}  // namespace

int main() {
  set_up();
  alignas(4096) static uint32_t pageable[kRoom / 4];
  void* pinned = nullptr;
  NEED(cuMemAllocHost(&pinned, kRoom));
  void* const registered =
      mmap(nullptr, kRoom, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  NEED(cuMemHostRegister(registered, kRoom, 0));
  CUdeviceptr device, other, pool;
  NEED(cuMemAlloc(&device, kRoom));
  NEED(cuMemAlloc(&other, kRoom));
  NEED(cuMemAllocAsync(&pool, kRoom, stream));
  NEED(cuStreamSynchronize(stream));
  const Memory kinds[] = {{"pageable", as_pointer(pageable), true, 0x11},
                          {"pinned", as_pointer(pinned), true, 0x22},
                          {"registered", as_pointer(registered), true, 0x33},
                          {"device", device, false, 0x44},
                          {"pool", pool, false, 0x66}};
  const Memory rest{"other", other, false, 0x55};
  const auto reset = [&] {
    for (const Memory& kind : kinds) put(kind);
    put(rest);
  };
  const auto show_all = [&](const char* after) {
    std::printf("  %s:", after);
    for (const Memory& kind : kinds) std::printf(" %s %x", kind.name, value_in(kind));
    std::printf(" other %x\n", value_in(rest));
    reset();
  };
  constexpr auto kUnified = CU_MEMORYTYPE_UNIFIED, kDevice = CU_MEMORYTYPE_DEVICE,
                 kHost = CU_MEMORYTYPE_HOST;
  for (const Memory& was : kinds) {
    for (const Memory& is : kinds) {
      // Ordinary memory in the place of other memory is not taken here, unlike natively
      // (docs/graphs.md).
      if (&is == &was || &is == &kinds[0]) continue;
      const std::string names = std::string(was.name) + " to " + is.name;
      reset();
      change("source " + names, copy_between(kUnified, was.at, kUnified, other),
             copy_between(kUnified, is.at, kUnified, other), show_all);
      change("destination " + names, copy_between(kUnified, other, kUnified, was.at),
             copy_between(kUnified, other, kUnified, is.at), show_all);
      if (!was.is_host || !is.is_host) continue;
      change("host source " + names, copy_between(kHost, was.at, kDevice, other),
             copy_between(kHost, is.at, kDevice, other), show_all);
      change("host destination " + names, copy_between(kDevice, other, kHost, was.at),
             copy_between(kDevice, other, kHost, is.at), show_all);
    }
  }
  for (const Memory& kind : kinds) {
    const CUmemorytype type = kind.is_host ? kHost : kDevice;
    const std::string of = std::string("rows of ") + kind.name + ": ";
    const CUDA_MEMCPY3D was = rows_between(type, kind.at, other);
    reset();
    change(of + "the same", was, was, show_all);
    change(of + "another source", was, rows_between(type, kind.at + 512, other), show_all);
    change(of + "another destination", was, rows_between(type, kind.at, other + 512), show_all);
    CUDA_MEMCPY3D is = was;
    is.Height = 2;
    change(of + "fewer", was, is, show_all);
    is.Height = 1;
    change(of + "one", was, is, show_all);
    change(of + "from one", is, was, show_all);
    is = was;
    is.WidthInBytes = 8;
    change(of + "narrower", was, is, show_all);
    change(of + "by unified addresses", was, rows_between(kUnified, kind.at, other), show_all);
    const CUDA_MEMCPY3D single = copy_between(type, kind.at, kDevice, other);
    CUDA_MEMCPY3D wide = single;
    wide.WidthInBytes = 2 * kBytes;
    change(of + "a wider single one", single, wide, show_all);
  }
  return 0;
}
