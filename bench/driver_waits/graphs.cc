#include "bench/driver_waits/graphs.h"

#include <sstream>
#include <utility>
#include <vector>

namespace driver_waits {
namespace {

using Params = CUgraphNodeParams;

void describe_kernel(Params& node, CUfunction function, void** parameters = nullptr) {
  node.type = CU_GRAPH_NODE_TYPE_KERNEL;
  node.kernel.func = function;
  node.kernel.gridDimX = node.kernel.gridDimY = node.kernel.gridDimZ = 1;
  node.kernel.blockDimX = node.kernel.blockDimY = node.kernel.blockDimZ = 1;
  node.kernel.kernelParams = parameters;
}

void describe_host(Params& node, CUhostFn function, World& world) {
  node.type = CU_GRAPH_NODE_TYPE_HOST;
  node.host.fn = function;
  node.host.userData = &world;
}

struct Copy {
  const char* name;
  char* World::*host;
  size_t bytes;
  bool to_device;
};
constexpr Copy kCopies[] = {{"pinned to device", &World::pinned, 100000, true},
                            {"device to pinned", &World::pinned, 100000, false},
                            {"registered to device", &World::registered, 100000, true},
                            {"4 B pageable to device", &World::pageable, 4, true},
                            {"1 MiB pageable to device", &World::pageable, 1 << 20, true},
                            {"device to 4 B pageable", &World::pageable, 4, false},
                            {"device to 1 MiB pageable", &World::pageable, 1 << 20, false}};

CUDA_MEMCPY3D& describe_copy(World& world, Params& node, size_t bytes) {
  node.type = CU_GRAPH_NODE_TYPE_MEMCPY;
  node.memcpy.copyCtx = world.context;
  node.memcpy.copyParams.WidthInBytes = bytes;
  node.memcpy.copyParams.Height = node.memcpy.copyParams.Depth = 1;
  return node.memcpy.copyParams;
}

void describe(World& world, Params& node, const Copy& kind) {
  CUDA_MEMCPY3D& copy = describe_copy(world, node, kind.bytes);
  copy.srcHost = copy.dstHost = world.*kind.host;
  copy.srcDevice = copy.dstDevice = world.device_memory;
  copy.srcMemoryType = kind.to_device ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
  copy.dstMemoryType = kind.to_device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
}

struct Kind {
  const char* name;
  void (*describe)(World&, Params&);
};

// Nodes in capitals last until World::release().
constexpr Kind kKinds[] = {
    {"kernel", [](World& world, Params& node) { describe_kernel(node, world.nothing); }},
    {"KERNEL", [](World& world,
                  Params& node) { describe_kernel(node, world.spin, world.parameters_of_spin); }},
    {"host", [](World& world, Params& node) { describe_host(node, do_nothing, world); }},
    {"HOST", [](World& world, Params& node) { describe_host(node, hold_function, world); }},
    {"WAIT",
     [](World& world, Params& node) {
       world.wait_for_turn.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
       world.wait_for_turn.waitValue.address = world.word_on_device;
       world.wait_for_turn.waitValue.value = world.next_turn;
       world.wait_for_turn.waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
       node.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
       node.memOp = {world.context, 1, &world.wait_for_turn, 0};
     }},
    {"pinned to registered",
     [](World& world, Params& node) {
       CUDA_MEMCPY3D& copy = describe_copy(world, node, 80000);
       copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
       copy.srcDevice = reinterpret_cast<CUdeviceptr>(world.pinned);
       copy.dstDevice = world.registered_on_device + 12;
     }},
    {"memset",
     [](World& world, Params& node) {
       node.type = CU_GRAPH_NODE_TYPE_MEMSET;
       node.memset = {.dst = world.more_device_memory,
                      .pitch = 0,
                      .value = 3,
                      .elementSize = 4,
                      .width = 1000,
                      .height = 1,
                      .ctx = world.context};
     }},
    {"allocation",
     [](World& world, Params& node) {
       node.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
       node.alloc.poolProps = world.pool_properties;
       node.alloc.bytesize = 1 << 20;
     }},
    {"free",
     [](World& world, Params& node) {
       node.type = CU_GRAPH_NODE_TYPE_MEM_FREE;
       node.free.dptr = world.memory;
     }},
    {"child of a kernel and a host function",
     [](World& world, Params& node) {
       node.type = CU_GRAPH_NODE_TYPE_GRAPH;
       node.graph.graph = make_graph(world, "kernel, host");
     }},
    {"event record",
     [](World& world, Params& node) {
       node.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD;
       node.eventRecord.event = world.events[0];
     }},
    {"event wait",
     [](World& world, Params& node) {
       node.type = CU_GRAPH_NODE_TYPE_WAIT_EVENT;
       node.eventWait.event = world.idle;
     }},
};

std::vector<std::string> names_in(const std::string& chain) {
  const size_t open = chain.find(" x (");
  if (open != std::string::npos) {
    const size_t count = chain.rfind(' ', open - 1) + 1;  // 0: it begins with the count
    std::vector<std::string> names = names_in(chain.substr(0, count));
    const std::vector<std::string> repeated =
        names_in(chain.substr(open + 4, chain.size() - open - 5));
    for (int times = std::stoi(chain.substr(count)); times > 0; --times)
      names.insert(names.end(), repeated.begin(), repeated.end());
    return names;
  }
  return split(chain, ',');
}

constexpr char kNoNode[] = "no node";
constexpr char kFork[] = "4 kernels";  // side by side; the next node comes behind all of them

}  // namespace

std::vector<std::string> split(const std::string& list, char separator) {
  std::vector<std::string> parts;
  std::istringstream rest(list);
  for (std::string part; std::getline(rest >> std::ws, part, separator);)
    parts.push_back(part.substr(0, part.find_last_not_of(' ') + 1));
  return parts;
}

CUgraphNodeParams describe_node(World& world, const std::string& name) {
  Params node{};
  for (const Kind& kind : kKinds) {
    if (name == kind.name) kind.describe(world, node);
  }
  for (const Copy& copy : kCopies) {
    if (name == copy.name) describe(world, node, copy);
  }
  return node;
}

CUgraph make_graph(World& world, const std::string& chain) {
  CUgraph graph;
  MUST(cuGraphCreate(&graph, 0));
  std::vector<CUgraphNode> last;
  for (const std::string& name : names_in(chain)) {
    if (name == kNoNode) continue;
    std::vector<CUgraphNode> added(name == kFork ? 4 : 1);
    for (CUgraphNode& one : added) {
      Params node = describe_node(world, name == kFork ? "kernel" : name);
      require(cuGraphAddNode(&one, graph, last.data(), nullptr, last.size(), &node), name.c_str());
      if (node.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) world.memory = node.alloc.dptr;
    }
    last = std::move(added);
  }
  return graph;
}

}  // namespace driver_waits
