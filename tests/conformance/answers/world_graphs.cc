// The world's graphs with nodes of every kind.
#include "tests/conformance/answers/answers.h"
#include "tests/conformance/answers/made.h"

namespace answers {
namespace {

CUgraphNode add_empty(CUgraph graph, const CUgraphNode* behind, size_t count) {
  CUgraphNode node = nullptr;
  need("cuGraphAddEmptyNode", &node, graph, behind, count);
  return node;
}

// Adds a node without dependencies.
template <typename... Params>
CUgraphNode add(const char* name, CUgraph graph, Params... params) {
  CUgraphNode node = nullptr;
  need(name, &node, graph, static_cast<const CUgraphNode*>(nullptr), size_t{0}, params...);
  return node;
}

CUgraph empty_graph() {
  CUgraph graph = nullptr;
  need("cuGraphCreate", &graph, 0u);
  return graph;
}

CUgraph clone_of(CUgraph graph) {
  CUgraph clone = nullptr;
  need("cuGraphClone", &clone, graph);
  return clone;
}

CUgraphExec exec_of(CUgraph graph) {
  CUgraphExec exec = nullptr;
  need("cuGraphInstantiateWithFlags", &exec, graph, 0ull);
  return exec;
}

}  // namespace

// A node of full_graph(), which has them all once one is asked for.
#define NODE(name)       \
  if (!can()) return {}; \
  full_graph();          \
  return reinterpret_cast<CUgraphNode>(slot(name))

CUgraphNode World::kernel_node() { NODE("kernel node"); }
CUgraphNode World::memcpy_node() { NODE("memcpy node"); }
CUgraphNode World::memset_node() { NODE("memset node"); }
CUgraphNode World::host_node() { NODE("host node"); }
CUgraphNode World::child_node() { NODE("child node"); }
CUgraphNode World::record_node() { NODE("record node"); }
CUgraphNode World::wait_node() { NODE("wait node"); }
CUgraphNode World::batch_node() { NODE("batch node"); }
CUgraphExec World::full_exec() { MADE(CUgraphExec, "full exec", exec_of(full_graph())); }
CUgraph World::clone() { MADE(CUgraph, "clone", (node(), clone_of(graph()))); }
CUgraphNode World::second_node() {
  MADE(CUgraphNode, "second node", add_empty(graph(), nullptr, 0));
}
CUgraphNode World::last_node() {
  const CUgraphNode behind = node();
  MADE(CUgraphNode, "last node", add_empty(graph(), &behind, 1));
}

void World::describe_copy(const CUDA_MEMCPY3D* params) {
  auto* p = const_cast<CUDA_MEMCPY3D*>(params);
  p->srcMemoryType = p->dstMemoryType = CU_MEMORYTYPE_DEVICE;
  p->srcDevice = memory();
  p->dstDevice = memory() + 32768;
  p->WidthInBytes = 64;
  p->Height = p->Depth = 1;
}

CUgraph World::full_graph() {
  if (!can()) return nullptr;
  if (uint64_t made = slot("full graph")) return reinterpret_cast<CUgraph>(made);
  const CUgraph graph = empty_graph();
  const auto keep = [&](const char* name, CUgraphNode node) {
    slot(name) = reinterpret_cast<uint64_t>(node);
  };
  CUDA_KERNEL_NODE_PARAMS kernel{};
  describe_kernel(&kernel);
  CUDA_MEMCPY3D copy{};
  describe_copy(&copy);
  CUDA_MEMSET_NODE_PARAMS fill{};
  describe_memset(&fill);
  CUDA_HOST_NODE_PARAMS host{};
  describe_host(&host);
  CUDA_BATCH_MEM_OP_NODE_PARAMS batch{};
  describe_batch(&batch);
  keep("kernel node", add("cuGraphAddKernelNode_v2", graph, &kernel));
  keep("memcpy node", add("cuGraphAddMemcpyNode", graph, &copy, context_));
  keep("memset node", add("cuGraphAddMemsetNode", graph, &fill, context_));
  keep("host node", add("cuGraphAddHostNode", graph, &host));
  keep("child node", add("cuGraphAddChildGraphNode", graph, other_graph()));
  keep("record node", add("cuGraphAddEventRecordNode", graph, event()));
  keep("wait node", add("cuGraphAddEventWaitNode", graph, event()));
  keep("batch node", add("cuGraphAddBatchMemOpNode", graph, &batch));
  slot("full graph") = reinterpret_cast<uint64_t>(graph);
  return graph;
}

CUgraph World::memory_graph() { MADE(CUgraph, "memory graph", empty_graph()); }

CUgraphNode World::alloc_node() {
  if (!can()) return nullptr;
  if (uint64_t made = slot("alloc node")) return reinterpret_cast<CUgraphNode>(made);
  CUDA_MEM_ALLOC_NODE_PARAMS params{};
  describe_alloc(&params);
  const CUgraphNode node = add("cuGraphAddMemAllocNode", memory_graph(), &params);
  slot("alloc node") = reinterpret_cast<uint64_t>(node);
  slot("graph memory") = params.dptr;
  return node;
}

CUdeviceptr World::graph_memory() {
  alloc_node();
  return slot("graph memory");
}

CUgraphNode World::free_node() {
  if (!can()) return nullptr;
  if (uint64_t made = slot("free node")) return reinterpret_cast<CUgraphNode>(made);
  const CUgraphNode behind = alloc_node();
  CUgraphNode node = nullptr;
  need("cuGraphAddMemFreeNode", &node, memory_graph(), &behind, size_t{1}, graph_memory());
  slot("free node") = reinterpret_cast<uint64_t>(node);
  return node;
}

CUgraphConditionalHandle World::conditional() {
  if (!can()) return 0;
  CUgraphConditionalHandle handle = 0;
  need("cuGraphConditionalHandleCreate", &handle, graph(), context_, 0u, 0u);
  return handle;
}

CUstream World::capturing() {
  if (!can() || phase_ == Phase::kDuringCapture) return stream();
  uint64_t& kept = slot("capturing");
  if (kept == 0) {
    CUstream made = nullptr;
    const CUdeviceptr target = memory();
    need("cuCtxSynchronize");
    need("cuStreamCreate", &made, 0u);
    need("cuStreamBeginCapture_v2", made, CU_STREAM_CAPTURE_MODE_RELAXED);
    need("cuMemsetD8Async", target, static_cast<unsigned char>(1), size_t{16}, made);
    kept = reinterpret_cast<uint64_t>(made);
  }
  return reinterpret_cast<CUstream>(kept);
}

#undef NODE

}  // namespace answers
