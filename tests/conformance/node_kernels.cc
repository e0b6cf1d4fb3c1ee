// Kernel nodes: what the getters give after each way to make one, for functions of modules and for
// kernels of libraries; what setters take of what getters gave.
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/conformance/graphs.h"
#include "tests/conformance/pointer_names.h"

namespace {

using namespace in_world;

// A kernel and its function need not be two handles.
PointerNames functions, kernels;

CUmodule module_;
CUlibrary library;
CUkernel fill_of_library, bump_of_library;
CUfunction fill_of_kernel, bump_function;

void set_up_more() {
  set_up();
  NEED(cuModuleLoadData(&module_, kKernels));
  NEED(cuModuleGetFunction(&fill_kernel, module_, "fill"));
  NEED(cuModuleGetFunction(&add_kernel, module_, "add"));
  NEED(cuModuleGetFunction(&bump_function, module_, "bump"));
  NEED(cuLibraryLoadData(&library, kKernels, nullptr, nullptr, 0, nullptr, nullptr, 0));
  NEED(cuLibraryGetKernel(&fill_of_library, library, "fill"));
  NEED(cuLibraryGetKernel(&bump_of_library, library, "bump"));
  NEED(cuKernelGetFunction(&fill_of_kernel, fill_of_library));
  CUfunction bump_of_kernel;
  NEED(cuKernelGetFunction(&bump_of_kernel, bump_of_library));
  names.give(module_, "module");
  names.give(library, "library");
  functions.give(fill_kernel, "function");
  functions.give(add_kernel, "add function");
  functions.give(bump_function, "bump function");
  functions.give(bump_of_kernel, "bump function of kernel");
  kernels.give(fill_of_library, "kernel");
  kernels.give(bump_of_library, "bump kernel");
  functions.give(fill_of_kernel, "function of kernel");
  names.give(context, "context");
  names.give(a, "a");
  names.give(b, "b");
  names.give(c, "c");
}

void handles() {
  std::printf("-- handles\n");
  CUfunction f;
  CUkernel k;
  CUmodule m;
  CUlibrary l;
  NEED(cuModuleGetFunction(&f, module_, "fill"));
  std::printf("function again: %s\n", functions.of(f).c_str());
  NEED(cuLibraryGetKernel(&k, library, "fill"));
  std::printf("kernel again: %s\n", kernels.of(k).c_str());
  NEED(cuKernelGetFunction(&f, k));
  std::printf("function of kernel again: %s\n", functions.of(f).c_str());
  NEED(cuLibraryGetModule(&m, library));
  names.give(m, "module of library");
  for (CUfunction const each : {fill_kernel, fill_of_kernel}) {
    std::printf("of %s\n", functions.of(each).c_str());
    m = nullptr;
    if (SHOW(cuFuncGetModule(&m, each)) == CUDA_SUCCESS)
      std::printf("  module: %s\n", names.of(m).c_str());
    const char* name = nullptr;
    if (SHOW(cuFuncGetName(&name, each)) == CUDA_SUCCESS) std::printf("  name: %s\n", name);
    size_t offset = 0, size = 0;
    if (SHOW(cuFuncGetParamInfo(each, 1, &offset, &size)) == CUDA_SUCCESS)
      std::printf("  parameter: %zu %zu\n", offset, size);
  }
  if (SHOW(cuKernelGetLibrary(&l, fill_of_library)) == CUDA_SUCCESS)
    std::printf("  library: %s\n", names.of(l).c_str());
}

// The form of CUDA 10.
CUresult get_v1(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1* params) {
  using Get = CUresult(CUDAAPI*)(CUgraphNode, CUDA_KERNEL_NODE_PARAMS_v1*);
  static const Get get = [] {
    void* found = nullptr;
    NEED(cuGetProcAddress("cuGraphKernelNodeGetParams", &found, 10000, 0, nullptr));
    return reinterpret_cast<Get>(found);
  }();
  return get(node, params);
}

// The parameters of fill, where `each` leads.
void show_values(void** each) {
  if (each == nullptr) {
    std::printf("    no values\n");
    return;
  }
  CUdeviceptr p;
  uint32_t value, n;
  std::memcpy(&p, each[0], 8);
  std::memcpy(&value, each[1], 4);
  std::memcpy(&n, each[2], 4);
  std::printf("    values: %s %u %u\n", names.of(p).c_str(), value, n);
}

void show_node(CUgraphNode node, bool with_values = true) {
  CUDA_KERNEL_NODE_PARAMS_v1 one;
  CUDA_KERNEL_NODE_PARAMS two, again;
  std::memset(&one, 0x5a, sizeof one);
  std::memset(&two, 0x5a, sizeof two);
  std::memset(&again, 0x5a, sizeof again);

  if (show("  first form", get_v1(node, &one)) == CUDA_SUCCESS) {
    std::printf("    func %s, %u %u %u, %u %u %u, %u, parameters %s, extra %s\n",
                functions.of(one.func).c_str(), one.gridDimX, one.gridDimY, one.gridDimZ,
                one.blockDimX, one.blockDimY, one.blockDimZ, one.sharedMemBytes,
                one.kernelParams != nullptr ? "given" : "0", one.extra != nullptr ? "given" : "0");
    if (with_values) show_values(one.kernelParams);
  }
  if (show("  second form", cuGraphKernelNodeGetParams(node, &two)) == CUDA_SUCCESS) {
    std::printf("    func %s, kern %s, ctx %s, %u %u %u, %u %u %u, %u, parameters %s, extra %s\n",
                functions.of(two.func).c_str(), kernels.of(two.kern).c_str(),
                names.of(two.ctx).c_str(), two.gridDimX, two.gridDimY, two.gridDimZ, two.blockDimX,
                two.blockDimY, two.blockDimZ, two.sharedMemBytes,
                two.kernelParams != nullptr ? "given" : "0", two.extra != nullptr ? "given" : "0");
    if (with_values) show_values(two.kernelParams);
  }
  if (cuGraphKernelNodeGetParams(node, &again) == CUDA_SUCCESS)
    std::printf("    the same pointers: first form %d, again %d\n",
                one.kernelParams == two.kernelParams, again.kernelParams == two.kernelParams);
}

CUgraphNode only_node(CUgraph graph) {
  CUgraphNode node = nullptr;
  size_t count = 1;
  NEED(cuGraphGetNodes(graph, &node, &count));
  return node;
}

// Another value at each use.
uint32_t next_value = 10;

void run(CUgraph graph, uint32_t expected) {
  CUgraphExec exec;
  if (show("  instantiate", cuGraphInstantiate(&exec, graph, 0)) != CUDA_SUCCESS) return;
  NEED(cuMemsetD32(a, 0, kWords));
  NEED(cuMemsetD32(b, 0, kWords));
  NEED(cuCtxSynchronize());
  show("  launch", cuGraphLaunch(exec, stream));
  show("  wait", cuStreamSynchronize(stream));
  uint32_t got = 0;
  NEED(cuMemcpyDtoH(&got, a, 4));
  std::printf("  a: %s\n", got == expected ? "as expected" : std::to_string(got).c_str());
  NEED(cuGraphExecDestroy(exec));
}

void show_graph(CUgraph graph, uint32_t expected) {
  const CUgraphNode node = only_node(graph);
  show_node(node);
  run(graph, expected);
  CUgraph clone, outer;
  CUgraphNode inner;
  NEED(cuGraphClone(&clone, graph));
  std::printf(" clone\n");
  show_node(only_node(clone));
  NEED(cuGraphDestroy(clone));
  NEED(cuGraphCreate(&outer, 0));
  NEED(cuGraphAddChildGraphNode(&inner, outer, nullptr, 0, graph));
  CUgraph copy;
  NEED(cuGraphChildGraphNodeGetGraph(inner, &copy));
  std::printf(" child\n");
  show_node(only_node(copy));
  NEED(cuGraphDestroy(outer));
}

// A kernel to launch, as parameters of nodes name it.
struct Handle {
  const char* name;
  const CUfunction* in_func;
  const CUkernel* in_kern;
  CUfunction func() const { return in_func == nullptr ? nullptr : *in_func; }
  CUkernel kern() const { return in_kern == nullptr ? nullptr : *in_kern; }
};

const Handle kHandles[] = {
    {"func: function", &fill_kernel, nullptr},
    {"func: function of kernel", &fill_of_kernel, nullptr},
    {"kern: kernel", nullptr, &fill_of_library},
    {"func: function, kern: kernel", &fill_kernel, &fill_of_library},
    {"func: function of kernel, kern: kernel", &fill_of_kernel, &fill_of_library}};

CUgraphNodeParams general(const CUDA_KERNEL_NODE_PARAMS& from) {
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_KERNEL;
  std::memcpy(&params.kernel, &from, sizeof from);
  return params;
}

void made() {
  for (const Handle& handle : kHandles) {
    for (const char* way : {"typed", "general, context"}) {
      std::printf("-- %s, %s\n", handle.name, way);
      FillParams fill{a, ++next_value, 32};
      CUDA_KERNEL_NODE_PARAMS params = fill.node(handle.func());
      params.kern = handle.kern();
      if (std::strstr(way, "context") != nullptr) params.ctx = context;
      CUgraph graph;
      CUgraphNode node;
      NEED(cuGraphCreate(&graph, 0));
      CUresult result;
      if (std::strstr(way, "typed") != nullptr) {
        result = SHOW(cuGraphAddKernelNode(&node, graph, nullptr, 0, &params));
      } else {
        CUgraphNodeParams all = general(params);
        result = SHOW(cuGraphAddNode(&node, graph, nullptr, nullptr, 0, &all));
      }
      if (result == CUDA_SUCCESS) show_graph(graph, fill.value);
      NEED(cuGraphDestroy(graph));
    }
  }
}

void captured() {
  const std::pair<const char*, CUfunction> launched[] = {
      {"function", fill_kernel},
      {"function of kernel", fill_of_kernel},
      {"kernel", reinterpret_cast<CUfunction>(fill_of_library)}};
  for (const auto& [name, function] : launched) {
    for (int way = 0; way < 4; ++way) {
      FillParams fill{a, ++next_value, 32};
      NEED(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
      CUlaunchConfig config{};
      config.gridDimX = config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
      config.blockDimX = 32;
      config.sharedMemBytes = 16;
      config.hStream = stream;
      CUlaunchAttribute attribute{};
      attribute.id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
      config.attrs = &attribute;
      config.numAttrs = 1;
      struct {
        CUdeviceptr p;
        uint32_t value, n;
      } buffer{a, fill.value, 32};
      size_t size = sizeof buffer;
      void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                       CU_LAUNCH_PARAM_END};
      std::printf("-- captured, %s, way %d\n", name, way);
      if (way == 0)
        SHOW(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, fill.pointers, nullptr));
      if (way == 1) SHOW(cuLaunchKernelEx(&config, function, fill.pointers, nullptr));
      if (way == 2)
        SHOW(cuLaunchCooperativeKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, fill.pointers));
      if (way == 3) SHOW(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, nullptr, extra));
      CUgraph graph = nullptr;
      SHOW(cuStreamEndCapture(stream, &graph));
      if (graph != nullptr) {
        show_graph(graph, fill.value);
        NEED(cuGraphDestroy(graph));
      }
    }
  }
}

// A buffer in place of pointers, and no parameters.
void other_forms() {
  std::printf("-- a buffer of parameters\n");
  struct {
    CUdeviceptr p;
    uint32_t value, n;
  } buffer{a, 5, 32};
  size_t size = sizeof buffer;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                   CU_LAUNCH_PARAM_END};
  FillParams unused{a, 0, 32};
  CUDA_KERNEL_NODE_PARAMS params = unused.node(fill_kernel);
  params.kernelParams = nullptr;
  params.extra = extra;
  CUgraph graph;
  CUgraphNode node;
  NEED(cuGraphCreate(&graph, 0));
  SHOW(cuGraphAddKernelNode(&node, graph, nullptr, 0, &params));
  show_graph(graph, 5);
  CUDA_KERNEL_NODE_PARAMS got;
  SHOW(cuGraphKernelNodeGetParams(node, &got));
  if (got.extra != nullptr) {
    for (int i = 0; i < 5; ++i)
      std::printf("  extra[%d]: %s\n", i,
                  reinterpret_cast<uintptr_t>(got.extra[i]) < 8
                      ? std::to_string(reinterpret_cast<uintptr_t>(got.extra[i])).c_str()
                      : "pointer");
  }
  FillParams more{a, 6, 32};
  params = more.node(fill_kernel);
  SHOW(cuGraphKernelNodeSetParams(node, &params));
  show_node(node);
  params.kernelParams = nullptr;
  params.extra = extra;
  SHOW(cuGraphKernelNodeSetParams(node, &params));
  show_node(node);
  NEED(cuGraphDestroy(graph));
  for (const Handle& handle :
       {Handle{"function", &bump_function, nullptr}, Handle{"kernel", nullptr, &bump_of_library}}) {
    std::printf("-- no parameters, %s\n", handle.name);
    NEED(cuGraphCreate(&graph, 0));
    params = kernel_params(handle.func(), nullptr, 32);
    params.kern = handle.kern();
    SHOW(cuGraphAddKernelNode(&node, graph, nullptr, 0, &params));
    show_node(node, false);
    params.kernelParams = more.pointers;
    SHOW(cuGraphKernelNodeSetParams(node, &params));
    show_node(node, false);
    SHOW(cuGraphKernelNodeGetParams(node, &got));
    SHOW(cuGraphKernelNodeSetParams(node, &got));
    CUgraphExec exec;
    SHOW(cuGraphInstantiate(&exec, graph, 0));
    SHOW(cuGraphExecKernelNodeSetParams(exec, node, &got));
    NEED(cuGraphExecDestroy(exec));
    NEED(cuGraphDestroy(graph));
  }
}

uint32_t first_of(CUdeviceptr p) {
  uint32_t got = 0;
  NEED(cuMemcpyDtoH(&got, p, 4));
  return got;
}

// Read, one pointer changed, set in the node, then in the executable graph.
void read_changed_set() {
  for (const Handle& handle : kHandles) {
    for (const int change : {0, 1, 2}) {
      std::printf("-- read, parameter %d changed, set: %s\n", change, handle.name);
      FillParams fill{a, 3, 32};
      CUDA_KERNEL_NODE_PARAMS params = fill.node(handle.func()), got, later;
      params.kern = handle.kern();
      CUgraph graph;
      CUgraphNode node;
      NEED(cuGraphCreate(&graph, 0));
      if (show("add", cuGraphAddKernelNode(&node, graph, nullptr, 0, &params)) != CUDA_SUCCESS) {
        NEED(cuGraphDestroy(graph));
        continue;
      }
      NEED(cuGraphKernelNodeGetParams(node, &got));
      CUdeviceptr in_b = b;
      uint32_t seven = 7, eight = 8;
      void* const to[] = {&in_b, &seven, &eight};
      void** const list = got.kernelParams;
      got.kernelParams[change] = to[change];
      SHOW(cuGraphKernelNodeSetParams(node, &got));
      NEED(cuGraphKernelNodeGetParams(node, &later));
      std::printf("  the same list: %d\n", later.kernelParams == list);
      for (int i = 0; i < 3; ++i) std::printf("  parameter %d: ours %d\n", i, list[i] == to[i]);
      show_values(later.kernelParams);
      CUgraphExec exec;
      NEED(cuGraphInstantiate(&exec, graph, 0));
      for (const CUdeviceptr each : {a, b}) NEED(cuMemsetD32(each, 0, kWords));
      NEED(cuCtxSynchronize());
      SHOW(cuGraphLaunch(exec, stream));
      SHOW(cuStreamSynchronize(stream));
      std::printf("  a %u, b %u\n", first_of(a), first_of(b));
      CUdeviceptr in_a = a;
      uint32_t eleven = 11, twelve = 12;
      void* const further[] = {&in_a, &eleven, &twelve};
      later.kernelParams[change] = further[change];
      SHOW(cuGraphExecKernelNodeSetParams(exec, node, &later));
      SHOW(cuGraphLaunch(exec, stream));
      SHOW(cuStreamSynchronize(stream));
      std::printf("  a %u, b %u\n", first_of(a), first_of(b));
      // The list of the first reading, with a new pointer.
      got.kernelParams[change] = further[change];
      SHOW(cuGraphExecKernelNodeSetParams(exec, node, &got));
      SHOW(cuGraphLaunch(exec, stream));
      SHOW(cuStreamSynchronize(stream));
      std::printf("  a %u, b %u\n", first_of(a), first_of(b));
      show_node(node);
      NEED(cuGraphExecDestroy(exec));
      NEED(cuGraphDestroy(graph));
    }
  }
}

// A node is given a function of another kind, or with other parameters.
void set_otherwise() {
  for (const Handle& first : kHandles) {
    if (first.func() != nullptr && first.kern() != nullptr) continue;
    for (const Handle& second : kHandles) {
      std::printf("-- %s, then %s\n", first.name, second.name);
      FillParams fill{a, 3, 32}, other{a, 4, 32};
      CUDA_KERNEL_NODE_PARAMS params = fill.node(first.func());
      params.kern = first.kern();
      CUgraph graph;
      CUgraphNode node;
      NEED(cuGraphCreate(&graph, 0));
      if (show("add", cuGraphAddKernelNode(&node, graph, nullptr, 0, &params)) == CUDA_SUCCESS) {
        CUgraphExec exec;
        NEED(cuGraphInstantiate(&exec, graph, 0));
        params = other.node(second.func());
        params.kern = second.kern();
        SHOW(cuGraphExecKernelNodeSetParams(exec, node, &params));
        NEED(cuMemsetD32(a, 0, kWords));
        NEED(cuCtxSynchronize());
        SHOW(cuGraphLaunch(exec, stream));
        SHOW(cuStreamSynchronize(stream));
        std::printf("  a %u\n", first_of(a));
        SHOW(cuGraphKernelNodeSetParams(node, &params));
        show_node(node);
        CUgraphNodeParams all = general(params);
        SHOW(cuGraphNodeSetParams(node, &all));
        SHOW(cuGraphExecNodeSetParams(exec, node, &all));
        CUgraphExecUpdateResultInfo info{};
        SHOW(cuGraphExecUpdate(exec, graph, &info));
        show_node(node);
        NEED(cuGraphExecDestroy(exec));
      }
      NEED(cuGraphDestroy(graph));
    }
  }
}

void set_other_layout() {
  std::printf("-- fill, then add\n");
  FillParams fill{a, 3, 32};
  AddParams add{a, a, b, 32};
  CUDA_KERNEL_NODE_PARAMS params = fill.node(fill_kernel), got;
  CUgraph graph;
  CUgraphNode node;
  NEED(cuGraphCreate(&graph, 0));
  NEED(cuGraphAddKernelNode(&node, graph, nullptr, 0, &params));
  params = add.node(add_kernel);
  SHOW(cuGraphKernelNodeSetParams(node, &params));
  SHOW(cuGraphKernelNodeGetParams(node, &got));
  std::printf("  func %s\n", functions.of(got.func).c_str());
  params = fill.node(fill_kernel);
  SHOW(cuGraphKernelNodeSetParams(node, &params));
  show_node(node);
  NEED(cuGraphDestroy(graph));
}

// Attributes of nodes, made and captured.
void attributes() {
  std::printf("-- attributes\n");
  FillParams fill{a, 3, 32};
  CUDA_KERNEL_NODE_PARAMS params = fill.node(fill_kernel);
  CUgraph graph, taken;
  CUgraphNode made;
  NEED(cuGraphCreate(&graph, 0));
  NEED(cuGraphAddKernelNode(&made, graph, nullptr, 0, &params));
  int least = 0, greatest = 0;
  NEED(cuCtxGetStreamPriorityRange(&least, &greatest));
  CUstream urgent;
  NEED(cuStreamCreateWithPriority(&urgent, CU_STREAM_NON_BLOCKING, greatest));
  std::vector<std::function<CUresult()>> launches;
  launches.push_back([&] {
    return cuLaunchKernel(fill_kernel, 1, 1, 1, 32, 1, 1, 0, urgent, fill.pointers, nullptr);
  });
  launches.push_back([&] {
    return cuLaunchCooperativeKernel(fill_kernel, 1, 1, 1, 32, 1, 1, 0, urgent, fill.pointers);
  });
  for (const CUlaunchAttributeID id :
       {CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
        CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, CU_LAUNCH_ATTRIBUTE_PRIORITY,
        CU_LAUNCH_ATTRIBUTE_COOPERATIVE, CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN}) {
    launches.push_back([&, id] {
      CUlaunchConfig config{};
      config.gridDimX = 2;
      config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
      config.blockDimX = 32;
      config.hStream = urgent;
      CUlaunchAttribute attribute{};
      attribute.id = id;
      if (id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
        attribute.value.clusterDim = {2, 1, 1};
      else
        attribute.value.priority = 1;
      config.attrs = &attribute;
      config.numAttrs = 1;
      return cuLaunchKernelEx(&config, fill_kernel, fill.pointers, nullptr);
    });
  }
  auto show_all = [](CUgraphNode node) {
    for (int id = 0; id < 20; ++id) {
      CUkernelNodeAttrValue value;
      std::memset(&value, 0, sizeof value);
      const CUresult result =
          cuGraphKernelNodeGetAttribute(node, static_cast<CUkernelNodeAttrID>(id), &value);
      std::printf("  %d: %s", id, error_name(result));
      unsigned words[6];
      std::memcpy(words, &value, sizeof words);
      if (result == CUDA_SUCCESS)
        for (const unsigned word : words) std::printf(" %x", word);
      std::printf("\n");
    }
  };
  show_all(made);
  int number = 0;
  for (const auto& launch : launches) {
    std::printf("- captured %d\n", number++);
    NEED(cuStreamBeginCapture(urgent, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    show("launch", launch());
    taken = nullptr;
    show("end", cuStreamEndCapture(urgent, &taken));
    if (taken == nullptr) continue;
    show_all(only_node(taken));
    show_node(only_node(taken));
    NEED(cuGraphDestroy(taken));
  }
}

}  // namespace

int main() {
  set_up_more();
  handles();
  made();
  captured();
  other_forms();
  read_changed_set();
  set_otherwise();
  set_other_layout();
  attributes();
  return 0;
}
