// Parts of memory in copies of several rows: pitches and heights that are given, left out or too
// short, with offsets; between all kinds of memory, by calls, by nodes and in captures.
#include <array>

#include "tests/conformance/graphs.h"

namespace {

constexpr size_t kBytes = 4096;

using Bytes = std::array<unsigned char, kBytes>;

CUcontext context;
CUstream stream;
CUdeviceptr from_device, to_device;
Bytes from_host, to_host;

// Where a part begins in its memory, and how that lies.
struct Part {
  size_t x, y, z, pitch, height;
};
struct Shape {
  const char* name;
  size_t width, height, depth;
  Part from, to;
};

constexpr Shape kShapes[] = {
    {"rows of the part alone, behind x", 16, 3, 1, {0, 0, 0, 32, 0}, {8, 0, 0, 0, 0}},
    {"the same in the source", 16, 3, 1, {8, 0, 0, 0, 0}, {0, 0, 0, 32, 0}},
    {"behind x and y", 16, 3, 1, {0, 0, 0, 32, 0}, {8, 1, 0, 0, 0}},
    {"behind y", 16, 3, 1, {0, 1, 0, 0, 0}, {0, 2, 0, 0, 0}},
    {"one row behind x", 16, 1, 1, {8, 0, 0, 0, 0}, {4, 0, 0, 0, 0}},
    {"slices of the part alone", 16, 2, 2, {0, 0, 0, 32, 0}, {0, 0, 0, 64, 0}},
    {"slices behind y", 16, 2, 2, {0, 1, 0, 32, 0}, {0, 0, 0, 64, 0}},
    {"slices behind z", 16, 2, 2, {0, 0, 1, 32, 0}, {0, 0, 0, 64, 0}},
    {"slices behind y and z", 16, 2, 2, {0, 1, 1, 32, 0}, {0, 2, 1, 64, 0}},
    {"rows and slices behind all", 16, 2, 2, {4, 1, 1, 0, 0}, {0, 0, 0, 64, 0}},
    {"just long enough", 16, 2, 2, {8, 1, 1, 24, 3}, {0, 0, 0, 64, 2}},
    {"a height that is too short for y", 16, 2, 1, {0, 1, 0, 32, 2}, {0, 0, 0, 64, 0}},
    {"a height that is too short", 16, 4, 1, {0, 0, 0, 32, 8}, {0, 0, 0, 64, 3}},
    {"a pitch that is too short for x", 16, 1, 1, {1, 0, 0, 16, 0}, {0, 0, 0, 64, 0}},
    {"the same in the destination", 16, 3, 1, {0, 0, 0, 32, 0}, {8, 0, 0, 20, 0}},
    {"a pitch that is too short", 16, 1, 1, {0, 0, 0, 12, 0}, {0, 0, 0, 32, 0}},
    {"no bytes, a short pitch", 0, 2, 1, {8, 0, 0, 4, 0}, {0, 0, 0, 64, 0}},
    {"no rows, a short pitch", 16, 0, 1, {8, 0, 0, 4, 0}, {0, 0, 0, 64, 0}},
    {"no slices, all short", 16, 2, 0, {8, 0, 0, 4, 1}, {0, 0, 0, 64, 0}},
    {"no bytes, a short height", 0, 2, 1, {0, 0, 0, 16, 1}, {0, 0, 0, 64, 0}},
};

// CUDA_MEMCPY2D and CUDA_MEMCPY3D name these members alike.
template <typename Copy>
Copy describe(const Shape& shape, CUmemorytype from, CUmemorytype to) {
  Copy copy{};
  copy.srcMemoryType = from;
  copy.dstMemoryType = to;
  if (from == CU_MEMORYTYPE_HOST)
    copy.srcHost = from_host.data();
  else
    copy.srcDevice = from_device;
  if (to == CU_MEMORYTYPE_HOST)
    copy.dstHost = to_host.data();
  else
    copy.dstDevice = to_device;
  copy.WidthInBytes = shape.width;
  copy.Height = shape.height;
  copy.srcXInBytes = shape.from.x;
  copy.srcY = shape.from.y;
  copy.srcPitch = shape.from.pitch;
  copy.dstXInBytes = shape.to.x;
  copy.dstY = shape.to.y;
  copy.dstPitch = shape.to.pitch;
  return copy;
}

CUDA_MEMCPY3D describe_box(const Shape& shape, CUmemorytype from, CUmemorytype to) {
  auto copy = describe<CUDA_MEMCPY3D>(shape, from, to);
  copy.Depth = shape.depth;
  copy.srcZ = shape.from.z;
  copy.srcHeight = shape.from.height;
  copy.dstZ = shape.to.z;
  copy.dstHeight = shape.to.height;
  return copy;
}

CUresult run(CUgraph graph) {
  CUgraphExec exec;
  CUresult result = cuGraphInstantiate(&exec, graph, 0);
  if (result != CUDA_SUCCESS) return result;
  result = cuGraphLaunch(exec, stream);
  NEED(cuStreamSynchronize(stream));
  NEED(cuGraphExecDestroy(exec));
  return result;
}

CUresult by_node(const CUDA_MEMCPY3D& copy) {
  CUgraph graph;
  CUgraphNode node;
  NEED(cuGraphCreate(&graph, 0));
  CUresult result = cuGraphAddMemcpyNode(&node, graph, nullptr, 0, &copy, context);
  if (result == CUDA_SUCCESS) result = run(graph);
  NEED(cuGraphDestroy(graph));
  return result;
}

template <typename Call>
CUresult in_capture(Call&& call) {
  CUgraph graph;
  NEED(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  const CUresult result = call();
  NEED(cuStreamEndCapture(stream, &graph));
  if (result == CUDA_SUCCESS) NEED(run(graph));
  NEED(cuGraphDestroy(graph));
  return result;
}

// What came, and where its first bytes lie.
template <typename Call>
void try_one(const char* name, CUmemorytype to, Call&& call) {
  to_host.fill(0);
  NEED(cuMemsetD8(to_device, 0, kBytes));
  NEED(cuCtxSynchronize());
  const CUresult result = call();
  const CUresult waited = cuCtxSynchronize();
  if (to != CU_MEMORYTYPE_HOST) NEED(cuMemcpyDtoH(to_host.data(), to_device, kBytes));
  size_t first = 0;
  while (first < kBytes && to_host[first] == 0) ++first;
  std::printf("  %s: %s, then %s; from %zu: %08x\n", name, error_name(result), error_name(waited),
              first, checksum(to_host.data(), kBytes));
}

void try_all(const Shape& shape, CUmemorytype from, CUmemorytype to) {
  std::printf("%s, %d to %d\n", shape.name, from, to);
  const auto rows = describe<CUDA_MEMCPY2D>(shape, from, to);
  const CUDA_MEMCPY3D box = describe_box(shape, from, to);
  if (shape.depth == 1) {
    try_one("rows", to, [&] { return cuMemcpy2D(&rows); });
    try_one("unaligned rows", to, [&] { return cuMemcpy2DUnaligned(&rows); });
    try_one("rows in a capture", to,
            [&] { return in_capture([&] { return cuMemcpy2DAsync(&rows, stream); }); });
  }
  try_one("box", to, [&] { return cuMemcpy3D(&box); });
  try_one("box in a capture", to,
          [&] { return in_capture([&] { return cuMemcpy3DAsync(&box, stream); }); });
  try_one("node", to, [&] { return by_node(box); });
}

// Of an array only what there is to copy has to be in it.
void nothing_beyond_an_array() {
  std::printf("-- beyond an array\n");
  CUDA_ARRAY3D_DESCRIPTOR descriptor{};
  descriptor.Width = 16;
  descriptor.Height = 8;
  descriptor.Format = CU_AD_FORMAT_UNSIGNED_INT8;
  descriptor.NumChannels = 1;
  CUarray array;
  NEED(cuArray3DCreate(&array, &descriptor));
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = from_device;
  copy.srcPitch = 64;
  copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.dstArray = array;
  copy.dstXInBytes = 12;
  copy.dstY = 6;
  for (const size_t empty : {0, 1, 2, 3}) {
    copy.WidthInBytes = empty == 0 ? 0 : 8;
    copy.Height = empty == 1 ? 0 : 4;
    copy.Depth = empty == 2 ? 0 : 1;
    SHOW(cuMemcpy3D(&copy));
  }
  NEED(cuArrayDestroy(array));
}

}  // namespace

int main() {
  context = make_context();
  NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  for (size_t i = 0; i < kBytes; ++i) from_host[i] = static_cast<unsigned char>(i % 251 + 1);
  NEED(cuMemAlloc(&from_device, kBytes));
  NEED(cuMemAlloc(&to_device, kBytes));
  NEED(cuMemcpyHtoD(from_device, from_host.data(), kBytes));
  for (const CUmemorytype from : {CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_DEVICE})
    for (const CUmemorytype to : {CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_DEVICE})
      for (const Shape& shape : kShapes) try_all(shape, from, to);
  nothing_beyond_an_array();
  return 0;
}
