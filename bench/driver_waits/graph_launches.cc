// Executable graphs in flight, behind a held stream (beh) or held by a node of their own (ins):
// launches, changes, ends; and how many launches of a kind a queue takes.
#include "bench/driver_waits/waits.h"
static std::vector<CUgraphNode> nodes;
static CUgraphNode add_kernel(CUgraph g, std::vector<CUgraphNode> d) {
  CUDA_KERNEL_NODE_PARAMS k{};
  k.func = w.nothing;
  k.gridDimX = k.gridDimY = k.gridDimZ = k.blockDimX = k.blockDimY = k.blockDimZ = 1;
  CUgraphNode n;
  MUST(cuGraphAddKernelNode(&n, g, d.data(), d.size(), &k));
  return n;
}
static CUgraphNode add_host(CUgraph g, std::vector<CUgraphNode> d, CUhostFn f = no_function) {
  CUDA_HOST_NODE_PARAMS h{f, nullptr};
  CUgraphNode n;
  MUST(cuGraphAddHostNode(&n, g, d.data(), d.size(), &h));
  return n;
}
static CUgraphNode add_copy(CUgraph g, std::vector<CUgraphNode> d, void* host, size_t size,
                            bool up) {
  CUDA_MEMCPY3D c{};
  c.WidthInBytes = size;
  c.Height = c.Depth = 1;
  if (up) {
    c.srcMemoryType = CU_MEMORYTYPE_HOST;
    c.srcHost = host;
    c.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    c.dstDevice = w.d0;
  } else {
    c.dstMemoryType = CU_MEMORYTYPE_HOST;
    c.dstHost = host;
    c.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    c.srcDevice = w.d0;
  }
  CUgraphNode n;
  MUST(cuGraphAddMemcpyNode(&n, g, d.data(), d.size(), &c, w.ctx));
  return n;
}
static CUgraphNode add_memset(CUgraph g, std::vector<CUgraphNode> d) {
  CUDA_MEMSET_NODE_PARAMS m{};
  m.dst = w.d1;
  m.elementSize = 4;
  m.width = 1000;
  m.height = 1;
  m.value = 3;
  CUgraphNode n;
  MUST(cuGraphAddMemsetNode(&n, g, d.data(), d.size(), &m, w.ctx));
  return n;
}
static CUgraphNode add_spin(CUgraph g, std::vector<CUgraphNode> d) {
  static CUdeviceptr at;
  static unsigned until;
  at = w.dword;
  until = w.turn + 1;
  static void* args[] = {&at, &until};
  CUDA_KERNEL_NODE_PARAMS k{};
  k.func = w.spin;
  k.gridDimX = k.gridDimY = k.gridDimZ = k.blockDimX = k.blockDimY = k.blockDimZ = 1;
  k.kernelParams = args;
  CUgraphNode n;
  MUST(cuGraphAddKernelNode(&n, g, d.data(), d.size(), &k));
  return n;
}
struct Kind {
  const char* name;
  CUgraph (*make)();
};
static CUgraph begin() {
  CUgraph g;
  nodes.clear();
  MUST(cuGraphCreate(&g, 0));
  return g;
}
#define NODE(...) nodes.push_back(__VA_ARGS__)
static const Kind kinds[] = {
    {"kernel",
     [] {
       auto g = begin();
       NODE(add_kernel(g, {}));
       return g;
     }},
    {"kernel-kernel-kernel",
     [] {
       auto g = begin();
       NODE(add_kernel(g, {}));
       NODE(add_kernel(g, {nodes[0]}));
       NODE(add_kernel(g, {nodes[1]}));
       return g;
     }},
    {"fork of 4 kernels",
     [] {
       auto g = begin();
       NODE(add_kernel(g, {}));
       for (int i = 0; i < 4; ++i) NODE(add_kernel(g, {nodes[0]}));
       NODE(add_kernel(g, {nodes[1], nodes[2], nodes[3], nodes[4]}));
       return g;
     }},
    {"host",
     [] {
       auto g = begin();
       NODE(add_host(g, {}));
       return g;
     }},
    {"kernel-host-kernel",
     [] {
       auto g = begin();
       NODE(add_kernel(g, {}));
       NODE(add_host(g, {nodes[0]}));
       NODE(add_kernel(g, {nodes[1]}));
       return g;
     }},
    {"host-kernel-host-kernel-host",
     [] {
       auto g = begin();
       NODE(add_kernel(g, {}));
       NODE(add_host(g, {nodes[0]}));
       NODE(add_kernel(g, {nodes[1]}));
       NODE(add_host(g, {nodes[2]}));
       NODE(add_kernel(g, {nodes[3]}));
       NODE(add_host(g, {nodes[4]}));
       return g;
     }},
    {"copy up pinned",
     [] {
       auto g = begin();
       NODE(add_copy(g, {}, w.pinned, 100000, true));
       return g;
     }},
    {"copy up registered-kernel",
     [] {
       auto g = begin();
       NODE(add_copy(g, {}, w.registered, 100000, true));
       NODE(add_kernel(g, {nodes[0]}));
       return g;
     }},
    {"kernel-copy down pinned",
     [] {
       auto g = begin();
       NODE(add_kernel(g, {}));
       NODE(add_copy(g, {nodes[0]}, w.pinned, 100000, false));
       return g;
     }},
    {"copy up pageable 4 B",
     [] {
       auto g = begin();
       NODE(add_copy(g, {}, w.pageable, 4, true));
       return g;
     }},
    {"copy up pageable 1 MiB",
     [] {
       auto g = begin();
       NODE(add_copy(g, {}, w.pageable, 1 << 20, true));
       return g;
     }},
    {"copy down pageable 4 B",
     [] {
       auto g = begin();
       NODE(add_copy(g, {}, w.pageable, 4, false));
       return g;
     }},
    {"copy down pageable 1 MiB",
     [] {
       auto g = begin();
       NODE(add_copy(g, {}, w.pageable, 1 << 20, false));
       return g;
     }},
    {"memset",
     [] {
       auto g = begin();
       NODE(add_memset(g, {}));
       return g;
     }},
    {"host-copy up pinned-kernel-copy down-host",
     [] {
       auto g = begin();
       NODE(add_host(g, {}));
       NODE(add_copy(g, {nodes[0]}, w.pinned, 100000, true));
       NODE(add_kernel(g, {nodes[1]}));
       NODE(add_copy(g, {nodes[2]}, w.pinned, 100000, false));
       NODE(add_host(g, {nodes[3]}));
       return g;
     }},
    {"alloc-kernel-free",
     [] {
       auto g = begin();
       CUDA_MEM_ALLOC_NODE_PARAMS a{};
       a.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
       a.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, w.dev};
       a.bytesize = 1 << 20;
       CUgraphNode n, f;
       MUST(cuGraphAddMemAllocNode(&n, g, nullptr, 0, &a));
       NODE(n);
       NODE(add_kernel(g, {n}));
       MUST(cuGraphAddMemFreeNode(&f, g, &nodes[1], 1, a.dptr));
       NODE(f);
       return g;
     }},
    {"child of kernel-host",
     [] {
       auto c = begin();
       auto k = add_kernel(c, {});
       add_host(c, {k});
       auto g = begin();
       CUgraphNode n;
       MUST(cuGraphAddChildGraphNode(&n, g, nullptr, 0, c));
       NODE(n);
       return g;
     }},
    {"event record",
     [] {
       auto g = begin();
       CUgraphNode n;
       MUST(cuGraphAddEventRecordNode(&n, g, nullptr, 0, w.E));
       NODE(n);
       return g;
     }},
    {"event wait",
     [] {
       auto g = begin();
       CUgraphNode n;
       MUST(cuGraphAddEventWaitNode(&n, g, nullptr, 0, w.Eidle));
       NODE(n);
       return g;
     }},
    {"chain of 200 kernels",
     [] {
       auto g = begin();
       for (int i = 0; i < 200; ++i) {
         if (i)
           NODE(add_kernel(g, {nodes[i - 1]}));
         else
           NODE(add_kernel(g, {}));
       }
       return g;
     }},
    {"chain of 20 host nodes",
     [] {
       auto g = begin();
       for (int i = 0; i < 20; ++i) {
         if (i)
           NODE(add_host(g, {nodes[i - 1]}));
         else
           NODE(add_host(g, {}));
       }
       return g;
     }},
    {"empty", [] { return begin(); }},
};
static CUgraphExec make(CUgraph g) {
  CUgraphExec x;
  MUST(cuGraphInstantiate(&x, g, 0));
  return x;
}
// The executable graph is in flight: behind a held stream ("beh"), or its own node holds ("ins").
void graph_cases() {
  for (const Kind& k : kinds) {
    std::string n = k.name;
    for (Holder h : {kFunction, kValue}) {
      if (!turn()) continue;
      const bool alone =
          n == "alloc-kernel-free";  // such a graph has one executable graph at a time
      CUgraph g = k.make();
      CUgraphNode first = nodes.empty() ? nullptr : nodes[0];
      CUgraphExec x = make(g), y = alone ? x : make(g);
      MUST(cuGraphLaunch(x, w.O));
      MUST(cuGraphLaunch(y, w.O));
      settle();
      auto each = [&](const std::string& name, const std::function<CUresult()>& f) {
        hold(h);
        CUresult r = CUDA_SUCCESS;
        bool first_waits = false;
        // The launch that is in flight may wait itself.
        std::atomic<bool> done{false};
        std::thread t([&] {
          cuCtxSetCurrent(w.ctx);
          r = cuGraphLaunch(x, w.S);
          done = true;
        });
        for (int i = 0; i < 1000 && !done; ++i) usleep(100);
        first_waits = !done;
        if (first_waits) {
          let_go(h);
          t.join();
          settle();
          printf("gra %s beh %-44s the first launch behind S BLOCKS\n", h == kFunction ? "F" : "V",
                 n.c_str());
          return;
        }
        t.join();
        MUST(r);
        ask("gra", h, "beh", n + ": " + name, f);
      };
      each("launch, same stream", [&] { return cuGraphLaunch(x, w.S); });
      each("launch, other stream", [&] { return cuGraphLaunch(x, w.O); });
      each("launch of its twin, same stream", [&] { return cuGraphLaunch(y, w.S); });
      each("launch of its twin, other stream", [&] { return cuGraphLaunch(y, w.O); });
      each("upload, other stream", [&] { return cuGraphUpload(x, w.O); });
      each("update", [&] {
        CUgraphExecUpdateResultInfo i{};
        return cuGraphExecUpdate(x, g, &i);
      });
      CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
      if (first) MUST(cuGraphNodeGetType(first, &type));
      if (type == CU_GRAPH_NODE_TYPE_KERNEL) {
        each("set kernel node", [&] {
          CUDA_KERNEL_NODE_PARAMS p{};
          p.func = w.nothing;
          p.gridDimX = p.gridDimY = p.gridDimZ = p.blockDimY = p.blockDimZ = 1;
          p.blockDimX = 2;
          return cuGraphExecKernelNodeSetParams(x, first, &p);
        });
        each("disable node", [&] {
          CUresult r = cuGraphNodeSetEnabled(x, first, 0);
          cuGraphNodeSetEnabled(x, first, 1);
          return r;
        });
      }
      if (type == CU_GRAPH_NODE_TYPE_HOST)
        each("set host node", [&] {
          CUDA_HOST_NODE_PARAMS p{no_function, &w};
          return cuGraphExecHostNodeSetParams(x, first, &p);
        });
      if (type == CU_GRAPH_NODE_TYPE_MEMSET)
        each("set memset node", [&] {
          CUDA_MEMSET_NODE_PARAMS m{};
          m.dst = w.d1;
          m.elementSize = 4;
          m.width = 1000;
          m.height = 1;
          m.value = 4;
          return cuGraphExecMemsetNodeSetParams(x, first, &m, w.ctx);
        });
      if (!alone) {
        CUgraphExec z = make(g);
        MUST(cuGraphLaunch(z, w.O));
        settle();
        hold(h);
        std::atomic<bool> done{false};
        std::thread t([&] {
          cuCtxSetCurrent(w.ctx);
          cuGraphLaunch(z, w.S);
          done = true;
        });
        for (int i = 0; i < 1000 && !done; ++i) usleep(100);
        if (!done) {
          let_go(h);
          t.join();
          settle();
          cuGraphExecDestroy(z);
        } else {
          t.join();
          ask("gra", h, "beh", n + ": destroy", [&] { return cuGraphExecDestroy(z); });
        }
      }
      MUST(cuGraphExecDestroy(x));
      if (!alone) MUST(cuGraphExecDestroy(y));
      // How many launches of one, and of two in turn.
      x = make(g);
      y = alone ? x : make(g);
      MUST(cuGraphLaunch(x, w.O));
      MUST(cuGraphLaunch(y, w.O));
      settle();
      depth(
          "gra", h, n + ": launches of one",
          [&](unsigned) {
            MUST(cuGraphLaunch(x, w.S));
            return true;
          },
          1200);
      depth(
          "gra", h, n + ": launches of two in turn",
          [&](unsigned i) {
            MUST(cuGraphLaunch(i % 2 ? x : y, w.S));
            return true;
          },
          1200);
      MUST(cuGraphExecDestroy(x));
      if (!alone) MUST(cuGraphExecDestroy(y));
      MUST(cuGraphDestroy(g));
    }
  }
  // The graph holds itself, by its own node.
  for (int inside = 0; inside < 5; ++inside) {
    const char* names[] = {"host HOLDS", "kernel-host HOLDS-kernel", "host HOLDS-copy up pinned",
                           "kernel SPINS", "kernel SPINS-host"};
    std::string n = names[inside];
    Holder h = inside < 3 ? kFunction : kKernel;
    auto build = [&] {
      CUgraph g = begin();
      if (inside == 0) NODE(add_host(g, {}, hold_function));
      if (inside == 1) {
        NODE(add_kernel(g, {}));
        NODE(add_host(g, {nodes[0]}, hold_function));
        NODE(add_kernel(g, {nodes[1]}));
      }
      if (inside == 2) {
        NODE(add_host(g, {}, hold_function));
        NODE(add_copy(g, {nodes[0]}, w.pinned, 100000, true));
      }
      if (inside >= 3) NODE(add_spin(g, {}));
      if (inside == 4) NODE(add_host(g, {nodes[0]}));
      return g;
    };
    auto each = [&](const std::string& name, const std::function<CUresult(CUgraphExec, CUgraph)>& f,
                    bool destroyed = false) {
      if (!turn()) return;
      CUgraph g = build();
      CUgraphExec x = make(g);
      ++w.turn;
      function_goes = false;
      MUST(cuGraphLaunch(x, w.S));
      usleep(3000);
      for (int i = 0; h == kFunction && i < 1000 && !function_runs; ++i) usleep(100);
      ask("gra", h, "ins", n + ": " + name, [&] { return f(x, g); });
      if (!destroyed) MUST(cuGraphExecDestroy(x));
      MUST(cuGraphDestroy(g));
    };
    each("launch, same stream", [](CUgraphExec x, CUgraph) { return cuGraphLaunch(x, w.S); });
    each("launch, other stream", [](CUgraphExec x, CUgraph) { return cuGraphLaunch(x, w.O); });
    each("upload, other stream", [](CUgraphExec x, CUgraph) { return cuGraphUpload(x, w.O); });
    each("update", [](CUgraphExec x, CUgraph g) {
      CUgraphExecUpdateResultInfo i{};
      return cuGraphExecUpdate(x, g, &i);
    });
    each(
        "destroy", [](CUgraphExec x, CUgraph) { return cuGraphExecDestroy(x); }, true);
    each("instantiate again", [](CUgraphExec, CUgraph g) {
      CUgraphExec y;
      CUresult r = cuGraphInstantiate(&y, g, 0);
      if (!r) r = cuGraphExecDestroy(y);
      return r;
    });
    each("cuLaunchHostFunc, other stream",
         [](CUgraphExec, CUgraph) { return cuLaunchHostFunc(w.O, no_function, nullptr); });
    each("copy up pinned, same stream",
         [](CUgraphExec, CUgraph) { return cuMemcpyHtoDAsync(w.d0, w.pinned, 120000, w.S); });
    each("launch 20 times", [](CUgraphExec x, CUgraph) {
      CUresult r = CUDA_SUCCESS;
      for (int i = 0; i < 20 && !r; ++i) r = cuGraphLaunch(x, w.S);
      return r;
    });
  }
}
