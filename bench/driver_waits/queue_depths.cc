// How much may be submitted behind a held stream before a call waits; and two programs as they
// submit their work, the worker of a session as it does.
#include "bench/driver_waits/waits.h"
void depth_cases() {
  std::vector<CUevent> events(2100);
  for (auto& e : events) MUST(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
  std::vector<CUstream> many(40);
  for (auto& s : many) MUST(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
  using Step = std::function<bool(unsigned)>;
  auto D = [](CUresult r) {
    MUST(r);
    return true;
  };
  struct Op {
    std::string name;
    Step step;
    unsigned limit;
  };
  const unsigned N = 2000;
  std::vector<Op> ops;
  auto add = [&](std::string n, Step s, unsigned l = 2000) {
    ops.push_back({std::move(n), std::move(s), l});
  };
  add("launch", [=](unsigned) { return D(launch(w.S)); });
  add("launch, 4000 bytes", [=](unsigned) {
    static char p[4000];
    static void* a[] = {p};
    return D(cuLaunchKernel(w.many, 1, 1, 1, 1, 1, 1, 0, w.S, a, nullptr));
  });
  for (size_t z : {size_t(4), size_t(120000), size_t(1 << 20)}) {
    add("HtoD pinned " + std::to_string(z),
        [=](unsigned) { return D(cuMemcpyHtoDAsync(w.d0, w.pinned, z, w.S)); });
    add("HtoD registered " + std::to_string(z),
        [=](unsigned) { return D(cuMemcpyHtoDAsync(w.d0, w.registered, z, w.S)); });
    add("DtoH pinned " + std::to_string(z),
        [=](unsigned) { return D(cuMemcpyDtoHAsync(w.pinned, w.d0, z, w.S)); });
    add("DtoH registered " + std::to_string(z),
        [=](unsigned) { return D(cuMemcpyDtoHAsync(w.registered, w.d0, z, w.S)); });
    add("DtoD " + std::to_string(z),
        [=](unsigned) { return D(cuMemcpyDtoDAsync(w.d1, w.d0, z, w.S)); });
  }
  for (size_t z : {size_t(4), size_t(1024), size_t(16384), size_t(65536)})
    add("HtoD pageable " + std::to_string(z),
        [=](unsigned) { return D(cuMemcpyHtoDAsync(w.d0, w.pageable, z, w.S)); });
  add("2D pinned", [=](unsigned) {
    CUDA_MEMCPY2D c{};
    c.srcMemoryType = CU_MEMORYTYPE_HOST;
    c.srcHost = w.pinned;
    c.srcPitch = 256;
    c.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    c.dstDevice = w.d0;
    c.dstPitch = 100;
    c.WidthInBytes = 100;
    c.Height = 100;
    return D(cuMemcpy2DAsync(&c, w.S));
  });
  add("memset D8", [=](unsigned) { return D(cuMemsetD8Async(w.d0, 1, 4096, w.S)); });
  add("memset D2D", [=](unsigned) { return D(cuMemsetD2D8Async(w.d0, 256, 1, 100, 100, w.S)); });
  add("record, one event", [=](unsigned) { return D(cuEventRecord(w.E, w.S)); });
  add("record, new events", [=, &events](unsigned i) { return D(cuEventRecord(events[i], w.S)); });
  add("wait for an event that is over",
      [=](unsigned) { return D(cuStreamWaitEvent(w.S, w.Eidle, 0)); });
  add("record and wait in another stream", [=, &events](unsigned i) {
    return D(cuEventRecord(events[i], w.S)) && D(cuStreamWaitEvent(w.F, events[i], 0));
  });
  add("ping pong of two streams", [=, &events](unsigned i) {
    CUstream a = i % 2 ? w.S : w.F, b = i % 2 ? w.F : w.S;
    return D(cuEventRecord(events[i], a)) && D(cuStreamWaitEvent(b, events[i], 0));
  });
  add("host function", [=](unsigned) { return D(cuLaunchHostFunc(w.S, no_function, nullptr)); });
  add("callback", [=](unsigned) { return D(cuStreamAddCallback(w.S, no_callback, nullptr, 0)); });
  add("write value", [=](unsigned) { return D(cuStreamWriteValue32(w.S, w.dword + 128, 1, 0)); });
  add("wait value, true", [=](unsigned) {
    return D(cuStreamWaitValue32(w.S, w.dword + 256, 0, CU_STREAM_WAIT_VALUE_GEQ));
  });
  add("mallocAsync and freeAsync", [=](unsigned) {
    CUdeviceptr d;
    return D(cuMemAllocAsync(&d, 4096, w.S)) && D(cuMemFreeAsync(d, w.S));
  });
  add("attach",
      [=](unsigned) { return D(cuStreamAttachMemAsync(w.S, w.managed, 0, CU_MEM_ATTACH_GLOBAL)); });
  add(
      "prefetch",
      [=](unsigned) {
        return D(cuMemPrefetchAsync(w.managed, kBig, {CU_MEM_LOCATION_TYPE_DEVICE, w.dev}, 0, w.S));
      },
      300);
  add("host function, HtoD pinned", [=](unsigned i) {
    return i % 2 ? D(cuMemcpyHtoDAsync(w.d0, w.pinned, 120000, w.S))
                 : D(cuLaunchHostFunc(w.S, no_function, nullptr));
  });
  add("host function, HtoD registered", [=](unsigned i) {
    return i % 2 ? D(cuMemcpyHtoDAsync(w.d0, w.registered, 120000, w.S))
                 : D(cuLaunchHostFunc(w.S, no_function, nullptr));
  });
  add("host function, DtoH pinned", [=](unsigned i) {
    return i % 2 ? D(cuMemcpyDtoHAsync(w.pinned, w.d0, 120000, w.S))
                 : D(cuLaunchHostFunc(w.S, no_function, nullptr));
  });
  add("host function, launch", [=](unsigned i) {
    return i % 2 ? D(launch(w.S)) : D(cuLaunchHostFunc(w.S, no_function, nullptr));
  });
  add("HtoD, launch", [=](unsigned i) {
    return i % 2 ? D(launch(w.S)) : D(cuMemcpyHtoDAsync(w.d0, w.pinned, 120000, w.S));
  });
  add("HtoD, DtoH", [=](unsigned i) {
    return i % 2 ? D(cuMemcpyHtoDAsync(w.d0, w.pinned, 120000, w.S))
                 : D(cuMemcpyDtoHAsync(w.pinned, w.d0, 120000, w.S));
  });
  add("HtoD, record, launch, record", [=](unsigned i) {
    return i % 4 == 0   ? D(cuMemcpyHtoDAsync(w.d0, w.pinned, 120000, w.S))
           : i % 4 == 2 ? D(launch(w.S))
                        : D(cuEventRecord(w.E, w.S));
  });
  add("wait value, HtoD registered, record", [=, &events](unsigned i) {
    return i % 3 == 0   ? D(cuStreamWaitValue32(w.S, w.dword + 256, 0, CU_STREAM_WAIT_VALUE_GEQ))
           : i % 3 == 1 ? D(cuMemcpyHtoDAsync(w.d0, w.registered, 120000, w.S))
                        : D(cuEventRecord(events[i], w.S));
  });
  add(
      "40 streams behind, launch in turn", [=](unsigned i) { return D(launch(many[i % 40])); },
      8000);
  add(
      "40 streams behind, HtoD in turn",
      [=](unsigned i) { return D(cuMemcpyHtoDAsync(w.d0, w.pinned, 120000, many[i % 40])); }, 8000);
  add(
      "40 streams behind, host function in turn",
      [=](unsigned i) { return D(cuLaunchHostFunc(many[i % 40], no_function, nullptr)); }, 4000);
  add(
      "40 streams behind, DtoH in turn",
      [=](unsigned i) { return D(cuMemcpyDtoHAsync(w.pinned, w.d0, 120000, many[i % 40])); }, 8000);
  add(
      "1000 launches in S, then 40 free streams in turn",
      [=](unsigned i) { return D(launch(i < 1000 ? w.S : many[i % 40])); }, 4000);
  add(
      "1000 HtoD in S, then 40 free streams in turn",
      [=](unsigned i) {
        return D(cuMemcpyHtoDAsync(w.d0, w.pinned, 4096, i < 1000 ? w.S : many[i % 40]));
      },
      4000);
  add(
      "100 host functions in S, then launches in 40 free streams",
      [=](unsigned i) {
        return i < 100 ? D(cuLaunchHostFunc(w.S, no_function, nullptr)) : D(launch(many[i % 40]));
      },
      4000);
  for (auto& o : ops) {
    bool behind = o.name[0] == '4';
    for (Holder h : {kFunction, kValue, kKernel}) {
      if (!turn()) continue;
      auto step = o.step;
      if (behind)
        step = [&, inner = o.step](unsigned i) {
          if (i == 0) {
            MUST(cuEventRecord(w.follow, w.S));
            for (auto s : many) MUST(cuStreamWaitEvent(s, w.follow, 0));
          }
          return inner(i);
        };
      depth("dep", h, o.name, step, o.limit ? o.limit : N);
    }
  }
}

// The program of pinned buffers and host functions, as an application and as a worker submits it.
static void double_buffer(bool as_worker, char* in, char* out, Holder h) {
  const size_t n = 120000;
  CUstream up, work, down;
  for (auto s : {&up, &work, &down}) MUST(cuStreamCreate(s, CU_STREAM_NON_BLOCKING));
  CUevent uploaded[2], worked[2], downloaded[2];
  for (int i = 0; i < 2; ++i)
    for (auto e : {&uploaded[i], &worked[i], &downloaded[i]})
      MUST(cuEventCreate(e, CU_EVENT_DISABLE_TIMING));
  std::vector<CUevent> mine(400);
  for (auto& e : mine) MUST(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
  std::vector<std::pair<std::string, std::function<CUresult()>>> p;
  size_t m = 0;
  auto note = [&](CUstream s) {
    if (as_worker) {
      CUevent e = mine[m++ % 400];
      p.push_back({"record of my own", [=] { return cuEventRecord(e, s); }});
    }
  };
  for (unsigned k = 0; k < 60; ++k) {
    int b = k % 2;
    CUevent ub = uploaded[b], wb = worked[b], db = downloaded[b];
    char *ib = in + b * 131072, *ob = out + b * 131072;
    std::string q = " chunk " + std::to_string(k);
    if (k >= 2) p.push_back({"wait worked" + q, [=] { return cuStreamWaitEvent(up, wb, 0); }});
    if (k == 0)
      p.push_back({"wait for S" + q, [=] {
                     cuEventRecord(w.follow, w.S);
                     return cuStreamWaitEvent(up, w.follow, 0);
                   }});
    p.push_back(
        {"host function fill" + q, [=] { return cuLaunchHostFunc(up, no_function, nullptr); }});
    p.push_back({"HtoD" + q, [=] { return cuMemcpyHtoDAsync(w.d0 + b * 131072, ib, n, up); }});
    note(up);
    p.push_back({"record uploaded" + q, [=] { return cuEventRecord(ub, up); }});
    p.push_back({"wait uploaded" + q, [=] { return cuStreamWaitEvent(work, ub, 0); }});
    if (k >= 2)
      p.push_back({"wait downloaded" + q, [=] { return cuStreamWaitEvent(work, db, 0); }});
    p.push_back({"launch" + q, [=] { return launch(work); }});
    p.push_back({"record worked" + q, [=] { return cuEventRecord(wb, work); }});
    p.push_back({"wait worked" + q, [=] { return cuStreamWaitEvent(down, wb, 0); }});
    p.push_back({"DtoH" + q, [=] { return cuMemcpyDtoHAsync(ob, w.d1 + b * 131072, n, down); }});
    note(down);
    p.push_back({"record downloaded" + q, [=] { return cuEventRecord(db, down); }});
    p.push_back(
        {"host function check" + q, [=] { return cuLaunchHostFunc(down, no_function, nullptr); }});
  }
  depth(
      "pat", h,
      std::string("double buffer ") + (as_worker ? "as worker" : "as program") +
          (in == w.registered ? " registered" : " pinned"),
      [&](unsigned i) {
        if (i >= p.size()) return false;
        MUST(p[i].second());
        return true;
      },
      unsigned(p.size()), [&](unsigned i) { return p[i].first; });
  for (auto s : {up, work, down}) MUST(cuStreamDestroy(s));
}
// A function that waits until all has been submitted, or 300 ms.
static std::atomic<bool> all_submitted;
static std::atomic<unsigned> waited_in_vain;
static void CUDA_CB wait_for_all(void*) {
  auto t = Clock::now();
  while (!all_submitted && ms_since(t) < 300) usleep(100);
  if (!all_submitted) ++waited_in_vain;
}
static void graph_mapped() {
  char* reg =
      (char*)mmap(nullptr, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  MUST(cuMemHostRegister(reg + 12, 80000, CU_MEMHOSTREGISTER_DEVICEMAP));
  CUdeviceptr dr;
  MUST(cuMemHostGetDevicePointer(&dr, reg + 12, 0));
  for (int holds = 0; holds < 2; ++holds) {
    CUgraphExec e[2];
    for (int k = 0; k < 2; ++k) {
      MUST(cuStreamBeginCapture(w.P, CU_STREAM_CAPTURE_MODE_GLOBAL));
      MUST(cuLaunchHostFunc(w.P, no_function, nullptr));
      MUST(launch(w.P));
      MUST(launch(w.P));
      MUST(cuLaunchHostFunc(w.P, holds ? wait_for_all : no_function, nullptr));
      MUST(launch(w.P));
      if (k)
        MUST(cuMemcpyAsync(dr, (CUdeviceptr)w.pinned, 80000, w.P));
      else
        MUST(cuMemcpyDtoDAsync(dr, (CUdeviceptr)w.pinned, 80000, w.P));
      MUST(cuLaunchHostFunc(w.P, no_function, nullptr));
      CUgraph g;
      MUST(cuStreamEndCapture(w.P, &g));
      MUST(cuGraphInstantiate(&e[k], g, 0));
      MUST(cuGraphDestroy(g));
    }
    if (!holds) {
      for (Holder h : {kFunction, kValue}) {
        depth(
            "pat", h, "graph_mapped: e0 e1 e0 e1 ...",
            [&](unsigned i) {
              MUST(cuGraphLaunch(e[i % 2], w.S));
              return true;
            },
            200);
        depth(
            "pat", h, "graph_mapped: e0 e0 e0 ...",
            [&](unsigned) {
              MUST(cuGraphLaunch(e[0], w.S));
              return true;
            },
            200);
        depth(
            "pat", h, "graph_mapped: first launches, fresh",
            [&](unsigned i) {
              MUST(cuGraphLaunch(e[i % 2], w.S));
              return true;
            },
            4);
      }
    } else {
      for (int r = 0; r < 3; ++r) {
        all_submitted = false;
        waited_in_vain = 0;
        auto t = Clock::now();
        std::string times;
        for (int k = 0; k < 3; ++k) {
          auto u = Clock::now();
          MUST(cuGraphLaunch(e[(r + k) % 2], w.O));
          char b[40];
          snprintf(b, 40, " %.1f", ms_since(u));
          times += b;
        }
        all_submitted = true;
        settle();
        printf(
            "pat - graph_mapped whose host node waits until 3 launches are submitted: launches "
            "took%s ms, in vain %u, all %.1f ms\n",
            times.c_str(), waited_in_vain.load(), ms_since(t));
      }
    }
    for (auto x : e) MUST(cuGraphExecDestroy(x));
  }
  // First launch of a fresh executable graph behind S.
  for (Holder h : {kFunction, kValue, kKernel}) {
    CUgraph g;
    CUgraphExec x;
    MUST(cuStreamBeginCapture(w.P, CU_STREAM_CAPTURE_MODE_GLOBAL));
    MUST(cuLaunchHostFunc(w.P, no_function, nullptr));
    MUST(launch(w.P));
    MUST(cuLaunchHostFunc(w.P, no_function, nullptr));
    MUST(cuStreamEndCapture(w.P, &g));
    MUST(cuGraphInstantiate(&x, g, 0));
    hold(h);
    ask("pat", h, "S", "first launch of a fresh graph", [&] { return cuGraphLaunch(x, w.S); });
    MUST(cuGraphExecDestroy(x));
    MUST(cuGraphInstantiate(&x, g, 0));
    hold(h);
    ask("pat", h, "oth", "first launch of a fresh graph", [&] { return cuGraphLaunch(x, w.O); });
    MUST(cuGraphExecDestroy(x));
    MUST(cuGraphDestroy(g));
  }
}
void pattern_cases() {
  for (Holder h : {kFunction, kValue})
    for (bool worker : {false, true}) {
      if (!turn()) continue;
      double_buffer(worker, w.pinned, w.pinned2, h);
      double_buffer(worker, w.registered, w.registered + (1 << 20), h);
    }
  if (turn()) graph_mapped();
}
