// Which calls of a driver wait while something holds a stream. What a driver answers decides where
// a worker may call it (docs/architecture.md, "Calls that wait in the driver").
//
// A stream is held by a host function (F), a wait for a value in memory (V) or a kernel (K), which
// the program lets go without the driver. Each call is made meanwhile on a thread of its own. One
// that is not back within 100 ms waits. Then a thread for each of a dozen other calls shows which
// of those wait, too (`others`): h cuStreamQuery of the held stream, q of another one,
// e cuEventQuery, r cuEventRecord, l cuLaunchKernel, c cuMemcpyHtoDAsync, f cuLaunchHostFunc,
// w cuStreamWriteValue32, g cuGraphLaunch, m cuMemGetInfo, p cuStreamGetFlags, t cuCtxSetCurrent,
// o and i a launch and cuStreamQuery in another context, a cuMemAlloc.
//
// usage: driver_waits [patterns | graphs | depth | plain | streams | more]; natively.
#pragma once
#include <cuda.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

using Clock = std::chrono::steady_clock;
inline double ms_since(Clock::time_point t) {
  return std::chrono::duration<double, std::milli>(Clock::now() - t).count();
}
inline void must(CUresult r, const char* what, int line) {
  if (r == CUDA_SUCCESS) return;
  printf("!! line %d %s: error %d\n", line, what, int(r));
  fflush(stdout);
  _exit(3);
}
#define MUST(...) must((__VA_ARGS__), #__VA_ARGS__, __LINE__)

// A thread with a context that runs one thing at a time.
class Hand {
 public:
  explicit Hand(CUcontext c)
      : thread_([this, c] {
          cuCtxSetCurrent(c);
          for (;;) {
            std::unique_lock l(m_);
            cv_.wait(l, [&] { return bool(fn_) || end_; });
            if (end_) return;
            auto f = std::move(fn_);
            fn_ = nullptr;
            l.unlock();
            auto t = Clock::now();
            f();
            l.lock();
            took_ = ms_since(t);
            busy_ = false;
            cv_.notify_all();
          }
        }) {
    thread_.detach();
  }
  void start(std::function<void()> f) {
    std::lock_guard l(m_);
    fn_ = std::move(f);
    busy_ = true;
    cv_.notify_all();
  }
  bool wait(double ms) {
    std::unique_lock l(m_);
    return cv_.wait_for(l, std::chrono::duration<double, std::milli>(ms), [&] { return !busy_; });
  }
  bool idle() {
    std::lock_guard l(m_);
    return !busy_;
  }
  double took() {
    std::lock_guard l(m_);
    return took_;
  }

 private:
  std::mutex m_;
  std::condition_variable cv_;
  std::function<void()> fn_;
  bool busy_ = false, end_ = false;
  double took_ = 0;
  std::thread thread_;
};

struct World {
  CUdevice dev;
  CUcontext ctx, ctx2;
  CUmodule mod, mod2;
  CUfunction nothing, spin, many, nothing2;
  CUstream S, O, F, P, P2, X2;  // held, other, follower, the probes', of the second context
  CUevent E, Eidle, follow;
  CUdeviceptr d0, d1, managed;  // 4 MiB each
  char *pinned, *pinned2, *registered, *part, *pageable, *pageable2;
  volatile unsigned* word;  // mapped
  CUdeviceptr dword;
  unsigned turn = 0;
  CUgraphExec probe_graph;
};
extern World w;
constexpr size_t kBig = 4 << 20;

enum Holder { kFunction, kValue, kKernel };
extern std::atomic<bool> function_runs, function_goes;
inline void CUDA_CB hold_function(void*) {
  function_runs = true;
  for (int i = 0; i < 60000 && !function_goes; ++i) usleep(100);
  function_runs = false;
}
inline void CUDA_CB no_function(void*) {}
inline void CUDA_CB no_callback(CUstream, CUresult, void*) {}
void hold(Holder h);    // holds w.S
void let_go(Holder h);  // without the driver
void settle();          // waits for the context, after let_go
// Runs `f` on the caller's thread; if it is not back in 100 ms: asks the probes. Lets go, prints.
void ask(const char* group, Holder h, const char* rel, const std::string& name,
         const std::function<CUresult()>& f);
// `step` until it returns false; prints the number at which it stood.
void depth(const char* group, Holder h, const std::string& name,
           const std::function<bool(unsigned)>& step, unsigned limit,
           const std::function<std::string(unsigned)>& step_name = {});
inline CUresult launch(CUstream s, CUfunction f = nullptr) {
  return cuLaunchKernel(f ? f : w.nothing, 1, 1, 1, 32, 1, 1, 0, s, nullptr, nullptr);
}
CUmodule load();
bool turn();  // whether the next case is this process's
void streams_cases();
void plain_cases();
void graph_cases();
void depth_cases();
void pattern_cases();
void more_cases();
