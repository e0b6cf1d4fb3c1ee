// Graphs that kernels launch: what may be instantiated for it, launches beside, behind and as
// siblings, uploads, updates, and ends.
#include "tests/conformance/device_graphs.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "tests/conformance/graphs.h"

namespace {

using namespace in_world;

constexpr unsigned long long kDevice = CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH;
constexpr uint64_t kTail = uint64_t{1} << 56, kBeside = uint64_t{2} << 56,
                   kSibling = uint64_t{3} << 56;

CUgraphNode add(CUgraph graph, const char* name, Arguments arguments,
                const std::vector<CUgraphNode>& before = {}) {
  const auto params = node_params(name, arguments);
  CUgraphNode node;
  NEED(cuGraphAddKernelNode(&node, graph, before.data(), before.size(), &params));
  return node;
}

CUgraph graph_of(const char* name, Arguments arguments) {
  CUgraph graph;
  NEED(cuGraphCreate(&graph, 0));
  add(graph, name, arguments);
  return graph;
}
CUgraph marks(uint64_t value) { return graph_of("mark", {{notes, value}}); }

CUgraphExec instantiated(CUgraph graph, unsigned long long flags) {
  CUgraphExec exec;
  NEED(cuGraphInstantiate(&exec, graph, flags));
  NEED(cuGraphDestroy(graph));
  return exec;
}
CUgraphExec uploaded(CUgraph graph) {
  CUgraphExec exec = instantiated(graph, kDevice);
  NEED(cuGraphUpload(exec, stream));
  NEED(cuStreamSynchronize(stream));
  return exec;
}
CUgraph launches(CUgraphExec exec, uint64_t how, uint64_t value) {
  return graph_of("launch", {{notes, reinterpret_cast<uint64_t>(exec), how, value}});
}

// What was noted since the last time; `sorted`: where the order is not certain.
void show_notes(const char* text, bool sorted = false) {
  uint32_t log[256];
  NEED(cuMemcpyDtoH(log, notes, sizeof log));
  NEED(cuMemsetD32(notes, 0, 256));
  NEED(cuCtxSynchronize());  // the other stream does not wait for it
  if (sorted) std::sort(log + 1, log + 1 + log[0]);
  std::printf("%s:", text);
  for (uint32_t i = 1; i <= log[0]; ++i) std::printf(" %u", log[i]);
  std::printf("\n");
}
void run(const char* text, CUgraphExec exec, bool sorted = false) {
  SHOW(cuGraphLaunch(exec, stream));
  SHOW(cuStreamSynchronize(stream));
  show_notes(text, sorted);
}

void show_instantiation(const char* text, CUgraph graph, CUgraphNode node,
                        unsigned long long flags = kDevice) {
  CUgraphExec exec = nullptr;
  CUDA_GRAPH_INSTANTIATE_PARAMS params{};
  params.flags = flags;
  params.hUploadStream = stream;
  std::printf("%s: %s", text, error_name(cuGraphInstantiateWithParams(&exec, graph, &params)));
  std::printf(" %d %s\n", params.result_out,
              params.hErrNode_out == nullptr ? "-"
              : params.hErrNode_out == node  ? "node"
                                             : "other");
  if (exec != nullptr) NEED(cuGraphExecDestroy(exec));
  NEED(cuGraphDestroy(graph));
}

void CUDA_CB nothing(void*) {}

void refused() {
  std::printf("-- what may be instantiated\n");
  CUgraph graph;
  CUgraphNode node;
  show_instantiation("a kernel", marks(1), nullptr);
  show_instantiation("with an upload", marks(1), nullptr,
                     kDevice | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD);
  NEED(cuGraphCreate(&graph, 0));
  show_instantiation("nothing", graph, nullptr);
  graph = marks(1);
  const CUDA_HOST_NODE_PARAMS host{nothing, nullptr};
  NEED(cuGraphAddHostNode(&node, graph, nullptr, 0, &host));
  show_instantiation("a host node", graph, node);
  graph = marks(1);
  CUevent event;
  NEED(cuEventCreate(&event, CU_EVENT_DEFAULT));
  NEED(cuGraphAddEventRecordNode(&node, graph, nullptr, 0, event));
  show_instantiation("an event", graph, node);
  graph = marks(1);
  static uint32_t words[kWords];
  auto copy = copy_params(words, a, sizeof words);
  NEED(cuGraphAddMemcpyNode(&node, graph, nullptr, 0, &copy, context));
  show_instantiation("a copy to ordinary memory", graph, node);
  void* pinned = nullptr;
  NEED(cuMemAllocHost(&pinned, kWords * 4));
  graph = marks(1);
  copy = copy_params(pinned, a, kWords * 4);
  NEED(cuGraphAddMemcpyNode(&node, graph, nullptr, 0, &copy, context));
  show_instantiation("a copy to pinned memory", graph, node);
  NEED(cuMemFreeHost(pinned));
  NEED(cuGraphCreate(&graph, 0));
  copy = copy_params(b, a, kWords * 4);
  NEED(cuGraphAddMemcpyNode(&node, graph, nullptr, 0, &copy, context));
  show_instantiation("a copy alone", graph, node);
  NEED(cuGraphCreate(&graph, 0));
  const CUgraph child = marks(1);
  NEED(cuGraphAddChildGraphNode(&node, graph, nullptr, 0, child));
  NEED(cuGraphDestroy(child));
  show_instantiation("a child", graph, node);
  NEED(cuEventDestroy(event));
}

void handles() {
  std::printf("-- handles\n");
  const CUgraph graph = marks(1);
  CUgraphExec one, two, plain;
  cuuint64_t flags = 0;
  NEED(cuGraphInstantiate(&one, graph, kDevice));
  NEED(cuGraphInstantiate(&two, graph, kDevice));
  NEED(cuGraphInstantiate(&plain, graph, 0));
  VALUE(one != two && one != plain && two != plain);
  SHOW(cuGraphExecGetFlags(one, &flags));
  VALUE(flags);
  SHOW(cuGraphExecGetFlags(plain, &flags));
  VALUE(flags);
  SHOW(cuGraphExecDestroy(one));
  run("the other", two);
  run("the plain one", plain);
  NEED(cuGraphExecDestroy(two));
  NEED(cuGraphExecDestroy(plain));
  NEED(cuGraphDestroy(graph));
}

void orders() {
  std::printf("-- launches by kernels\n");
  CUgraphExec inner = uploaded(marks(10));
  for (const unsigned long long flags : {0ull, kDevice}) {
    std::printf("from a graph with flags %llu\n", flags);
    CUgraphExec outer = instantiated(launches(inner, kBeside, 20), flags);
    run("beside", outer, true);
    run("again", outer, true);
    NEED(cuGraphExecDestroy(outer));
    outer = instantiated(launches(inner, kTail, 30), flags);
    run("behind", outer);
    NEED(cuGraphExecDestroy(outer));
    outer = instantiated(launches(inner, kSibling, 40), flags);
    run("sibling", outer, true);
    NEED(cuGraphExecDestroy(outer));
    outer = instantiated(launches(inner, 0, 50), flags);
    run("into the default stream", outer);
    NEED(cuGraphExecDestroy(outer));
  }
  NEED(cuGraphExecDestroy(inner));
}

// The tail of a tail comes before what stood there already.
void tails() {
  std::printf("-- tails\n");
  CUgraphExec last = uploaded(marks(3)), deep = uploaded(marks(2));
  CUgraphExec first = uploaded(launches(deep, kTail, 1));
  CUgraph graph = launches(first, kTail, 0);
  CUgraphNode nodes[1];
  size_t count = 1;
  NEED(cuGraphGetNodes(graph, nodes, &count));
  add(graph, "launch", {{notes, reinterpret_cast<uint64_t>(last), kTail, 5}}, {nodes[0]});
  CUgraphExec outer = instantiated(graph, 0);
  run("tails", outer);
  // Behind everything that the launch left.
  NEED(cuGraphLaunch(outer, stream));
  CUgraphExec behind = instantiated(marks(99), 0);
  run("and work of the stream", behind);
  for (CUgraphExec exec : {last, deep, first, outer, behind}) NEED(cuGraphExecDestroy(exec));
}

void itself() {
  std::printf("-- a graph that launches itself\n");
  CUdeviceptr left;
  NEED(cuMemAlloc(&left, 4));
  NEED(cuMemsetD32(left, 5, 1));
  NEED(cuCtxSynchronize());
  CUgraphExec exec = instantiated(graph_of("relaunch", {{notes, left}}), kDevice);
  run("five times", exec);
  NEED(cuMemsetD32(left, 3, 1));
  NEED(cuCtxSynchronize());
  run("three times", exec);
  NEED(cuGraphExecDestroy(exec));
  NEED(cuMemFree(left));
}

void which() {
  std::printf("-- the graph that a kernel is in\n");
  // Its handle is known when it is there, so it gets it afterwards.
  CUgraph graph = graph_of("which", {{notes, 1}});
  CUgraphNode node;
  size_t count = 1;
  NEED(cuGraphGetNodes(graph, &node, &count));
  for (const unsigned long long flags : {0ull, kDevice}) {
    CUgraphExec exec;
    NEED(cuGraphInstantiate(&exec, graph, flags));
    Arguments arguments{{notes, reinterpret_cast<uint64_t>(exec)}};
    CUDA_KERNEL_NODE_PARAMS params;
    NEED(cuGraphKernelNodeGetParams(node, &params));
    params.kernelParams = arguments.pointers;
    SHOW(cuGraphExecKernelNodeSetParams(exec, node, &params));
    run("which", exec);
    NEED(cuGraphExecDestroy(exec));
  }
  NEED(cuGraphDestroy(graph));
  Arguments arguments{{notes, 1}};
  SHOW(cuLaunchKernel(kernel("which"), 1, 1, 1, 1, 1, 1, 0, stream, arguments.pointers, nullptr));
  SHOW(cuStreamSynchronize(stream));
  show_notes("in no graph");
}

// The device has what was uploaded or launched by the host last.
void updates() {
  std::printf("-- updates\n");
  CUgraph graph = marks(1), other = marks(2);
  CUgraphExec inner;
  NEED(cuGraphInstantiate(&inner, graph, kDevice));
  CUgraphExec outer = instantiated(launches(inner, kTail, 20), 0);
  run("not uploaded", outer);
  run("launched by the host", inner);
  run("then by a kernel", outer);
  CUgraphExecUpdateResultInfo info{};
  SHOW(cuGraphExecUpdate(inner, other, &info));
  VALUE(info.result);
  SHOW(cuGraphUpload(inner, stream));
  run("updated and uploaded", outer);
  CUgraphNode node;
  size_t count = 1;
  NEED(cuGraphGetNodes(graph, &node, &count));
  SHOW(cuGraphNodeSetEnabled(inner, node, 0));
  SHOW(cuGraphUpload(inner, stream));
  run("disabled and uploaded", outer);
  NEED(cuGraphExecDestroy(inner));
  NEED(cuGraphExecDestroy(outer));
  NEED(cuGraphDestroy(graph));
  NEED(cuGraphDestroy(other));
}

// Copies run on the device, with pinned memory, too; and children.
void copies() {
  std::printf("-- copies, fills and children\n");
  uint32_t* pinned = nullptr;
  NEED(cuMemAllocHost(reinterpret_cast<void**>(&pinned), kWords * 4));
  CUgraph graph, child;
  CUgraphNode fill, copy, node;
  NEED(cuGraphCreate(&graph, 0));
  NEED(cuGraphCreate(&child, 0));
  const auto memset = memset_params(a, 77, kWords);
  NEED(cuGraphAddMemsetNode(&fill, child, nullptr, 0, &memset, context));
  NEED(cuGraphAddChildGraphNode(&node, graph, nullptr, 0, child));
  const auto inside = copy_params(b, a, kWords * 4);
  NEED(cuGraphAddMemcpyNode(&copy, graph, &node, 1, &inside, context));
  const auto out = copy_params(pinned, b, kWords * 4);
  NEED(cuGraphAddMemcpyNode(&node, graph, &copy, 1, &out, context));
  NEED(cuGraphDestroy(child));
  CUgraphExec inner = uploaded(graph);
  CUgraphExec outer = instantiated(launches(inner, kTail, 1), 0);
  for (int i = 0; i < 2; ++i) {
    std::fill_n(pinned, kWords, i);
    NEED(cuMemsetD32(b, 0, kWords));
    NEED(cuCtxSynchronize());
    run("copies", outer);
    show_first("b", b);
    VALUE(pinned[0]);
    VALUE(pinned[kWords - 1]);
  }
  NEED(cuGraphExecDestroy(inner));
  NEED(cuGraphExecDestroy(outer));
  NEED(cuMemFreeHost(pinned));
}

// What was launched goes on.
void ends() {
  std::printf("-- ends\n");
  CUgraphExec inner = uploaded(marks(10));
  CUgraphExec outer = instantiated(launches(inner, kTail, 20), 0);
  NEED(cuGraphLaunch(outer, stream));
  NEED(cuStreamSynchronize(stream));
  SHOW(cuGraphExecDestroy(outer));
  SHOW(cuGraphExecDestroy(inner));
  show_notes("then");
  for (int i = 0; i < 20; ++i) {
    inner = uploaded(marks(i));
    outer = instantiated(launches(inner, kBeside, 100), 0);
    NEED(cuGraphLaunch(outer, stream));
    NEED(cuStreamSynchronize(stream));
    NEED(cuGraphExecDestroy(outer));
    NEED(cuGraphExecDestroy(inner));
  }
  show_notes("twenty of them", true);
}

// What a graph refers to lives as long as launches of it, also by kernels.
void user_objects() {
  std::printf("-- user objects\n");
  static std::atomic<int> destroyed{0};
  CUgraph graph = marks(10);
  CUuserObject object;
  NEED(cuUserObjectCreate(
      &object, &destroyed, [](void* count) { ++*static_cast<std::atomic<int>*>(count); }, 1,
      CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  NEED(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
  CUgraphExec inner = uploaded(graph);
  CUgraphExec outer = instantiated(launches(inner, kTail, 20), 0);
  NEED(cuGraphLaunch(outer, stream));
  VALUE(destroyed);
  NEED(cuStreamSynchronize(stream));
  NEED(cuGraphExecDestroy(outer));
  VALUE(destroyed);
  NEED(cuGraphExecDestroy(inner));
  for (int i = 0; i < 1000 && destroyed == 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  VALUE(destroyed);
  show_notes("notes");
}

}  // namespace

int main() {
  set_up();
  NEED(cuModuleLoadData(&module, kGraphKernels));
  NEED(cuMemAlloc(&notes, 256 * 4));
  NEED(cuMemsetD32(notes, 0, 256));
  NEED(cuCtxSynchronize());
  refused();
  handles();
  orders();
  tails();
  itself();
  which();
  updates();
  copies();
  ends();
  user_objects();
  NEED(cuCtxDestroy(context));
}
