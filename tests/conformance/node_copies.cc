// Copy and memset nodes: every field that getters give after each way to make one; what was read
// is set again, in the node and in the executable graph, with one address changed.
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "tests/conformance/graphs.h"
#include "tests/conformance/pointer_names.h"

namespace {

using namespace in_world;

CUdeviceptr managed, wide;
void* pinned;
size_t pitch;
CUarray line, image, volume;
alignas(4096) uint32_t pageable[4096], page_registered[4096];
CUdeviceptr pinned_device;

void set_up_more() {
  set_up();
  NEED(cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL));
  NEED(cuMemAllocPitch(&wide, &pitch, 64, 16, 4));
  NEED(cuMemAllocHost(&pinned, 4096));
  NEED(cuMemHostGetDevicePointer(&pinned_device, pinned, 0));
  NEED(cuMemHostRegister(page_registered, sizeof page_registered, 0));
  CUDA_ARRAY3D_DESCRIPTOR description{};
  description.Width = 16;
  description.Format = CU_AD_FORMAT_UNSIGNED_INT32;
  description.NumChannels = 1;
  NEED(cuArray3DCreate(&line, &description));
  description.Height = 8;
  NEED(cuArray3DCreate(&image, &description));
  description.Depth = 4;
  NEED(cuArray3DCreate(&volume, &description));
  names.give(a, "a");
  names.give(b, "b");
  names.give(c, "c");
  names.give(c + 4, "c+4");
  names.give(managed, "managed");
  names.give(wide, "wide");
  names.give(pinned, "pinned");
  names.give(&pageable[0], "pageable");
  names.give(&page_registered[0], "registered");
  names.give(line, "line");
  names.give(image, "image");
  names.give(volume, "volume");
  names.give(context, "context");
}

std::string described(const CUDA_MEMCPY3D& p) {
  char text[1024];
  std::snprintf(
      text, sizeof text,
      "    from %d host %s device %s array %s, x %zu y %zu z %zu lod %zu pitch %zu height %zu res "
      "%s\n"
      "    to %d host %s device %s array %s, x %zu y %zu z %zu lod %zu pitch %zu height %zu res "
      "%s\n"
      "    %zu %zu %zu\n",
      p.srcMemoryType, names.of(p.srcHost).c_str(), names.of(p.srcDevice).c_str(),
      names.of(p.srcArray).c_str(), p.srcXInBytes, p.srcY, p.srcZ, p.srcLOD, p.srcPitch,
      p.srcHeight, names.of(p.reserved0).c_str(), p.dstMemoryType, names.of(p.dstHost).c_str(),
      names.of(p.dstDevice).c_str(), names.of(p.dstArray).c_str(), p.dstXInBytes, p.dstY, p.dstZ,
      p.dstLOD, p.dstPitch, p.dstHeight, names.of(p.reserved1).c_str(), p.WidthInBytes, p.Height,
      p.Depth);
  return text;
}

void show_fill(const CUDA_MEMSET_NODE_PARAMS& p) {
  std::printf("    dst %s, pitch %zu, value %x, element %u, width %zu, height %zu\n",
              names.of(p.dst).c_str(), p.pitch, p.value, p.elementSize, p.width, p.height);
}

uint32_t first_of(CUdeviceptr p) {
  uint32_t got = 0;
  NEED(cuMemcpyDtoH(&got, p, 4));
  return got;
}

void launch(CUgraphExec exec) {
  show("  launch", cuGraphLaunch(exec, stream));
  show("  wait", cuStreamSynchronize(stream));
}

// Whether the destination is memory of cuMemAlloc.
bool is_of_device(const CUDA_MEMCPY3D& copy) {
  return copy.dstMemoryType != CU_MEMORYTYPE_HOST && copy.dstMemoryType != CU_MEMORYTYPE_ARRAY &&
         (copy.dstDevice == a || copy.dstDevice == b);
}

// The same memory in another way.
void other_memory_types(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D& copy) {
  CUDA_MEMCPY3D changed = copy;
  if (copy.srcMemoryType == CU_MEMORYTYPE_DEVICE || copy.srcMemoryType == CU_MEMORYTYPE_HOST) {
    if (copy.srcMemoryType == CU_MEMORYTYPE_HOST)
      changed.srcDevice = reinterpret_cast<CUdeviceptr>(copy.srcHost);
    changed.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
    show("  set in exec, from unified memory",
         cuGraphExecMemcpyNodeSetParams(exec, node, &changed, context));
  }
  changed = copy;
  if (copy.dstMemoryType == CU_MEMORYTYPE_UNIFIED && is_of_device(copy)) {
    changed.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    show("  set in exec, to device memory",
         cuGraphExecMemcpyNodeSetParams(exec, node, &changed, context));
  }
}

void round_trip(CUgraph graph, CUgraphNode node) {
  CUgraphNodeType type{};
  NEED(cuGraphNodeGetType(node, &type));
  CUgraphExec exec;
  if (type == CU_GRAPH_NODE_TYPE_MEMCPY) {
    CUDA_MEMCPY3D got, again;
    std::memset(&got, 0x5a, sizeof got);
    if (show("  get", cuGraphMemcpyNodeGetParams(node, &got)) != CUDA_SUCCESS) return;
    std::fputs(described(got).c_str(), stdout);
    show("  set", cuGraphMemcpyNodeSetParams(node, &got));
    std::memset(&again, 0xa5, sizeof again);
    NEED(cuGraphMemcpyNodeGetParams(node, &again));
    if (described(again) != described(got)) {
      std::printf("  another one then:\n%s", described(again).c_str());
    }
    CUgraphNodeParams general{};
    general.type = CU_GRAPH_NODE_TYPE_MEMCPY;
    general.memcpy.copyCtx = context;
    general.memcpy.copyParams = got;
    show("  set by the general call", cuGraphNodeSetParams(node, &general));
    if (show("  instantiate", cuGraphInstantiate(&exec, graph, 0)) != CUDA_SUCCESS) return;
    launch(exec);
    show("  set in exec", cuGraphExecMemcpyNodeSetParams(exec, node, &got, context));
    show("  set in exec by the general call", cuGraphExecNodeSetParams(exec, node, &general));
    CUDA_MEMCPY3D changed = got;
    // A server's managed memory is of no context, unlike the driver's (docs/graphs.md).
    const bool to_managed = got.dstDevice == managed, from_managed = got.srcDevice == managed;
    if (changed.dstMemoryType == CU_MEMORYTYPE_DEVICE && !to_managed) {
      changed.dstDevice = c + 4;
      show("  set in exec, to c+4", cuGraphExecMemcpyNodeSetParams(exec, node, &changed, context));
    }
    changed = got;
    if (changed.srcMemoryType == CU_MEMORYTYPE_DEVICE) {
      changed.srcDevice = b;
      show("  set in exec, from b", cuGraphExecMemcpyNodeSetParams(exec, node, &changed, context));
    }
    launch(exec);
    other_memory_types(exec, node, got);
    const bool is_row = got.Height == 1 && got.Depth == 1;
    if (is_row && got.srcMemoryType == CU_MEMORYTYPE_UNIFIED && !from_managed &&
        is_of_device(got)) {
      changed = got;
      changed.srcDevice = c;
      show("  set in exec, from unified c",
           cuGraphExecMemcpyNodeSetParams(exec, node, &changed, context));
      launch(exec);
      std::printf("  a %x, b %x, c %x\n", first_of(a), first_of(b), first_of(c));
      show("  set in exec, back", cuGraphExecMemcpyNodeSetParams(exec, node, &got, context));
      launch(exec);
    }
  } else if (type == CU_GRAPH_NODE_TYPE_MEMSET) {
    CUDA_MEMSET_NODE_PARAMS got, again;
    std::memset(&got, 0x5a, sizeof got);
    if (show("  get", cuGraphMemsetNodeGetParams(node, &got)) != CUDA_SUCCESS) return;
    show_fill(got);
    show("  set", cuGraphMemsetNodeSetParams(node, &got));
    std::memset(&again, 0xa5, sizeof again);
    NEED(cuGraphMemsetNodeGetParams(node, &again));
    show_fill(again);
    if (show("  instantiate", cuGraphInstantiate(&exec, graph, 0)) != CUDA_SUCCESS) return;
    launch(exec);
    show("  set in exec", cuGraphExecMemsetNodeSetParams(exec, node, &got, context));
    CUDA_MEMSET_NODE_PARAMS changed = got;
    changed.dst = c + 4;
    show("  set in exec, c+4", cuGraphExecMemsetNodeSetParams(exec, node, &changed, context));
    changed.value = got.value + 1;
    show("  set in exec, value", cuGraphExecMemsetNodeSetParams(exec, node, &changed, context));
    CUgraphNodeParams general{};
    general.type = CU_GRAPH_NODE_TYPE_MEMSET;
    std::memcpy(&general.memset, &changed, sizeof changed);
    general.memset.ctx = context;
    show("  set in exec by the general call", cuGraphExecNodeSetParams(exec, node, &general));
    launch(exec);
  } else {
    std::printf("  a node of type %d\n", type);
    return;
  }
  std::printf("  a %x, b %x, c %x, pageable %x\n", first_of(a), first_of(b), first_of(c),
              pageable[0]);
  NEED(cuGraphExecDestroy(exec));
}

void reset() {
  NEED(cuMemsetD32(a, 0x1a, kWords));
  NEED(cuMemsetD32(b, 0x1b, kWords));
  NEED(cuMemsetD32(c, 0x1c, kWords));
  NEED(cuCtxSynchronize());
  for (unsigned i = 0; i < 64; ++i) pageable[i] = 0x1d, page_registered[i] = 0x1e;
  std::memset(pinned, 0x1f, 256);
}

void of_graph(CUgraph graph) {
  size_t count = 0;
  NEED(cuGraphGetNodes(graph, nullptr, &count));
  std::printf("  %zu nodes\n", count);
  std::vector<CUgraphNode> nodes(count);
  if (count != 0) NEED(cuGraphGetNodes(graph, nodes.data(), &count));
  for (const CUgraphNode node : nodes) round_trip(graph, node);
}

void captured(const char* text, const std::function<CUresult()>& call) {
  std::printf("-- captured %s\n", text);
  reset();
  NEED(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  show("  call", call());
  CUgraph graph = nullptr;
  show("  end", cuStreamEndCapture(stream, &graph));
  if (graph == nullptr) return;
  of_graph(graph);
  NEED(cuGraphDestroy(graph));
}
#define CAPTURED(call) captured(#call, [&] { return call; })

void captured_copies() {
  const auto in = [](const void* p) { return reinterpret_cast<CUdeviceptr>(p); };
  CAPTURED(cuMemcpyHtoDAsync(a, pageable, 64, stream));
  CAPTURED(cuMemcpyHtoDAsync(a, pinned, 64, stream));
  CAPTURED(cuMemcpyHtoDAsync(a, page_registered, 64, stream));
  CAPTURED(cuMemcpyDtoHAsync(pageable, a, 64, stream));
  CAPTURED(cuMemcpyDtoHAsync(pinned, a, 64, stream));
  CAPTURED(cuMemcpyDtoDAsync(b, a, 64, stream));
  CAPTURED(cuMemcpyDtoDAsync(managed, a, 64, stream));
  CAPTURED(cuMemcpyAsync(b, a, 64, stream));
  CAPTURED(cuMemcpyAsync(a, in(pageable), 64, stream));
  CAPTURED(cuMemcpyAsync(in(pageable), a, 64, stream));
  CAPTURED(cuMemcpyAsync(in(pinned), a, 64, stream));
  CAPTURED(cuMemcpyAsync(in(pinned), in(pageable), 64, stream));
  CAPTURED(cuMemcpyAsync(managed, a, 64, stream));
  CAPTURED(cuMemcpyAsync(a, managed, 64, stream));
  CAPTURED(cuMemcpyAsync(b, a, 0, stream));
  CAPTURED(cuMemcpyPeerAsync(b, context, a, context, 64, stream));
  CAPTURED(cuMemcpyHtoAAsync(line, 8, pageable, 16, stream));
  CAPTURED(cuMemcpyAtoHAsync(pageable, line, 8, 16, stream));
  CUDA_MEMCPY2D two{};
  two.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  two.srcDevice = a;
  two.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  two.dstDevice = wide;
  two.dstPitch = pitch;
  two.WidthInBytes = 16;
  two.Height = 4;
  CAPTURED(cuMemcpy2DAsync(&two, stream));
  two.srcPitch = 32;
  two.srcXInBytes = 4;
  two.srcY = 1;
  CAPTURED(cuMemcpy2DAsync(&two, stream));
  two.Height = 1;
  CAPTURED(cuMemcpy2DAsync(&two, stream));
  two.srcMemoryType = CU_MEMORYTYPE_HOST;
  two.srcHost = pageable;
  two.Height = 3;
  CAPTURED(cuMemcpy2DAsync(&two, stream));
  two.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  two.dstArray = image;
  CAPTURED(cuMemcpy2DAsync(&two, stream));
  two.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
  two.srcDevice = a;
  CAPTURED(cuMemcpy2DAsync(&two, stream));
  CUDA_MEMCPY3D three{};
  three.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  three.srcDevice = a;
  three.srcPitch = 16;
  three.srcHeight = 2;
  three.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  three.dstDevice = b;
  three.dstPitch = 16;
  three.dstHeight = 2;
  three.WidthInBytes = 8;
  three.Height = 2;
  three.Depth = 2;
  CAPTURED(cuMemcpy3DAsync(&three, stream));
  three.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  three.dstArray = volume;
  three.dstDevice = 0;
  CAPTURED(cuMemcpy3DAsync(&three, stream));
  three.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
  three.srcDevice = in(pageable);
  CAPTURED(cuMemcpy3DAsync(&three, stream));
}

void captured_fills() {
  CAPTURED(cuMemsetD8Async(a, 0x11, 5, stream));
  CAPTURED(cuMemsetD8Async(a, 0x11, 64, stream));
  CAPTURED(cuMemsetD16Async(a, 0x1122, 5, stream));
  CAPTURED(cuMemsetD32Async(a, 0x11223344, 5, stream));
  CAPTURED(cuMemsetD32Async(a, 0x11111111, 5, stream));
  CAPTURED(cuMemsetD32Async(a, 0, 0, stream));
  CAPTURED(cuMemsetD2D8Async(wide, pitch, 0x12, 4, 2, stream));
  CAPTURED(cuMemsetD2D16Async(wide, pitch, 0x12, 4, 2, stream));
  CAPTURED(cuMemsetD2D32Async(wide, pitch, 0x12, 4, 2, stream));
  CAPTURED(cuMemsetD2D32Async(wide, pitch, 0x12, 4, 1, stream));
  CAPTURED(cuMemsetD2D8Async(a, 16, 0x12, 16, 2, stream));
  CAPTURED(cuMemsetD8Async(managed, 0x11, 64, stream));
  CAPTURED(cuMemsetD8Async(pinned_device, 0x11, 64, stream));
}

void made_copy(const char* text, const CUDA_MEMCPY3D& copy) {
  std::printf("-- made %s\n", text);
  reset();
  CUgraph graph;
  CUgraphNode node;
  NEED(cuGraphCreate(&graph, 0));
  if (show("  add", cuGraphAddMemcpyNode(&node, graph, nullptr, 0, &copy, context)) == CUDA_SUCCESS)
    of_graph(graph);
  NEED(cuGraphDestroy(graph));
  NEED(cuGraphCreate(&graph, 0));
  CUgraphNodeParams general{};
  general.type = CU_GRAPH_NODE_TYPE_MEMCPY;
  general.memcpy.copyParams = copy;
  show("  general, without a context", cuGraphAddNode(&node, graph, nullptr, nullptr, 0, &general));
  general.memcpy.copyCtx = context;
  if (show("  general", cuGraphAddNode(&node, graph, nullptr, nullptr, 0, &general)) ==
      CUDA_SUCCESS) {
    CUDA_MEMCPY3D got;
    std::memset(&got, 0x5a, sizeof got);
    if (show("  get", cuGraphMemcpyNodeGetParams(node, &got)) == CUDA_SUCCESS) {
      std::fputs(described(got).c_str(), stdout);
    }
  }
  NEED(cuGraphDestroy(graph));
}

void made_copies() {
  made_copy("device to device", copy_params(b, a, 64));
  CUDA_MEMCPY3D copy = copy_params(b, a, 64);
  // What a copy does not use.
  copy.srcHost = pageable;
  copy.srcArray = image;
  copy.srcPitch = 12345;
  copy.srcHeight = 7;
  copy.dstPitch = 64;
  copy.dstHeight = 1;
  copy.dstHost = pinned;
  made_copy("with unused fields", copy);
  made_copy("device to host", copy_params(pageable, a, 64));
  copy = copy_params(b, a, 64);
  copy.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
  made_copy("from unified device", copy);
  copy.srcDevice = reinterpret_cast<CUdeviceptr>(pageable);
  made_copy("from unified pageable", copy);
  copy.srcDevice = reinterpret_cast<CUdeviceptr>(pinned);
  made_copy("from unified pinned", copy);
  copy.srcDevice = managed;
  made_copy("from unified managed", copy);
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = pinned;
  copy.srcDevice = 0;
  made_copy("from pinned", copy);
  copy = copy_params(b, a, 8);
  copy.srcXInBytes = 4;
  copy.srcY = 1;
  copy.srcPitch = 16;
  made_copy("one row, x and y", copy);
  copy.Height = 2;
  copy.dstPitch = 16;
  made_copy("two rows", copy);
  copy.Depth = 2;
  copy.srcHeight = copy.dstHeight = 2;
  made_copy("two slices", copy);
  copy = row(16);
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = a;
  copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.dstArray = image;
  copy.dstY = 1;
  made_copy("to an array", copy);
  copy = row(16);
  copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.srcArray = volume;
  copy.srcZ = 1;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = a;
  made_copy("from an array", copy);
}

void made_fill(const char* text, CUDA_MEMSET_NODE_PARAMS fill) {
  std::printf("-- made %s\n", text);
  reset();
  CUgraph graph;
  CUgraphNode node;
  NEED(cuGraphCreate(&graph, 0));
  if (show("  add", cuGraphAddMemsetNode(&node, graph, nullptr, 0, &fill, context)) == CUDA_SUCCESS)
    of_graph(graph);
  NEED(cuGraphDestroy(graph));
}

void made_fills() {
  made_fill("words", {a, 0, 0x11223344, 4, 5, 1});
  made_fill("words with a pitch", {a, 77, 0x11223344, 4, 5, 1});
  made_fill("halves", {a, 0, 0x1122, 2, 5, 1});
  made_fill("bytes", {a, 0, 0x11, 1, 5, 1});
  made_fill("bytes, odd", {a + 1, 0, 0x44, 1, 5, 1});
  made_fill("rows", {a, 32, 0x44, 4, 5, 2});
  made_fill("whole rows", {a, 20, 0x44, 4, 5, 2});
  made_fill("short pitch", {a, 16, 0x44, 4, 5, 2});
  made_fill("rows of bytes", {a, 33, 0x44, 1, 5, 2});
  made_fill("no rows", {a, 0, 0x44, 4, 5, 0});
  made_fill("no width", {a, 0, 0x44, 4, 0, 1});
  made_fill("managed", {managed, 0, 0x44, 4, 5, 1});
  made_fill("pinned", {pinned_device, 0, 0x44, 4, 5, 1});
}

}  // namespace

int main() {
  set_up_more();
  captured_copies();
  captured_fills();
  made_copies();
  made_fills();
  return 0;
}
