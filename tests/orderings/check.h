// What the programs of this folder share. PROGRAM is the program's name, given by the build.
//
// A program calls begin() first and right() last. Its last line is then "PROGRAM: right" and its
// exit code 0; a promise that does not hold, a CUDA error, a crash or a hang ends it with 1 and a
// line that says where. Options for `fargpu run` stand in the first lines of a source, as
// "// run: --memory 1G", settings of the simulated GPU, as "// sim: NAME=VALUE", and settings of
// fargpu with which it runs once more, as "// again: NAME=VALUE". Every program must pass on a real
// driver, with one GPU and with two.
#pragma once

#include <cuda.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

extern "C" const char kernels_ptx[];  // kernels.cu

// Runs the program again with this variable, unless it is set: fargpu takes its settings when its
// library is loaded.
inline void start_with(const char* variable, const char* value) {
  if (getenv(variable) != nullptr) return;
  setenv(variable, value, 1);
  execl("/proc/self/exe", "program", static_cast<char*>(nullptr));
}

inline const char* volatile current_step = "its beginning";

[[noreturn]] [[gnu::format(printf, 1, 2)]] inline void wrong(const char* format, ...) {
  va_list values;
  va_start(values, format);
  std::printf("%s: wrong: ", PROGRAM);
  std::vprintf(format, values);
  va_end(values);
  std::printf("\n");
  std::fflush(stdout);
  _exit(1);
}

// Ends the process without destructors: threads may still be inside a call.
[[noreturn]] inline void right() {
  std::printf("%s: right\n", PROGRAM);
  std::fflush(stdout);
  _exit(0);
}

// Something that is no verdict.
[[gnu::format(printf, 1, 2)]] inline void note(const char* format, ...) {
  va_list values;
  va_start(values, format);
  std::printf("note: ");
  std::vprintf(format, values);
  va_end(values);
  std::printf("\n");
}

// What comes next, for the line of a hang or a crash.
inline void step(const char* name) { current_step = name; }

// The same for a thread of several, with a number of its own: what it does, in which round, and
// what it has seen of that which it waits for.
struct ThreadStep {
  const char* volatile doing = nullptr;  // null: nothing any more
  volatile long round = 0, seen = 0;
};
inline ThreadStep thread_steps[16];
inline void step(unsigned thread, const char* name, long round = 0) {
  thread_steps[thread].round = round;
  thread_steps[thread].seen = 0;
  thread_steps[thread].doing = name;
}

inline void show_thread_steps() {
  for (const ThreadStep& one : thread_steps) {
    if (one.doing == nullptr) continue;
    char line[400];
    const int length =
        std::snprintf(line, sizeof line, "thread %d, round %ld: %.300s, seen %ld\n",
                      static_cast<int>(&one - thread_steps), one.round, one.doing, one.seen);
    (void)!write(STDOUT_FILENO, line, static_cast<size_t>(length));
  }
}

inline void on_end_by_signal(int number) {
  show_thread_steps();
  char line[400] = PROGRAM ": wrong: ";
  std::strcat(line, number == SIGALRM ? "no end in time at: " : "crashed at: ");
  std::strncat(line, current_step, 300);
  std::strcat(line, "\n");
  (void)!write(STDOUT_FILENO, line, std::strlen(line));
  _exit(1);
}

// `seconds`: the program has hung when it has not ended by then.
inline void begin(unsigned seconds = 60) {
  std::setvbuf(stdout, nullptr, _IOLBF, 1 << 12);
  for (const int number : {SIGALRM, SIGSEGV, SIGBUS, SIGABRT}) signal(number, on_end_by_signal);
  alarm(seconds);
}

inline const char* name_of(CUresult result) {
  const char* name = nullptr;
  cuGetErrorName(result, &name);
  return name == nullptr ? "an unknown error" : name;
}

inline void must_succeed(const char* file, int line, const char* call, CUresult result) {
  if (result != CUDA_SUCCESS) wrong("%s:%d: %s gave %s", file, line, call, name_of(result));
}
#define CU(...) must_succeed(__FILE__, __LINE__, #__VA_ARGS__, (__VA_ARGS__))
#define HOLDS(...)                                                    \
  do {                                                                \
    if (!(__VA_ARGS__)) wrong("line %d: %s", __LINE__, #__VA_ARGS__); \
  } while (0)

inline double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

inline int device_count() {
  int count = 0;
  CU(cuInit(0));
  CU(cuDeviceGetCount(&count));
  return count;
}

// The device's primary context, retained and current in this thread.
inline CUcontext use_primary(int ordinal = 0) {
  CUcontext context;
  CU(cuInit(0));
  CU(cuDevicePrimaryCtxRetain(&context, ordinal));
  CU(cuCtxSetCurrent(context));
  return context;
}

// A further context of the device, current in this thread.
inline CUcontext new_context(CUdevice device = 0) {
  CUcontext made;
#if CUDA_VERSION >= 13000
  CU(cuCtxCreate(&made, nullptr, 0, device));
#else
  CU(cuCtxCreate(&made, 0, device));
#endif
  return made;
}

inline CUmodule load_kernels() {
  CUmodule module;
  CU(cuModuleLoadData(&module, kernels_ptx));
  return module;
}

inline CUfunction kernel_of(CUmodule module, const char* name) {
  CUfunction function;
  CU(cuModuleGetFunction(&function, module, name));
  return function;
}

// Independent of the legacy default stream.
inline CUstream make_stream() {
  CUstream stream;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  return stream;
}

inline CUevent make_event() {
  CUevent event;
  CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  return event;
}

inline CUdeviceptr device_memory(size_t bytes) {
  CUdeviceptr memory;
  CU(cuMemAlloc(&memory, bytes));
  return memory;
}

// Ends the graph.
inline CUgraphExec instantiate(CUgraph graph) {
  CUgraphExec exec;
  CU(cuGraphInstantiate(&exec, graph, 0));
  CU(cuGraphDestroy(graph));
  return exec;
}

inline CUDA_KERNEL_NODE_PARAMS one_thread(CUfunction function, void** parameters) {
  CUDA_KERNEL_NODE_PARAMS kernel{};
  kernel.func = function;
  kernel.gridDimX = kernel.gridDimY = kernel.gridDimZ = 1;
  kernel.blockDimX = kernel.blockDimY = kernel.blockDimZ = 1;
  kernel.kernelParams = parameters;
  return kernel;
}

// A node of one thread of `function`, behind the nodes `before`.
template <typename... Values>
CUgraphNode add_kernel(CUgraph graph, const CUgraphNode* before, size_t count, CUfunction function,
                       Values... values) {
  void* parameters[] = {&values..., nullptr};
  const CUDA_KERNEL_NODE_PARAMS kernel = one_thread(function, parameters);
  CUgraphNode node;
  CU(cuGraphAddKernelNode(&node, graph, before, count, &kernel));
  return node;
}

// One thread of `function`.
template <typename... Values>
CUresult launch(CUfunction function, CUstream stream, Values... values) {
  void* parameters[] = {&values..., nullptr};
  return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr);
}

inline unsigned microseconds(double seconds) { return static_cast<unsigned>(seconds * 1e6); }
