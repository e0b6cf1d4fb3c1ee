// States in which calls fail: a stream that waits, a context that has gone, edges that are more
// than an order, images that cannot be loaded.
#include <cstdio>
#include <thread>

#include "tests/conformance/answers/answers.h"
#include "tests/conformance/answers/made.h"

namespace answers {
namespace {

// A kernel that needs more registers than a block of 1024 threads has: values that all live across
// a barrier.
std::string heavy_kernel() {
  constexpr int kValues = 120;
  std::string loads, stores;
  for (int i = 0; i < kValues; ++i) {
    const std::string at = "[%rd2+" + std::to_string(4 * i) + "];\n";
    loads += "  ld.volatile.global.u32 %r" + std::to_string(i) + ", " + at;
    stores += "  st.volatile.global.u32 [%rd2+" + std::to_string(4 * i) + "], %r" +
              std::to_string(kValues - 1 - i) + ";\n";
  }
  return ".version 7.5\n.target sm_75\n.address_size 64\n"
         ".visible .entry heavy(.param .u64 p)\n{\n"
         "  .reg .b32 %r<" +
         std::to_string(kValues) +
         ">;\n  .reg .b64 %rd<3>;\n"
         "  ld.param.u64 %rd1, [p];\n  cvta.to.global.u64 %rd2, %rd1;\n" +
         loads + "  bar.sync 0;\n" + stores + "  ret;\n}\n";
}

CUfunction make_heavy() {
  const std::string text = heavy_kernel();
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  need("cuModuleLoadData", &module, static_cast<const void*>(text.c_str()));
  need("cuModuleGetFunction", &function, module, "heavy");
  return function;
}

constexpr const char* kHead = ".version 7.5\n.target sm_75\n.address_size 64\n";

std::string program(const char* body) { return std::string(kHead) + body; }

// The beginning of machine code: an ELF file for the GPU architecture sm_<capability>.
std::string machine_code(unsigned capability) {
  std::string elf(4096, '\0');
  const char head[] =
      "\x7f"
      "ELF\x02\x01\x01\x33\x07";
  elf.replace(0, sizeof head - 1, head, sizeof head - 1);
  elf[16] = 2;
  elf[18] = static_cast<char>(190);  // EM_CUDA
  elf[20] = 1;
  elf[48] = elf[50] = static_cast<char>(capability);  // e_flags
  elf[49] = 5;
  elf[52] = 64;
  elf[54] = 56;
  elf[58] = 64;
  return elf;
}

}  // namespace

const char* wrong_image(long long number) {
  static const std::string images[] = {
      "",
      std::string(64, '\0'),
      "this is not an image",
      program(".visible .entry f()\n{\n"),
      program(".visible .entry f()\n{\n  nosuch.u32 %r1;\n  ret;\n}\n"),
      ".version 7.5\n.target sm_999\n.address_size 64\n.visible .entry f()\n{\n  ret;\n}\n",
      ".version 99.0\n.target sm_75\n.address_size 64\n.visible .entry f()\n{\n  ret;\n}\n",
      program(".extern .func missing();\n.visible .entry f()\n{\n  call missing;\n  ret;\n}\n"),
      machine_code(75),
      machine_code(250),
      program(".visible .global .align 4 .b8 big[274877906944];\n.visible .entry f()\n{\n"
              "  .reg .b32 %r<2>;\n  ld.global.u32 %r1, [big];\n  st.global.u32 [big], %r1;\n"
              "  ret;\n}\n"),
  };
  return images[static_cast<size_t>(number) % std::size(images)].c_str();
}

const char* World::file_of(long long number) {
  const std::string name = file();
  if (FILE* file = std::fopen(name.c_str(), "w")) {
    const char* image = wrong_image(number);
    const size_t length = number == 8 || number == 9 ? 4096 : std::strlen(image);
    std::fwrite(image, 1, length, file);
    std::fclose(file);
  }
  file_written_ = false;
  return file_.c_str();
}

CUfunction World::heavy_function() { MADE(CUfunction, "heavy function", make_heavy()); }

CUstream World::busy_stream() {
  if (!can()) return nullptr;
  uint64_t& kept = slot("busy");
  if (kept == 0) {
    CUstream made = nullptr;
    need("cuStreamCreate", &made, static_cast<unsigned>(CU_STREAM_NON_BLOCKING));
    auto* word = static_cast<volatile unsigned*>(pinned()) + 1000;
    *word = 0;
    need("cuStreamWaitValue32_v2", made, reinterpret_cast<CUdeviceptr>(word), 1u,
         static_cast<unsigned>(CU_STREAM_WAIT_VALUE_EQ));
    kept = reinterpret_cast<uint64_t>(made);
  }
  return reinterpret_cast<CUstream>(kept);
}

void World::release_busy() {
  uint64_t& kept = slot("busy");
  if (kept == 0) return;
  static_cast<volatile unsigned*>(pinned())[1000] = 1;
  need("cuStreamSynchronize", reinterpret_cast<CUstream>(kept));
  kept = 0;
}

CUevent World::busy_event() {
  // A capture begins when nothing is under way.
  if (!can() || phase_ == Phase::kDuringCapture) return event();
  CUevent event = nullptr;
  need("cuEventCreate", &event, 0u);
  need("cuEventRecord", event, busy_stream());
  return event;
}

void World::end_current() {
  if (!can()) return;
  CUcontext made = nullptr;
  need("cuCtxCreate_v2", &made, 0u, 0);
  std::thread([made] { need("cuCtxDestroy_v2", made); }).join();
}

void World::break_context() {
  CUfunction trap = nullptr;
  if (!can()) return;
  need("cuModuleGetFunction", &trap, module(), "trap_now");
  need("cuLaunchKernel", trap, 1u, 1u, 1u, 1u, 1u, 1u, 0u, CUstream{}, static_cast<void**>(nullptr),
       static_cast<void**>(nullptr));
  call("cuCtxSynchronize");
}

CUgraphNode World::programmatic_node() {
  if (!can()) return nullptr;
  uint64_t& kept = slot("programmatic node");
  if (kept != 0) return reinterpret_cast<CUgraphNode>(kept);
  CUgraph graph = nullptr;
  CUgraphNode first = nullptr, second = nullptr;
  CUDA_KERNEL_NODE_PARAMS kernel{};
  describe_kernel(&kernel);
  const CUgraphNode* const none = nullptr;
  need("cuGraphCreate", &graph, 0u);
  need("cuGraphAddKernelNode_v2", &first, graph, none, size_t{0}, &kernel);
  need("cuGraphAddKernelNode_v2", &second, graph, none, size_t{0}, &kernel);
  CUgraphEdgeData data{};
  data.from_port = 1;
  data.type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
  need("cuGraphAddDependencies_v2", graph, static_cast<const CUgraphNode*>(&first),
       static_cast<const CUgraphNode*>(&second), static_cast<const CUgraphEdgeData*>(&data),
       size_t{1});
  slot("programmatic graph") = reinterpret_cast<uint64_t>(graph);
  slot("first programmatic node") = reinterpret_cast<uint64_t>(first);
  return reinterpret_cast<CUgraphNode>(kept = reinterpret_cast<uint64_t>(second));
}

CUgraph World::programmatic_graph() {
  programmatic_node();
  return reinterpret_cast<CUgraph>(slot("programmatic graph"));
}

CUgraphNode World::first_programmatic_node() {
  programmatic_node();
  return reinterpret_cast<CUgraphNode>(slot("first programmatic node"));
}

CUstream World::capturing_data() {
  const CUstream stream = capturing();
  if (stream == nullptr) return stream;
  need("cuLaunchKernel", function(), 1u, 1u, 1u, 4u, 1u, 1u, 0u, stream, parameters(),
       static_cast<void**>(nullptr));
  CUstreamCaptureStatus status{};
  cuuint64_t id = 0;
  CUgraph graph = nullptr;
  const CUgraphNode* nodes = nullptr;
  const CUgraphEdgeData* edges = nullptr;
  size_t count = 0;
  need("cuStreamGetCaptureInfo_v3", stream, &status, &id, &graph, &nodes, &edges, &count);
  CUgraphNode node = count == 0 ? nullptr : nodes[0];
  CUgraphEdgeData data{};
  data.from_port = 1;
  data.type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
  need("cuStreamUpdateCaptureDependencies_v2", stream, &node,
       static_cast<const CUgraphEdgeData*>(&data), size_t{1},
       static_cast<unsigned>(CU_STREAM_SET_CAPTURE_DEPENDENCIES));
  return stream;
}

CUgreenCtx World::capturing_green() {
  if (!can()) return nullptr;
  CUstream stream = nullptr;
  need("cuGreenCtxStreamCreate", &stream, green(), static_cast<unsigned>(CU_STREAM_NON_BLOCKING),
       0);
  need("cuStreamBeginCapture_v2", stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  slot("capturing") = reinterpret_cast<uint64_t>(stream);
  return green();
}

}  // namespace answers
