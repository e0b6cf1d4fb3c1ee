// Calls without a stream, and the ends of what waits behind a held one.
#include "bench/driver_waits/waits.h"
struct Case {
  std::string name;
  std::function<void()> before;
  std::function<CUresult()> call;
  std::function<void()> after;
};
static struct {
  CUdeviceptr a, b;
  void* p;
  CUmodule m;
  CUfunction f;
  CUlibrary lib;
  CUstream s;
  CUevent e;
  CUarray arr;
  CUmemoryPool pool;
  CUmemGenericAllocationHandle ph;
  CUgraph g;
  CUgraphExec x;
  CUtexObject tex;
  CUcontext c;
  char* r;
  CUgreenCtx green;
  CUkernel k;
} t;
static const char kPtx[] =
    ".version 7.5\n.target sm_75\n.address_size 64\n.global .align 4 .u32 v;\n.visible .entry "
    "nothing() { ret; }\n";
static const size_t kMap = 2 << 20;
static void map_it() {
  CUmemAllocationProp p{};
  p.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  p.location = {CU_MEM_LOCATION_TYPE_DEVICE, w.dev};
  MUST(cuMemCreate(&t.ph, kMap, &p, 0));
  MUST(cuMemAddressReserve(&t.a, kMap, 0, 0, 0));
  MUST(cuMemMap(t.a, kMap, 0, t.ph, 0));
  CUmemAccessDesc d{p.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  MUST(cuMemSetAccess(t.a, kMap, &d, 1));
}
static void graph(int kind) {  // 0 kernel, 1 host, 2 memory
  MUST(cuGraphCreate(&t.g, 0));
  CUgraphNode n, n2;
  if (kind == 1) {
    CUDA_HOST_NODE_PARAMS h{no_function, nullptr};
    MUST(cuGraphAddHostNode(&n, t.g, nullptr, 0, &h));
    return;
  }
  if (kind == 2) {
    CUDA_MEM_ALLOC_NODE_PARAMS a{};
    a.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    a.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, w.dev};
    a.bytesize = 1 << 20;
    MUST(cuGraphAddMemAllocNode(&n, t.g, nullptr, 0, &a));
    MUST(cuGraphAddMemFreeNode(&n2, t.g, &n, 1, a.dptr));
    return;
  }
  CUDA_KERNEL_NODE_PARAMS k{};
  k.func = w.nothing;
  k.gridDimX = k.gridDimY = k.gridDimZ = k.blockDimX = k.blockDimY = k.blockDimZ = 1;
  MUST(cuGraphAddKernelNode(&n, t.g, nullptr, 0, &k));
}
static void end_graph() {
  if (t.x) MUST(cuGraphExecDestroy(t.x));
  t.x = nullptr;
  MUST(cuGraphDestroy(t.g));
}
static std::vector<Case> table() {
  std::vector<Case> v;
  auto add = [&](std::string n, std::function<CUresult()> c, std::function<void()> b = {},
                 std::function<void()> a = {}) {
    v.push_back({std::move(n), std::move(b), std::move(c), std::move(a)});
  };
  auto alloc = [] { MUST(cuMemAlloc(&t.a, 1 << 20)); };
  auto free_a = [] { MUST(cuMemFree(t.a)); };
  add(
      "cuMemAlloc 4 KiB", [] { return cuMemAlloc(&t.a, 4096); }, {}, free_a);
  add(
      "cuMemAlloc 256 MiB", [] { return cuMemAlloc(&t.a, 256 << 20); }, {}, free_a);
  add(
      "cuMemAllocPitch",
      [] {
        size_t p;
        return cuMemAllocPitch(&t.a, &p, 1000, 1000, 4);
      },
      {}, free_a);
  add(
      "cuMemFree 1 MiB", [] { return cuMemFree(t.a); }, alloc);
  add(
      "cuMemFree of a small one", [] { return cuMemFree(t.a); },
      [] {
        MUST(cuMemAlloc(&t.a, 512));
        MUST(cuMemAlloc(&t.b, 512));
      },
      [] { MUST(cuMemFree(t.b)); });
  add(
      "cuMemFree of the pool's", [] { return cuMemFree(t.a); },
      [] {
        MUST(cuMemAllocAsync(&t.a, 4096, w.O));
        settle();
      });
  add(
      "cuMemAllocManaged", [] { return cuMemAllocManaged(&t.a, 4096, CU_MEM_ATTACH_GLOBAL); }, {},
      free_a);
  add(
      "cuMemFree managed", [] { return cuMemFree(t.a); },
      [] { MUST(cuMemAllocManaged(&t.a, 1 << 20, CU_MEM_ATTACH_GLOBAL)); });
  add(
      "cuMemHostAlloc 1 MiB", [] { return cuMemHostAlloc(&t.p, 1 << 20, 0); }, {},
      [] { MUST(cuMemFreeHost(t.p)); });
  add(
      "cuMemHostAlloc mapped 4 KiB",
      [] { return cuMemHostAlloc(&t.p, 4096, CU_MEMHOSTALLOC_DEVICEMAP); }, {},
      [] { MUST(cuMemFreeHost(t.p)); });
  add(
      "cuMemFreeHost", [] { return cuMemFreeHost(t.p); },
      [] { MUST(cuMemHostAlloc(&t.p, 1 << 20, 0)); });
  for (size_t z : {size_t(4096), size_t(128 << 10), size_t(4 << 20)}) {
    auto mem = [z] {
      t.r = (char*)mmap(nullptr, z, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      memset(t.r, 1, z);
    };
    for (unsigned fl : {1u, 3u})
      add(
          "cuMemHostRegister " + std::to_string(z) + (fl & 2 ? " mapped" : ""),
          [z, fl] { return cuMemHostRegister(t.r, z, fl); }, mem,
          [z] {
            MUST(cuMemHostUnregister(t.r));
            munmap(t.r, z);
          });
    add(
        "cuMemHostUnregister " + std::to_string(z), [] { return cuMemHostUnregister(t.r); },
        [mem, z] {
          mem();
          MUST(cuMemHostRegister(t.r, z, 1));
        },
        [z] { munmap(t.r, z); });
  }
  add("cuMemHostGetDevicePointer", [] {
    CUdeviceptr d;
    return cuMemHostGetDevicePointer(&d, w.registered, 0);
  });
  add("cuPointerGetAttribute", [] {
    int x;
    return cuPointerGetAttribute(&x, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, w.d0);
  });
  add("cuPointerSetAttribute sync_memops", [] {
    int x = 0;
    return cuPointerSetAttribute(&x, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, w.d0);
  });
  add("cuMemGetInfo", [] {
    size_t a, b;
    return cuMemGetInfo(&a, &b);
  });
  add("cuMemGetAddressRange", [] {
    CUdeviceptr a;
    size_t b;
    return cuMemGetAddressRange(&a, &b, w.d0 + 5);
  });
  add("cuMemcpyHtoD pageable 4 B", [] { return cuMemcpyHtoD(w.d0, w.pageable, 4); });
  add("cuMemcpyHtoD pageable 1 MiB", [] { return cuMemcpyHtoD(w.d0, w.pageable, 1 << 20); });
  add("cuMemcpyDtoH pinned 4 B", [] { return cuMemcpyDtoH(w.pinned, w.d0, 4); });
  add("cuMemcpyDtoD", [] { return cuMemcpyDtoD(w.d0, w.d1, 1 << 20); });
  add("cuMemsetD8", [] { return cuMemsetD8(w.d0, 1, 1 << 20); });
  add(
      "cuMemAdvise",
      [] {
        return cuMemAdvise(w.managed, kBig, CU_MEM_ADVISE_SET_READ_MOSTLY,
                           {CU_MEM_LOCATION_TYPE_DEVICE, w.dev});
      },
      {},
      [] {
        MUST(cuMemAdvise(w.managed, kBig, CU_MEM_ADVISE_UNSET_READ_MOSTLY,
                         {CU_MEM_LOCATION_TYPE_DEVICE, w.dev}));
      });
  add("cuMemRangeGetAttribute", [] {
    int x;
    return cuMemRangeGetAttribute(&x, 4, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, w.managed, kBig);
  });
  add(
      "host touches managed memory",
      [] {
        *(volatile char*)w.managed = 1;
        return CUDA_SUCCESS;
      },
      [] {
        MUST(cuMemPrefetchAsync(w.managed, kBig, {CU_MEM_LOCATION_TYPE_DEVICE, w.dev}, 0, w.O));
        settle();
      });
  add(
      "cuMemPoolCreate",
      [] {
        CUmemPoolProps p{};
        p.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
        p.location = {CU_MEM_LOCATION_TYPE_DEVICE, w.dev};
        return cuMemPoolCreate(&t.pool, &p);
      },
      {}, [] { MUST(cuMemPoolDestroy(t.pool)); });
  add(
      "cuMemPoolDestroy", [] { return cuMemPoolDestroy(t.pool); },
      [] {
        CUmemPoolProps p{};
        p.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
        p.location = {CU_MEM_LOCATION_TYPE_DEVICE, w.dev};
        MUST(cuMemPoolCreate(&t.pool, &p));
        MUST(cuMemAllocFromPoolAsync(&t.a, 1 << 20, t.pool, w.O));
        MUST(cuMemFreeAsync(t.a, w.O));
        settle();
      });
  add(
      "cuMemPoolTrimTo", [] { return cuMemPoolTrimTo(t.pool, 0); },
      [] {
        MUST(cuDeviceGetDefaultMemPool(&t.pool, w.dev));
        cuuint64_t keep = 64 << 20;
        MUST(cuMemPoolSetAttribute(t.pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
        MUST(cuMemAllocAsync(&t.a, 32 << 20, w.O));
        MUST(cuMemFreeAsync(t.a, w.O));
        settle();
      },
      [] {
        cuuint64_t keep = 0;
        MUST(cuMemPoolSetAttribute(t.pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
      });
  add("cuMemPoolGetAttribute", [] {
    CUmemoryPool p;
    cuDeviceGetDefaultMemPool(&p, w.dev);
    cuuint64_t x;
    return cuMemPoolGetAttribute(p, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &x);
  });
  auto unmap = [] {
    MUST(cuMemUnmap(t.a, kMap));
    MUST(cuMemAddressFree(t.a, kMap));
    MUST(cuMemRelease(t.ph));
  };
  add(
      "cuMemCreate, Reserve, Map, SetAccess",
      [] {
        map_it();
        return CUDA_SUCCESS;
      },
      {}, unmap);
  add(
      "cuMemSetAccess again",
      [] {
        CUmemAccessDesc d{{CU_MEM_LOCATION_TYPE_DEVICE, w.dev}, CU_MEM_ACCESS_FLAGS_PROT_READ};
        return cuMemSetAccess(t.a, kMap, &d, 1);
      },
      map_it, unmap);
  add(
      "cuMemUnmap", [] { return cuMemUnmap(t.a, kMap); }, map_it,
      [] {
        MUST(cuMemAddressFree(t.a, kMap));
        MUST(cuMemRelease(t.ph));
      });
  add(
      "cuMemRelease", [] { return cuMemRelease(t.ph); },
      [] {
        map_it();
        MUST(cuMemUnmap(t.a, kMap));
        MUST(cuMemAddressFree(t.a, kMap));
      });
  auto load = [] { MUST(cuModuleLoadData(&t.m, kPtx)); };
  auto unload = [] { MUST(cuModuleUnload(t.m)); };
  add(
      "cuModuleLoadData", [] { return cuModuleLoadData(&t.m, kPtx); }, {}, unload);
  add(
      "cuModuleGetFunction", [] { return cuModuleGetFunction(&t.f, t.m, "nothing"); }, load,
      unload);
  add(
      "cuModuleGetGlobal",
      [] {
        size_t n;
        return cuModuleGetGlobal(&t.a, &n, t.m, "v");
      },
      load, unload);
  add(
      "cuModuleUnload, never used", [] { return cuModuleUnload(t.m); }, load);
  add(
      "cuModuleUnload, used", [] { return cuModuleUnload(t.m); },
      [load] {
        load();
        MUST(cuModuleGetFunction(&t.f, t.m, "nothing"));
        MUST(launch(w.O, t.f));
        settle();
      });
  auto get = [load] {
    load();
    MUST(cuModuleGetFunction(&t.f, t.m, "nothing"));
  };
  add(
      "cuFuncLoad", [] { return cuFuncLoad(t.f); }, get, unload);
  add(
      "cuFuncGetAttribute",
      [] {
        int x;
        return cuFuncGetAttribute(&x, CU_FUNC_ATTRIBUTE_NUM_REGS, t.f);
      },
      get, unload);
  add(
      "cuFuncSetAttribute shared size",
      [] {
        return cuFuncSetAttribute(t.f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 65536);
      },
      get, unload);
  add(
      "cuFuncSetCacheConfig", [] { return cuFuncSetCacheConfig(t.f, CU_FUNC_CACHE_PREFER_L1); },
      get, unload);
  add(
      "cuOccupancyMaxActiveBlocksPerMultiprocessor",
      [] {
        int x;
        return cuOccupancyMaxActiveBlocksPerMultiprocessor(&x, t.f, 128, 0);
      },
      get, unload);
  auto lib = [] {
    MUST(cuLibraryLoadData(&t.lib, kPtx, nullptr, nullptr, 0, nullptr, nullptr, 0));
  };
  auto unlib = [] { MUST(cuLibraryUnload(t.lib)); };
  add(
      "cuLibraryLoadData",
      [] { return cuLibraryLoadData(&t.lib, kPtx, nullptr, nullptr, 0, nullptr, nullptr, 0); }, {},
      unlib);
  add(
      "cuLibraryGetKernel", [] { return cuLibraryGetKernel(&t.k, t.lib, "nothing"); }, lib, unlib);
  add(
      "cuKernelGetFunction", [] { return cuKernelGetFunction(&t.f, t.k); },
      [lib] {
        lib();
        MUST(cuLibraryGetKernel(&t.k, t.lib, "nothing"));
      },
      unlib);
  add(
      "cuLibraryGetGlobal",
      [] {
        size_t n;
        return cuLibraryGetGlobal(&t.a, &n, t.lib, "v");
      },
      lib, unlib);
  add(
      "cuLibraryGetModule",
      [] {
        CUmodule m;
        return cuLibraryGetModule(&m, t.lib);
      },
      lib, unlib);
  add(
      "cuLibraryUnload", [] { return cuLibraryUnload(t.lib); }, lib);
  for (unsigned fl : {0u, 1u})
    add("cuStreamCreate x40, flags " + std::to_string(fl), [fl] {
      static std::vector<CUstream> made;
      made.clear();
      CUresult r = CUDA_SUCCESS;
      for (int i = 0; i < 40; ++i) {
        CUstream s;
        r = cuStreamCreate(&s, fl);
        if (r) break;
        made.push_back(s);
      }
      for (CUstream s : made) cuStreamDestroy(s);
      return r;
    });
  add("cuStreamCreateWithPriority x40", [] {
    CUresult r = CUDA_SUCCESS;
    for (int i = 0; i < 40 && !r; ++i) {
      CUstream s;
      r = cuStreamCreateWithPriority(&s, 1, -(i % 6));
      if (!r) cuStreamDestroy(s);
    }
    return r;
  });
  add(
      "cuStreamDestroy, idle", [] { return cuStreamDestroy(t.s); },
      [] {
        MUST(cuStreamCreate(&t.s, 1));
        MUST(launch(t.s));
        settle();
      });
  add("cuEventCreate x1000", [] {
    static std::vector<CUevent> made;
    for (int i = 0; i < 1000; ++i) {
      CUevent e;
      CUresult r = cuEventCreate(&e, i % 2 * 2);
      if (r) return r;
      made.push_back(e);
    }
    return CUDA_SUCCESS;
  });
  add(
      "cuEventCreate interprocess",
      [] { return cuEventCreate(&t.e, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING); }, {},
      [] { MUST(cuEventDestroy(t.e)); });
  add("cuIpcGetMemHandle", [] {
    CUipcMemHandle h;
    return cuIpcGetMemHandle(&h, w.d0);
  });
  add(
      "cuArrayCreate",
      [] {
        CUDA_ARRAY_DESCRIPTOR d{64, 64, CU_AD_FORMAT_UNSIGNED_INT8, 1};
        return cuArrayCreate(&t.arr, &d);
      },
      {}, [] { MUST(cuArrayDestroy(t.arr)); });
  auto arr = [] {
    CUDA_ARRAY_DESCRIPTOR d{64, 64, CU_AD_FORMAT_UNSIGNED_INT8, 1};
    MUST(cuArrayCreate(&t.arr, &d));
  };
  add(
      "cuArrayDestroy", [] { return cuArrayDestroy(t.arr); }, arr);
  auto tex = [] {
    CUDA_RESOURCE_DESC r{};
    r.resType = CU_RESOURCE_TYPE_ARRAY;
    r.res.array.hArray = t.arr;
    CUDA_TEXTURE_DESC d{};
    return cuTexObjectCreate(&t.tex, &r, &d, nullptr);
  };
  add("cuTexObjectCreate", tex, arr, [] {
    MUST(cuTexObjectDestroy(t.tex));
    MUST(cuArrayDestroy(t.arr));
  });
  add(
      "cuTexObjectDestroy", [] { return cuTexObjectDestroy(t.tex); },
      [arr, tex] {
        arr();
        MUST(tex());
      },
      [] { MUST(cuArrayDestroy(t.arr)); });
  for (int k : {0, 1, 2}) {
    std::string n = k == 0 ? " kernel" : k == 1 ? " host" : " memory";
    add(
        "cuGraphInstantiate" + n, [] { return cuGraphInstantiate(&t.x, t.g, 0); },
        [k] { graph(k); }, end_graph);
    add(
        "cuGraphInstantiate, uploads" + n,
        [] {
          CUDA_GRAPH_INSTANTIATE_PARAMS p{};
          p.flags = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD;
          p.hUploadStream = w.O;
          return cuGraphInstantiateWithParams(&t.x, t.g, &p);
        },
        [k] { graph(k); }, end_graph);
    add(
        "cuGraphExecDestroy, idle" + n,
        [] {
          CUresult r = cuGraphExecDestroy(t.x);
          t.x = nullptr;
          return r;
        },
        [k] {
          graph(k);
          MUST(cuGraphInstantiate(&t.x, t.g, 0));
          MUST(cuGraphLaunch(t.x, w.O));
          settle();
        },
        end_graph);
    add(
        "cuGraphExecUpdate, idle" + n,
        [] {
          CUgraphExecUpdateResultInfo i{};
          return cuGraphExecUpdate(t.x, t.g, &i);
        },
        [k] {
          graph(k);
          MUST(cuGraphInstantiate(&t.x, t.g, 0));
          MUST(cuGraphLaunch(t.x, w.O));
          settle();
        },
        end_graph);
    add(
        "first cuGraphLaunch" + n, [] { return cuGraphLaunch(t.x, w.O); },
        [k] {
          graph(k);
          MUST(cuGraphInstantiate(&t.x, t.g, 0));
        },
        end_graph);
  }
  add("cuStreamQuery legacy", [] {
    CUresult r = cuStreamQuery(CU_STREAM_LEGACY);
    return r == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : r;
  });
  add("cuEventQuery, idle", [] { return cuEventQuery(w.Eidle); });
  add("cuEventQuery behind S", [] {
    cuEventRecord(w.follow, w.S);
    CUresult r = cuEventQuery(w.follow);
    return r == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : r;
  });
  add("cuEventElapsedTime behind S", [] {
    static CUevent a, b;
    if (!a) {
      cuEventCreate(&a, 0);
      cuEventCreate(&b, 0);
      cuEventRecord(a, w.O);
    }
    cuEventRecord(b, w.S);
    float f;
    CUresult r = cuEventElapsedTime(&f, a, b);
    return r == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : r;
  });
  add("cuStreamSynchronize, idle", [] { return cuStreamSynchronize(w.O); });
  add("cuStreamGetFlags", [] {
    unsigned f;
    return cuStreamGetFlags(w.S, &f);
  });
  add("cuCtxSetCurrent", [] { return cuCtxSetCurrent(w.ctx); });
  add(
      "cuMemExportToShareableHandle",
      [] {
        int fd;
        CUresult r =
            cuMemExportToShareableHandle(&fd, t.ph, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
        if (!r) close(fd);
        return r;
      },
      [] {
        CUmemAllocationProp p{};
        p.type = CU_MEM_ALLOCATION_TYPE_PINNED;
        p.location = {CU_MEM_LOCATION_TYPE_DEVICE, w.dev};
        p.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        MUST(cuMemCreate(&t.ph, kMap, &p, 0));
      },
      [] { MUST(cuMemRelease(t.ph)); });
  add("cuDeviceGraphMemTrim", [] { return cuDeviceGraphMemTrim(w.dev); });
  add(
      "cuCtxSetLimit stack", [] { return cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 2048); }, {},
      [] { MUST(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 1024)); });
  add("cuCtxGetLimit", [] {
    size_t x;
    return cuCtxGetLimit(&x, CU_LIMIT_STACK_SIZE);
  });
  add("cuCtxSetCacheConfig", [] { return cuCtxSetCacheConfig(CU_FUNC_CACHE_PREFER_NONE); });
  add("cuCtxResetPersistingL2Cache", [] { return cuCtxResetPersistingL2Cache(); });
  add(
      "cuCtxCreate",
      [] {
        CUresult r = cuCtxCreate(&t.c, nullptr, 0, w.dev);
        cuCtxSetCurrent(w.ctx);
        return r;
      },
      {},
      [] {
        cuCtxDestroy(t.c);
        cuCtxSetCurrent(w.ctx);
      });
  add(
      "cuCtxDestroy, another", [] { return cuCtxDestroy(t.c); },
      [] {
        MUST(cuCtxCreate(&t.c, nullptr, 0, w.dev));
        MUST(cuCtxSetCurrent(w.ctx));
      });
  add(
      "cuGreenCtxCreate",
      [] {
        CUdevResource r;
        CUresult x = cuDeviceGetDevResource(w.dev, &r, CU_DEV_RESOURCE_TYPE_SM);
        if (x) return x;
        CUdevResourceDesc d;
        x = cuDevResourceGenerateDesc(&d, &r, 1);
        if (x) return x;
        return cuGreenCtxCreate(&t.green, d, w.dev, CU_GREEN_CTX_DEFAULT_STREAM);
      },
      {}, [] { cuGreenCtxDestroy(t.green); });
  return v;
}
void plain_cases() {
  for (auto& c : table())
    for (Holder h : {kFunction, kValue, kKernel}) {
      if (!turn()) continue;
      if (c.before) c.before();
      hold(h);
      ask("pln", h, "-", c.name, c.call);
      MUST(cuCtxSetCurrent(w.ctx));
      if (c.after) c.after();
    }
  // Ends of what waits behind the held stream.
  for (Holder h : {kFunction, kValue, kKernel}) {
    if (!turn()) continue;
    CUstream s;
    CUevent e;
    MUST(cuStreamCreate(&s, 1));
    hold(h);
    MUST(cuEventRecord(w.follow, w.S));
    MUST(cuStreamWaitEvent(s, w.follow, 0));
    MUST(launch(s));
    ask("pln", h, "-", "cuStreamDestroy, has work", [&] { return cuStreamDestroy(s); });
    MUST(cuEventCreate(&e, 2));
    hold(h);
    MUST(cuEventRecord(e, w.S));
    ask("pln", h, "-", "cuEventDestroy, recorded behind", [&] { return cuEventDestroy(e); });
    MUST(cuEventCreate(&e, 2));
    hold(h);
    MUST(cuEventRecord(e, w.S));
    MUST(cuStreamWaitEvent(w.F, e, 0));
    ask("pln", h, "-", "cuEventDestroy, a stream waits", [&] { return cuEventDestroy(e); });
    CUdeviceptr d;
    MUST(cuMemAllocAsync(&d, 4096, w.O));
    settle();
    hold(h);
    MUST(cuMemFreeAsync(d, w.S));
    CUdeviceptr d2 = 0;
    ask("pln", h, "-", "cuMemAllocAsync after a free behind S",
        [&] { return cuMemAllocAsync(&d2, 4096, w.O); });
    MUST(cuMemFree(d2));
  }
}
