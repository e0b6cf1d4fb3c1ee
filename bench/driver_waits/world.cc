// Set-up, the held stream, threads that call, the report. Each section runs in a process of its
// own; when a call never returns, another process goes on behind it.
#include <signal.h>

#include "bench/driver_waits/waits.h"
World w;
std::atomic<bool> function_runs{false}, function_goes{false};
static const char kPtx[] = R"(
.version 7.5
.target sm_75
.address_size 64
.global .align 4 .u32 variable;
.visible .entry nothing() { ret; }
.visible .entry many(.param .align 8 .b8 p[4000]) { ret; }
.visible .entry spin(.param .u64 p, .param .u32 n)
{
  .reg .u64 %a, %t, %s, %e; .reg .u32 %v, %n; .reg .pred %q;
  ld.param.u64 %a, [p]; ld.param.u32 %n, [n];
  mov.u64 %s, %globaltimer;
  add.u64 %e, %s, 4000000000;
L: ld.volatile.global.u32 %v, [%a];
  setp.ge.u32 %q, %v, %n;
  @%q bra D;
  mov.u64 %t, %globaltimer;
  setp.lt.u64 %q, %t, %e;
  @%q bra L;
D: ret;
}
)";
CUmodule load() {
  CUmodule m;
  MUST(cuModuleLoadData(&m, kPtx));
  return m;
}
static std::vector<Hand*> hands;
static Hand* caller;
struct Probe {
  char letter;
  std::function<void()> f;
};
static std::vector<Probe> probes;
static CUdeviceptr probe_memory;

static void setup() {
  MUST(cuInit(0));
  MUST(cuDeviceGet(&w.dev, 0));
  MUST(cuDevicePrimaryCtxRetain(&w.ctx, w.dev));
  MUST(cuCtxCreate(&w.ctx2, nullptr, 0, w.dev));
  w.mod2 = load();
  MUST(cuModuleGetFunction(&w.nothing2, w.mod2, "nothing"));
  MUST(cuStreamCreate(&w.X2, CU_STREAM_NON_BLOCKING));
  MUST(launch(w.X2, w.nothing2));
  MUST(cuCtxSynchronize());
  MUST(cuCtxSetCurrent(w.ctx));
  w.mod = load();
  MUST(cuModuleGetFunction(&w.nothing, w.mod, "nothing"));
  MUST(cuModuleGetFunction(&w.spin, w.mod, "spin"));
  MUST(cuModuleGetFunction(&w.many, w.mod, "many"));
  for (CUstream* s : {&w.S, &w.O, &w.F, &w.P, &w.P2})
    MUST(cuStreamCreate(s, CU_STREAM_NON_BLOCKING));
  for (CUevent* e : {&w.E, &w.Eidle, &w.follow}) MUST(cuEventCreate(e, CU_EVENT_DISABLE_TIMING));
  MUST(cuMemAlloc(&w.d0, kBig));
  MUST(cuMemAlloc(&w.d1, kBig));
  MUST(cuMemAllocManaged(&w.managed, kBig, CU_MEM_ATTACH_GLOBAL));
  memset((void*)w.managed, 1, kBig);
  MUST(cuMemHostAlloc((void**)&w.pinned, kBig, 0));
  MUST(cuMemHostAlloc((void**)&w.pinned2, kBig, CU_MEMHOSTALLOC_PORTABLE));
  for (char** p : {&w.registered, &w.part, &w.pageable, &w.pageable2}) {
    *p = (char*)mmap(nullptr, kBig, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(*p, 1, kBig);
  }
  MUST(cuMemHostRegister(w.registered, kBig,
                         CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));
  MUST(cuMemHostRegister(w.part, 64 << 10, 0));
  void* word;
  MUST(cuMemHostAlloc(&word, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
  w.word = (volatile unsigned*)word;
  *w.word = 0;
  MUST(cuMemHostGetDevicePointer(&w.dword, word, 0));
  CUgraph g;
  MUST(cuGraphCreate(&g, 0));
  CUDA_KERNEL_NODE_PARAMS k{};
  k.func = w.nothing;
  k.gridDimX = k.gridDimY = k.gridDimZ = k.blockDimX = k.blockDimY = k.blockDimZ = 1;
  CUgraphNode n;
  MUST(cuGraphAddKernelNode(&n, g, nullptr, 0, &k));
  MUST(cuGraphInstantiate(&w.probe_graph, g, 0));
  // Everything once, so that nothing is loaded later.
  for (CUstream s : {w.S, w.O, w.F, w.P}) {
    MUST(launch(s));
    MUST(cuMemcpyHtoDAsync(w.d0, w.pinned, 1 << 20, s));
    MUST(cuMemcpyDtoHAsync(w.pinned, w.d0, 1 << 20, s));
    MUST(cuMemsetD8Async(w.d0, 1, kBig, s));
    MUST(cuMemcpyDtoDAsync(w.d0, w.d1, kBig, s));
    MUST(cuLaunchHostFunc(s, no_function, nullptr));
    MUST(cuGraphLaunch(w.probe_graph, s));
    MUST(cuStreamSynchronize(s));
  }
  static char params[4000];
  static void* of_many[] = {params};
  MUST(cuLaunchKernel(w.many, 1, 1, 1, 1, 1, 1, 0, w.O, of_many, nullptr));
  unsigned zero = 0;
  void* of_spin[] = {&w.dword, &zero};
  MUST(cuLaunchKernel(w.spin, 1, 1, 1, 1, 1, 1, 0, w.O, of_spin, nullptr));
  MUST(cuEventRecord(w.Eidle, w.O));
  MUST(cuCtxSynchronize());
  caller = new Hand(w.ctx);
  probes = {
      {'q', [] { cuStreamQuery(w.P2); }},
      {'e', [] { cuEventQuery(w.Eidle); }},
      {'h', [] { cuStreamQuery(w.S); }},
      {'r', [] { cuEventRecord(w.E, w.P); }},
      {'l', [] { launch(w.P); }},
      {'c', [] { cuMemcpyHtoDAsync(w.d1, w.pinned2, 4096, w.P); }},
      {'f', [] { cuLaunchHostFunc(w.P2, no_function, nullptr); }},
      {'w', [] { cuStreamWriteValue32(w.P, w.dword + 64, 1, 0); }},
      {'g', [] { cuGraphLaunch(w.probe_graph, w.P2); }},
      {'m',
       [] {
         size_t a, b;
         cuMemGetInfo(&a, &b);
       }},
      {'p',
       [] {
         unsigned f;
         cuStreamGetFlags(w.P, &f);
       }},
      {'t', [] { cuCtxSetCurrent(w.ctx); }},
      {'o', [] { launch(w.X2, w.nothing2); }},
      {'i', [] { cuStreamQuery(w.X2); }},
      {'a', [] { cuMemAlloc(&probe_memory, 4096); }},
  };
  for (auto& p : probes)
    hands.push_back(new Hand(p.letter == 'o' || p.letter == 'i' ? w.ctx2 : w.ctx));
}
void hold(Holder h) {
  ++w.turn;
  function_goes = false;
  if (h == kFunction) {
    MUST(cuLaunchHostFunc(w.S, hold_function, nullptr));
    while (!function_runs) usleep(20);
  } else if (h == kValue) {
    MUST(cuStreamWaitValue32(w.S, w.dword, w.turn, CU_STREAM_WAIT_VALUE_GEQ));
  } else {
    void* args[] = {&w.dword, &w.turn};
    MUST(cuLaunchKernel(w.spin, 1, 1, 1, 1, 1, 1, 0, w.S, args, nullptr));
    usleep(200);
  }
}
void let_go(Holder) {
  *w.word = w.turn;
  function_goes = true;
}
void settle() { MUST(cuCtxSynchronize()); }

static std::string ask_probes() {
  std::string out;
  size_t n = probes.size() - 1;  // memory is asked for last: it may take locks
  for (size_t i = 0; i < n; ++i) hands[i]->start(probes[i].f);
  auto end = Clock::now() + std::chrono::milliseconds(50);
  for (size_t i = 0; i < n; ++i) {
    double left = std::chrono::duration<double, std::milli>(end - Clock::now()).count();
    if (!hands[i]->wait(left > 0 ? left : 0)) out += probes[i].letter;
  }
  hands[n]->start(probes[n].f);
  if (!hands[n]->wait(20)) out += probes[n].letter;
  return out.empty() ? "-" : out;
}
static void finish_probes() {
  for (auto* h : hands)
    if (!h->wait(3000)) {
      printf("!! a probe does not return\n");
      fflush(stdout);
      _exit(4);
    }
  if (probe_memory) MUST(cuMemFree(probe_memory));
  probe_memory = 0;
}
static const char* of(Holder h) { return h == kFunction ? "F" : h == kValue ? "V" : "K"; }
void ask(const char* group, Holder h, const char* rel, const std::string& name,
         const std::function<CUresult()>& f) {
  CUresult result = CUDA_SUCCESS;
  caller->start([&] { result = f(); });
  if (caller->wait(100)) {
    double took = caller->took();
    let_go(h);
    settle();
    printf("%s %s %-3s %-44s %4d %8.2f\n", group, of(h), rel, name.c_str(), int(result), took);
  } else {
    std::string others = ask_probes();
    auto t = Clock::now();
    bool came = caller->idle();
    let_go(h);
    if (!caller->wait(7000)) {
      printf("%s %s %-3s %-44s NEVER RETURNS others: %s\n", group, of(h), rel, name.c_str(),
             others.c_str());
      fflush(stdout);
      _exit(5);
    }
    double after = ms_since(t);
    finish_probes();
    settle();
    printf("%s %s %-3s %-44s %4d BLOCKS%s (back %.2f after) others: %s\n", group, of(h), rel,
           name.c_str(), int(result), came ? " 100..170ms only" : "", after, others.c_str());
  }
  fflush(stdout);
}
void depth(const char* group, Holder h, const std::string& name,
           const std::function<bool(unsigned)>& step, unsigned limit,
           const std::function<std::string(unsigned)>& step_name) {
  std::atomic<unsigned> at{0};
  std::atomic<bool> stop{false};
  hold(h);
  caller->start([&] {
    for (unsigned i = 0; i < limit && !stop; ++i) {
      at = i;
      if (!step(i)) return;
    }
    at = limit;
  });
  unsigned last = ~0u;
  auto since = Clock::now(), begin = since;
  std::string others;
  while (!caller->wait(2)) {
    if (at != last) last = at, since = Clock::now();
    if (ms_since(begin) > 1500) {
      stop = true;
      others = "(slow)";
      break;
    }
    if (ms_since(since) < 100) continue;
    others = ask_probes();
    break;
  }
  unsigned stood = at;
  stop = true;
  let_go(h);
  if (!caller->wait(7000)) {
    printf("%s %s %s: never returns\n", group, of(h), name.c_str());
    fflush(stdout);
    _exit(5);
  }
  finish_probes();
  settle();
  std::string what = step_name && stood < limit ? " = " + step_name(stood) : "";
  if (others.empty())
    printf("%s %s %-48s %u: no wait in %.1f ms\n", group, of(h), name.c_str(), stood,
           ms_since(begin));
  else
    printf("%s %s %-48s STANDS AT %u%s others: %s\n", group, of(h), name.c_str(), stood,
           what.c_str(), others.c_str());
  fflush(stdout);
}

// What a process has begun; the next one goes on behind it, when a driver's call never returned.
struct Progress {
  std::atomic<unsigned> begun, over;
};
static Progress* progress;
static unsigned counted = 0;
bool turn() {
  unsigned mine = counted++;
  if (mine < progress->begun) return false;
  progress->begun = mine + 1;
  return true;
}
#include <sys/wait.h>
int main(int n, char** v) {
  progress =
      (Progress*)mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  struct Section {
    const char* name;
    void (*run)();
  };
  const Section sections[] = {{"more", more_cases},    {"patterns", pattern_cases},
                              {"graphs", graph_cases}, {"depth", depth_cases},
                              {"plain", plain_cases},  {"streams", streams_cases}};
  for (auto& s : sections) {
    if (n > 1 && strcmp(v[1], s.name) != 0) continue;
    progress->begun = 0;
    progress->over = 0;
    for (int tries = 0; tries < 25 && !progress->over; ++tries) {
      fflush(stdout);
      pid_t child = fork();
      if (child == 0) {
        setup();
        s.run();
        printf("end of %s\n", s.name);
        fflush(stdout);
        progress->over = 1;
        _exit(0);
      }
      unsigned last = ~0u;
      auto since = Clock::now();
      int status;
      while (waitpid(child, &status, WNOHANG) == 0) {
        usleep(10000);
        if (progress->begun != last) last = progress->begun, since = Clock::now();
        if (ms_since(since) > 25000) {
          printf("!! case %u of %s does not end\n", last, s.name);
          kill(child, SIGKILL);
          waitpid(child, &status, 0);
          break;
        }
      }
      if (!progress->over)
        printf("!! process of %s ended with %d in case %u\n", s.name, status,
               progress->begun.load());
    }
  }
  return 0;
}
