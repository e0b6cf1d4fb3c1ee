// Calls that work in a stream: in the held one (S), in one that waits for it (fol), in another one
// (oth), in the legacy stream while a blocking one is held (leg), and the other way round (blk).
#include "bench/driver_waits/waits.h"
struct Case {
  std::string name;
  std::function<void()> before;
  std::function<CUresult(CUstream)> call;
  std::function<void()> after;
};
static CUmemoryPool pool;
static CUdeviceptr got, given;
static CUarray array;
static CUmodule fresh;
static CUfunction fresh_function;
static CUevent event, event2;
static CUgraph captured;
static CUresult copy2d(void* host, CUmemorytype type, size_t width, size_t rows, size_t pitch,
                       bool up, CUstream s) {
  CUDA_MEMCPY2D c{};
  (void)type;
  c.WidthInBytes = width;
  c.Height = rows;
  if (up) {
    c.srcMemoryType = CU_MEMORYTYPE_HOST;
    c.srcHost = host;
    c.srcPitch = pitch;
    c.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    c.dstDevice = w.d0;
    c.dstPitch = width;
  } else {
    c.dstMemoryType = CU_MEMORYTYPE_HOST;
    c.dstHost = host;
    c.dstPitch = pitch;
    c.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    c.srcDevice = w.d0;
    c.srcPitch = width;
  }
  return cuMemcpy2DAsync(&c, s);
}
static CUresult copy3d(void* host, size_t width, size_t rows, size_t depth, bool up, CUstream s,
                       CUarray a = nullptr) {
  CUDA_MEMCPY3D c{};
  c.WidthInBytes = width;
  c.Height = rows;
  c.Depth = depth;
  c.srcPitch = c.dstPitch = 2 * width;
  c.srcHeight = c.dstHeight = rows;
  CUmemorytype dt = a ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_DEVICE;
  if (up) {
    c.srcMemoryType = CU_MEMORYTYPE_HOST;
    c.srcHost = host;
    c.dstMemoryType = dt;
    c.dstDevice = a ? 0 : w.d0;
    c.dstArray = a;
  } else {
    c.dstMemoryType = CU_MEMORYTYPE_HOST;
    c.dstHost = host;
    c.srcMemoryType = dt;
    c.srcDevice = a ? 0 : w.d0;
    c.srcArray = a;
  }
  return cuMemcpy3DAsync(&c, s);
}
static std::vector<Case> table() {
  std::vector<Case> t;
  auto add = [&](std::string n, std::function<CUresult(CUstream)> c, std::function<void()> b = {},
                 std::function<void()> a = {}) {
    t.push_back({std::move(n), std::move(b), std::move(c), std::move(a)});
  };
  add("cuLaunchKernel", [](CUstream s) { return launch(s); });
  add("cuLaunchKernel 4000 bytes of parameters", [](CUstream s) {
    static char p[4000];
    static void* a[] = {p};
    return cuLaunchKernel(w.many, 1, 1, 1, 1, 1, 1, 0, s, a, nullptr);
  });
  add("cuLaunchCooperativeKernel", [](CUstream s) {
    return cuLaunchCooperativeKernel(w.nothing, 1, 1, 1, 1, 1, 1, 0, s, nullptr);
  });
  add(
      "cuLaunchKernel first launch, lazy", [](CUstream s) { return launch(s, fresh_function); },
      [] {
        fresh = load();
        MUST(cuModuleGetFunction(&fresh_function, fresh, "nothing"));
      },
      [] { MUST(cuModuleUnload(fresh)); });
  struct Mem {
    const char* name;
    char* p;
  };
  struct Size {
    const char* name;
    size_t n;
  };
  for (Mem m : {Mem{"pinned", w.pinned}, Mem{"registered", w.registered},
                Mem{"pageable", w.pageable}, Mem{"managed", (char*)w.managed}})
    for (Size z : {Size{"4 B", 4}, Size{"1 KiB", 1024}, Size{"64 KiB", 65536},
                   Size{"64 KiB+1", 65537}, Size{"120000", 120000}, Size{"1 MiB", 1 << 20}}) {
      add(std::string("HtoDAsync ") + m.name + " " + z.name,
          [=](CUstream s) { return cuMemcpyHtoDAsync(w.d0, m.p, z.n, s); });
      add(std::string("DtoHAsync ") + m.name + " " + z.name,
          [=](CUstream s) { return cuMemcpyDtoHAsync(m.p, w.d0, z.n, s); });
    }
  for (size_t off : {size_t(0), size_t(32 << 10), size_t((64 << 10) - 4)}) {
    add("HtoDAsync registered only in part, from " + std::to_string(off),
        [=](CUstream s) { return cuMemcpyHtoDAsync(w.d0, w.part + off, 100000, s); });
    add("DtoHAsync registered only in part, from " + std::to_string(off),
        [=](CUstream s) { return cuMemcpyDtoHAsync(w.part + off, w.d0, 100000, s); });
  }
  add("cuMemcpyAsync device to device",
      [](CUstream s) { return cuMemcpyAsync(w.d0, w.d1, kBig, s); });
  add("cuMemcpyDtoDAsync 4 B", [](CUstream s) { return cuMemcpyDtoDAsync(w.d0, w.d1, 4, s); });
  add("cuMemcpyAsync pinned to pinned 4 KiB", [](CUstream s) {
    return cuMemcpyAsync((CUdeviceptr)w.pinned, (CUdeviceptr)w.pinned2, 4096, s);
  });
  add("cuMemcpyAsync pageable to pageable 4 KiB", [](CUstream s) {
    return cuMemcpyAsync((CUdeviceptr)w.pageable, (CUdeviceptr)w.pageable2, 4096, s);
  });
  add("cuMemcpyAsync pinned to pageable 4 KiB", [](CUstream s) {
    return cuMemcpyAsync((CUdeviceptr)w.pageable, (CUdeviceptr)w.pinned2, 4096, s);
  });
  add("cuMemcpyAsync managed to device 1 MiB",
      [](CUstream s) { return cuMemcpyAsync(w.d0, w.managed, 1 << 20, s); });
  add("cuMemcpyPeerAsync, same context",
      [](CUstream s) { return cuMemcpyPeerAsync(w.d0, w.ctx, w.d1, w.ctx, kBig, s); });
  static CUdeviceptr far = 0;
  if (!far) {
    MUST(cuCtxSetCurrent(w.ctx2));
    MUST(cuMemAlloc(&far, kBig));
    MUST(cuCtxSetCurrent(w.ctx));
  }
  add("cuMemcpyPeerAsync to another context",
      [](CUstream s) { return cuMemcpyPeerAsync(far, w.ctx2, w.d0, w.ctx, kBig, s); });
  add("cuStreamWaitEvent by a stream of another context", [](CUstream s) {
    cuEventRecord(event, s);
    cuCtxSetCurrent(w.ctx2);
    CUresult r = cuStreamWaitEvent(w.X2, event, 0);
    cuCtxSetCurrent(w.ctx);
    return r;
  });
  static char* shared = nullptr;
  if (!shared) {
    int fd = memfd_create("shared", MFD_CLOEXEC);
    if (ftruncate(fd, kBig)) _exit(9);
    shared = (char*)mmap(nullptr, kBig, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    MUST(cuMemHostRegister(shared, kBig,
                           CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));
  }
  add("HtoDAsync registered memfd 120000",
      [](CUstream s) { return cuMemcpyHtoDAsync(w.d0, shared, 120000, s); });
  add("DtoHAsync registered memfd 120000",
      [](CUstream s) { return cuMemcpyDtoHAsync(shared, w.d0, 120000, s); });
  for (bool up : {true, false}) {
    std::string d = up ? " up" : " down";
    add("2DAsync pinned 100 x 200" + d,
        [=](CUstream s) { return copy2d(w.pinned, CU_MEMORYTYPE_HOST, 100, 200, 256, up, s); });
    add("2DAsync registered 100 x 200" + d,
        [=](CUstream s) { return copy2d(w.registered, CU_MEMORYTYPE_HOST, 100, 200, 256, up, s); });
    add("2DAsync pageable 100 x 4" + d,
        [=](CUstream s) { return copy2d(w.pageable, CU_MEMORYTYPE_HOST, 100, 4, 256, up, s); });
    add("2DAsync pageable 1000 x 500" + d,
        [=](CUstream s) { return copy2d(w.pageable, CU_MEMORYTYPE_HOST, 1000, 500, 2048, up, s); });
    add("3DAsync pinned 64 x 8 x 8" + d,
        [=](CUstream s) { return copy3d(w.pinned, 64, 8, 8, up, s); });
    add("3DAsync pageable 64 x 8 x 8" + d,
        [=](CUstream s) { return copy3d(w.pageable, 64, 8, 8, up, s); });
    add("3DAsync pageable 256 x 64 x 16" + d,
        [=](CUstream s) { return copy3d(w.pageable, 256, 64, 16, up, s); });
    add("3DAsync array, pinned" + d,
        [=](CUstream s) { return copy3d(w.pinned, 64, 64, 1, up, s, array); });
    add("3DAsync array, pageable" + d,
        [=](CUstream s) { return copy3d(w.pageable, 64, 64, 1, up, s, array); });
  }
  for (size_t z : {size_t(64), size_t(65536)}) {
    add("cuMemcpyHtoAAsync pinned " + std::to_string(z),
        [=](CUstream s) { return cuMemcpyHtoAAsync(array, 0, w.pinned, z > 256 ? 256 : z, s); });
    add("cuMemcpyAtoHAsync pageable " + std::to_string(z),
        [=](CUstream s) { return cuMemcpyAtoHAsync(w.pageable, array, 0, z > 256 ? 256 : z, s); });
  }
  add("cuMemsetD8Async 4 MiB", [](CUstream s) { return cuMemsetD8Async(w.d0, 1, kBig, s); });
  add("cuMemsetD32Async 1", [](CUstream s) { return cuMemsetD32Async(w.d0, 1, 1, s); });
  add("cuMemsetD2D8Async", [](CUstream s) { return cuMemsetD2D8Async(w.d0, 256, 1, 100, 100, s); });
  add("cuMemsetD8Async of pinned",
      [](CUstream s) { return cuMemsetD8Async((CUdeviceptr)w.pinned, 1, 4096, s); });
  add("cuMemsetD8Async of managed",
      [](CUstream s) { return cuMemsetD8Async(w.managed, 1, 4096, s); });
  add("cuEventRecord", [](CUstream s) { return cuEventRecord(event, s); });
  add("cuEventRecord, timing", [](CUstream s) { return cuEventRecord(event2, s); });
  add("cuEventRecord again, it waits behind S",
      [](CUstream s) { return cuEventRecord(w.follow, s); });
  add("cuStreamWaitEvent, over", [](CUstream s) { return cuStreamWaitEvent(s, w.Eidle, 0); });
  add("cuStreamWaitEvent, behind S", [](CUstream s) { return cuStreamWaitEvent(s, w.follow, 0); });
  add("cuLaunchHostFunc", [](CUstream s) { return cuLaunchHostFunc(s, no_function, nullptr); });
  add("cuStreamAddCallback",
      [](CUstream s) { return cuStreamAddCallback(s, no_callback, nullptr, 0); });
  add("cuStreamWriteValue32",
      [](CUstream s) { return cuStreamWriteValue32(s, w.dword + 128, 1, 0); });
  add("cuStreamWaitValue32, true", [](CUstream s) {
    return cuStreamWaitValue32(s, w.dword + 256, 0, CU_STREAM_WAIT_VALUE_GEQ);
  });
  add("cuStreamBatchMemOp", [](CUstream s) {
    CUstreamBatchMemOpParams p[2]{};
    p[0].operation = p[1].operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    p[0].writeValue.address = w.dword + 128;
    p[1].writeValue.address = w.dword + 132;
    return cuStreamBatchMemOp(s, 2, p, 0);
  });
  add(
      "cuMemAllocAsync 4 KiB", [](CUstream s) { return cuMemAllocAsync(&got, 4096, s); }, {},
      [] {
        MUST(cuMemFreeAsync(got, w.O));
        settle();
      });
  add(
      "cuMemAllocAsync 256 MiB", [](CUstream s) { return cuMemAllocAsync(&got, 256 << 20, s); }, {},
      [] {
        MUST(cuMemFreeAsync(got, w.O));
        settle();
      });
  add(
      "cuMemFreeAsync of the pool's", [](CUstream s) { return cuMemFreeAsync(given, s); },
      [] {
        MUST(cuMemAllocAsync(&given, 1 << 20, w.O));
        settle();
      });
  add(
      "cuMemFreeAsync of cuMemAlloc", [](CUstream s) { return cuMemFreeAsync(given, s); },
      [] { MUST(cuMemAlloc(&given, 1 << 20)); });
  add(
      "cuMemAllocFromPoolAsync, another pool",
      [](CUstream s) { return cuMemAllocFromPoolAsync(&got, 1 << 20, pool, s); }, {},
      [] {
        MUST(cuMemFreeAsync(got, w.O));
        settle();
      });
  add(
      "cuStreamAttachMemAsync single",
      [](CUstream s) { return cuStreamAttachMemAsync(s, w.managed, 0, CU_MEM_ATTACH_SINGLE); }, {},
      [] {
        MUST(cuStreamAttachMemAsync(w.O, w.managed, 0, CU_MEM_ATTACH_GLOBAL));
        settle();
      });
  add("cuMemPrefetchAsync to the device", [](CUstream s) {
    return cuMemPrefetchAsync(w.managed, kBig, {CU_MEM_LOCATION_TYPE_DEVICE, w.dev}, 0, s);
  });
  add("cuMemPrefetchAsync to the host", [](CUstream s) {
    return cuMemPrefetchAsync(w.managed, kBig, {CU_MEM_LOCATION_TYPE_HOST, 0}, 0, s);
  });
  add("cuGraphLaunch, kernel", [](CUstream s) { return cuGraphLaunch(w.probe_graph, s); });
  add("cuGraphUpload, kernel", [](CUstream s) { return cuGraphUpload(w.probe_graph, s); });
  add("cuStreamQuery", [](CUstream s) {
    CUresult r = cuStreamQuery(s);
    return r == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : r;
  });
  add("cuStreamGetPriority", [](CUstream s) {
    int p;
    return cuStreamGetPriority(s, &p);
  });
  add("cuStreamSetAttribute", [](CUstream s) {
    CUstreamAttrValue v{};
    v.syncPolicy = CU_SYNC_POLICY_AUTO;
    return cuStreamSetAttribute(s, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &v);
  });
  add(
      "capture of a launch",
      [](CUstream s) {
        CUresult r = cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
        if (r) return r;
        launch(s);
        return cuStreamEndCapture(s, &captured);
      },
      {},
      [] {
        if (captured) cuGraphDestroy(captured);
      });
  return t;
}
void streams_cases() {
  CUDA_ARRAY3D_DESCRIPTOR d{};
  d.Width = 64;
  d.Height = 64;
  d.Format = CU_AD_FORMAT_UNSIGNED_INT8;
  d.NumChannels = 1;
  MUST(cuArray3DCreate(&array, &d));
  CUmemPoolProps p{};
  p.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  p.location = {CU_MEM_LOCATION_TYPE_DEVICE, w.dev};
  MUST(cuMemPoolCreate(&pool, &p));
  MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  MUST(cuEventCreate(&event2, 0));
  CUstream B, free_stream = w.S;
  MUST(cuStreamCreate(&B, CU_STREAM_DEFAULT));
  for (auto& c : table())
    for (Holder h : {kFunction, kValue, kKernel})
      // In the held stream; in one that waits for it; in another; in the legacy stream while a
      // blocking one is held; the other way round.
      for (int rel = 0; rel < 5; ++rel) {
        if (h == kKernel && (rel == 1 || rel > 2)) continue;
        if (!turn()) continue;
        static const char* names[] = {"S", "fol", "oth", "leg", "blk"};
        w.S = rel < 3 ? free_stream : rel == 3 ? B : CU_STREAM_LEGACY;
        if (c.before) c.before();
        hold(h);
        MUST(cuEventRecord(w.follow, w.S));
        CUstream s = rel == 0   ? w.S
                     : rel == 1 ? w.F
                     : rel == 2 ? w.O
                     : rel == 3 ? CU_STREAM_LEGACY
                                : B;
        if (rel == 1) MUST(cuStreamWaitEvent(w.F, w.follow, 0));
        ask("str", h, names[rel], c.name, [&] { return c.call(s); });
        w.S = free_stream;
        if (c.after) c.after();
      }
}
