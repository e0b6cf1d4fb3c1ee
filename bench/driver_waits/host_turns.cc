// What counts behind a host function; graphs of many host nodes, and of operations on memory in
// their place; green contexts and kernels of libraries.
#include "bench/driver_waits/waits.h"
static CUgraphNode kernel_node(CUgraph g, CUgraphNode* after) {
  CUDA_KERNEL_NODE_PARAMS k{};
  k.func = w.nothing;
  k.gridDimX = k.gridDimY = k.gridDimZ = k.blockDimX = k.blockDimY = k.blockDimZ = 1;
  CUgraphNode n;
  MUST(cuGraphAddKernelNode(&n, g, after, after ? 1 : 0, &k));
  return n;
}
static std::atomic<int> called{0};
static void CUDA_CB count(void*) { ++called; }
static CUgraphNode host_node(CUgraph g, CUgraphNode* after, CUhostFn f) {
  CUDA_HOST_NODE_PARAMS h{f, nullptr};
  CUgraphNode n;
  MUST(cuGraphAddHostNode(&n, g, after, 1, &h));
  return n;
}
// tell = 1, wait for go == 1, go = 0
static CUgraphNode gate_node(CUgraph g, CUgraphNode* after, CUdeviceptr words) {
  CUstreamBatchMemOpParams p[3]{};
  p[0].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  p[0].writeValue.address = words;
  p[0].writeValue.value = 1;
  p[1].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  p[1].waitValue.address = words + 64;
  p[1].waitValue.value = 1;
  p[1].waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
  p[2].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  p[2].writeValue.address = words + 64;
  p[2].writeValue.value = 0;
  CUDA_BATCH_MEM_OP_NODE_PARAMS b{w.ctx, 3, p, 0};
  CUgraphNode n;
  MUST(cuGraphAddBatchMemOpNode(&n, g, after, 1, &b));
  return n;
}
void more_cases() {
  // What counts behind a host function.
  CUevent e;
  MUST(cuEventCreate(&e, 2));
  struct Op {
    const char* name;
    std::function<CUresult()> f;
  };
  std::vector<Op> ops = {
      {"record", [&] { return cuEventRecord(e, w.S); }},
      {"wait event", [&] { return cuStreamWaitEvent(w.S, w.Eidle, 0); }},
      {"write value", [&] { return cuStreamWriteValue32(w.S, w.dword + 128, 1, 0); }},
      {"memset", [&] { return cuMemsetD8Async(w.d0, 1, 64, w.S); }},
      {"mallocAsync/freeAsync",
       [&] {
         CUdeviceptr d;
         CUresult r = cuMemAllocAsync(&d, 64, w.S);
         return r ? r : cuMemFreeAsync(d, w.S);
       }},
      {"graph of a kernel", [&] { return cuGraphLaunch(w.probe_graph, w.S); }},
      {"attach", [&] { return cuStreamAttachMemAsync(w.S, w.managed, 0, CU_MEM_ATTACH_GLOBAL); }}};
  for (auto& o : ops)
    for (Holder h : {kFunction, kValue}) {
      if (!turn()) continue;
      depth(
          "mor", h, std::string("host function, ") + o.name,
          [&](unsigned i) {
            MUST(i % 2 ? o.f() : cuLaunchHostFunc(w.S, no_function, nullptr));
            return true;
          },
          2000);
      if (turn())
        depth(
            "mor", h, std::string("callback, ") + o.name,
            [&](unsigned i) {
              MUST(i % 2 ? o.f() : cuStreamAddCallback(w.S, no_callback, nullptr, 0));
              return true;
            },
            2000);
      if (turn())
        depth(
            "mor", h, std::string("host function, record, ") + o.name,
            [&](unsigned i) {
              MUST(i % 3 == 2   ? o.f()
                   : i % 3 == 1 ? cuEventRecord(e, w.S)
                                : cuLaunchHostFunc(w.S, no_function, nullptr));
              return true;
            },
            2000);
    }
  std::vector<CUstream> many(16);
  for (auto& s : many) MUST(cuStreamCreate(&s, 1));
  for (unsigned streams : {2u, 4u, 8u, 16u})
    for (bool copies : {false, true}) {
      if (!turn()) continue;
      depth(
          "mor", kFunction,
          std::to_string(streams) + " streams behind, host function and " +
              (copies ? "HtoD" : "launch") + " in turn",
          [&](unsigned i) {
            if (i == 0) {
              MUST(cuEventRecord(w.follow, w.S));
              for (auto s : many) MUST(cuStreamWaitEvent(s, w.follow, 0));
            }
            CUstream s = many[i / 2 % streams];
            MUST(i % 2 == 0 ? cuLaunchHostFunc(s, no_function, nullptr)
                 : copies   ? cuMemcpyHtoDAsync(w.d0, w.pinned, 120000, s)
                            : launch(s));
            return true;
          },
          4000);
    }
  // A graph of many host nodes: does the launch wait, with nothing in front?
  for (int n : {20, 27, 28, 29, 40, 60, 200}) {
    if (!turn()) continue;
    CUgraph g;
    MUST(cuGraphCreate(&g, 0));
    CUgraphNode last = kernel_node(g, nullptr);
    for (int i = 0; i < n; ++i) {
      last = host_node(g, &last, i == 0 ? hold_function : count);
      last = kernel_node(g, &last);
    }
    CUgraphExec x;
    MUST(cuGraphInstantiate(&x, g, 0));
    ++w.turn;
    function_goes = false;
    ask("mor", kFunction, "ins",
        "first launch of a graph of " + std::to_string(n) +
            " host nodes between kernels, the first holds",
        [&] { return cuGraphLaunch(x, w.O); });
    MUST(cuGraphExecDestroy(x));
    MUST(cuGraphDestroy(g));
  }
  // The same with memory operations; a thread lets them go.
  void* mem;
  MUST(cuMemHostAlloc(&mem, 1 << 17, CU_MEMHOSTALLOC_DEVICEMAP));
  memset(mem, 0, 1 << 17);
  CUdeviceptr dmem;
  MUST(cuMemHostGetDevicePointer(&dmem, mem, 0));
  for (int n : {1, 20, 60, 200}) {
    if (!turn()) continue;
    CUgraph g;
    MUST(cuGraphCreate(&g, 0));
    CUgraphNode last = kernel_node(g, nullptr);
    for (int i = 0; i < n; ++i) {
      last = gate_node(g, &last, dmem + 128 * i);
      last = kernel_node(g, &last);
    }
    CUgraphExec x;
    auto t0 = Clock::now();
    MUST(cuGraphInstantiate(&x, g, 0));
    double made = ms_since(t0);
    auto word = [&](int i) { return (volatile unsigned*)((char*)mem + 128 * i); };
    for (int round = 0; round < 3; ++round) {
      t0 = Clock::now();
      MUST(cuGraphLaunch(x, w.O));
      double took = ms_since(t0);
      usleep(20000);
      bool first = word(0)[0] == 1, second = n > 1 && word(1)[0] == 1;
      t0 = Clock::now();
      int wrong = 0;
      for (int i = 0; i < n; ++i) {
        auto t = Clock::now();
        while (word(i)[0] != 1 && ms_since(t) < 2000) {
        }
        if (word(i)[0] != 1) ++wrong;
        word(i)[0] = 0;
        word(i)[16] = 1;
      }
      CUresult r = cuStreamSynchronize(w.O);
      printf(
          "mor - graph of %d memory gates: instantiation %.2f, launch %.3f ms, first told %d, "
          "second told early %d, wrong %d, all gates in %.2f ms, result %d\n",
          n, made, took, first, second, wrong, ms_since(t0), r);
    }
    // two in a row, and many behind a held stream
    CUgraphExecUpdateResultInfo info{};
    CUgraph g2;
    MUST(cuGraphCreate(&g2, 0));
    last = kernel_node(g2, nullptr);
    for (int i = 0; i < n; ++i) {
      last = gate_node(g2, &last, dmem + (1 << 16) + 128 * (i % 200));
      last = kernel_node(g2, &last);
    }
    CUresult u = cuGraphExecUpdate(x, g2, &info);
    printf("mor - graph of %d memory gates: update to other words %d (%d)\n", n, u,
           int(info.result));
    std::atomic<bool> stop{false};
    std::thread opener([&] {
      while (!stop)
        for (int i = 0; i < n; ++i)
          for (int half = 0; half < 2; ++half) {
            auto p = (volatile unsigned*)((char*)mem + (half << 16) + 128 * i);
            if (p[0] != 1) continue;
            p[0] = 0;
            p[16] = 1;
          }
    });
    depth(
        "mor", kFunction, "launches of a graph of " + std::to_string(n) + " memory gates",
        [&](unsigned) {
          MUST(cuGraphLaunch(x, w.S));
          return true;
        },
        1100);
    stop = true;
    opener.join();
    MUST(cuGraphExecDestroy(x));
    MUST(cuGraphDestroy(g));
    MUST(cuGraphDestroy(g2));
  }
  // Green contexts.
  for (Holder h : {kFunction, kValue}) {
    if (!turn()) continue;
    CUdevResource r;
    MUST(cuDeviceGetDevResource(w.dev, &r, CU_DEV_RESOURCE_TYPE_SM));
    CUdevResourceDesc d;
    MUST(cuDevResourceGenerateDesc(&d, &r, 1));
    CUgreenCtx green;
    MUST(cuGreenCtxCreate(&green, d, w.dev, CU_GREEN_CTX_DEFAULT_STREAM));
    hold(h);
    ask("mor", h, "-", "cuGreenCtxDestroy", [&] { return cuGreenCtxDestroy(green); });
    MUST(cuGreenCtxCreate(&green, d, w.dev, CU_GREEN_CTX_DEFAULT_STREAM));
    CUstream s;
    hold(h);
    ask("mor", h, "-", "cuGreenCtxStreamCreate",
        [&] { return cuGreenCtxStreamCreate(&s, green, 1, 0); });
    MUST(cuStreamDestroy(s));
    MUST(cuGreenCtxDestroy(green));
    CUlibrary lib;
    CUkernel k;
    MUST(cuLibraryLoadData(
        &lib, ".version 7.5\n.target sm_75\n.address_size 64\n.visible .entry nothing() { ret; }\n",
        nullptr, nullptr, 0, nullptr, nullptr, 0));
    MUST(cuLibraryGetKernel(&k, lib, "nothing"));
    hold(h);
    ask("mor", h, "oth", "first launch of a library's kernel",
        [&] { return launch(w.O, (CUfunction)k); });
    hold(h);
    ask("mor", h, "oth", "cuKernelSetAttribute", [&] {
      return cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 60000, k, w.dev);
    });
    hold(h);
    ask("mor", h, "oth", "cuKernelGetAttribute", [&] {
      int x;
      return cuKernelGetAttribute(&x, CU_FUNC_ATTRIBUTE_NUM_REGS, k, w.dev);
    });
    MUST(cuLibraryUnload(lib));
    hold(h);
    ask("mor", h, "-", "cuCtxSetLimit printf",
        [&] { return cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, 2 << 20); });
    hold(h);
    ask("mor", h, "-", "cuMemHostAlloc 64 MiB", [&] {
      void* p;
      CUresult q = cuMemHostAlloc(&p, 64 << 20, 0);
      return q;
    });
    hold(h);
    ask("mor", h, "-", "cuMipmappedArrayCreate", [&] {
      CUmipmappedArray a;
      CUDA_ARRAY3D_DESCRIPTOR ad{};
      ad.Width = ad.Height = 64;
      ad.Format = CU_AD_FORMAT_FLOAT;
      ad.NumChannels = 1;
      return cuMipmappedArrayCreate(&a, &ad, 3);
    });
  }
}
