// What the generated cases of the conformance program "answers" share: how a case is described, and
// a world of valid objects that their arguments come from.
//
// Every supported function is called rightly once and then wrongly in one argument at a time. Each
// call prints one line, "function case: RESULT values", without addresses, times and ids, so that
// the lines of two drivers can be compared. The program itself links no driver: it opens
// libcuda.so.1.
#pragma once

// All ABI variants, as they are exported.
// NOLINTBEGIN(bugprone-reserved-identifier): the names are cuda.h's
#define __CUDA_API_VERSION_INTERNAL 1
#define __CUDA_API_VERSION_INTERNAL_ODR 1
// NOLINTEND(bugprone-reserved-identifier)
#include <cuda.h>
#include <cudaProfiler.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <type_traits>

namespace answers {

// When a case runs. One process takes a function's cases in this order. kDuringCapture, which runs
// by itself: the right call while a stream is being captured.
enum class Phase { kBeforeInit, kWithoutContext, kWithContext, kDuringCapture };

// The address of a symbol of the driver; null when it does not export it.
void* symbol(const char* name);
template <typename Fn>
Fn entry(const char* name) {
  return reinterpret_cast<Fn>(symbol(name));
}

// How a stream is captured while a function is called: the stream is the one that the call has, if
// it has one, or another one; the thread that calls is the one that captures, or another one.
struct Capture {
  const char* name;
  CUstreamCaptureMode mode;
  bool same_stream;
  bool same_thread;
};
extern const Capture kCaptures[8];

class Line;

// Valid objects, made when a case first asks for one, in a context of their own on device 0. Before
// cuInit, and when something cannot be made, objects are null. One thread.
class World {
 public:
  void start(Phase phase);
  // Before a case: with `fresh`, objects are made anew instead of being shared with earlier cases.
  void prepare(bool fresh);
  // After the arguments were made: the phase without a context takes it away.
  void leave();
  // What a synchronising call says after a case.
  CUresult synchronise();
  // Around a call. The end says whether the capture still stands and how many nodes it has made.
  void begin_capture(const Capture& capture);
  void end_capture(Line& line);
  CUstream captured_stream() { return captured_; }  // since begin_capture()
  // Removes what is left in the file system.
  void finish();

  CUdevice device() { return 0; }
  CUcontext context();
  CUstream stream();
  CUevent event();  // recorded
  CUmodule module();
  CUfunction function();  // "fill" of tests/conformance/kernels.h
  CUlibrary library();
  CUkernel kernel();
  CUlinkState link();
  CUarray array();            // 64 x 16 floats, for surfaces too
  CUmipmappedArray mipmap();  // 64 x 16 floats, four levels
  CUtexObject texture();      // of array()
  CUsurfObject surface();     // of array()
  CUgraph graph();            // of node()
  CUgraph other_graph();      // empty
  CUgraphNode node();         // does nothing
  CUgraphExec exec();         // of graph()
  CUuserObject user_object();
  CUmemoryPool pool();
  CUmemoryPool default_pool();
  CUdeviceptr memory();                     // 1 MiB, all bytes 1
  CUdeviceptr pool_memory();                // of the default pool
  void* pinned();                           // 64 KiB by cuMemHostAlloc, mapped
  void* registered();                       // 64 KiB by cuMemHostRegister
  void* pageable();                         // 64 KiB
  CUdeviceptr reserved();                   // 2 MiB of addresses without memory
  CUdeviceptr mapped();                     // 2 MiB of memory by cuMemMap, with access
  CUmemGenericAllocationHandle physical();  // 2 MiB
  CUdeviceptr managed();                    // 64 KiB by cuMemAllocManaged
  CUstream capturing();                     // with a capture that has begun; while one is
                                            // captured anyway: stream()

  // A graph with a node of each of these kinds, what is made of it, and parameters like theirs
  // (world_graphs.cc). The exec is of the nodes that there are when it is first asked for.
  CUgraph full_graph();
  CUgraphExec full_exec();
  CUgraph clone();  // of graph()
  CUgraphNode kernel_node();
  CUgraphNode memcpy_node();
  CUgraphNode memset_node();
  CUgraphNode host_node();
  CUgraphNode child_node();
  CUgraphNode record_node();
  CUgraphNode wait_node();
  CUgraphNode batch_node();
  CUgraphNode second_node();  // of graph(), without edges
  CUgraphNode last_node();    // of graph(), behind node()
  CUgraph memory_graph();     // of alloc_node() and free_node()
  CUgraphNode alloc_node();
  CUgraphNode free_node();
  CUdeviceptr graph_memory();  // of alloc_node()
  CUgraphConditionalHandle conditional();
  template <typename Params>
  void describe_kernel(const Params* params) {
    auto* p = const_cast<Params*>(params);
    p->func = function();
    p->gridDimX = p->gridDimY = p->gridDimZ = p->blockDimY = p->blockDimZ = 1;
    p->blockDimX = 4;
    p->kernelParams = parameters();
  }
  template <typename Params>
  void describe_memset(const Params* params) {
    auto* p = const_cast<Params*>(params);
    p->dst = memory() + 4096;
    p->elementSize = 4;
    p->value = 1;
    p->width = 16;
    p->height = 1;
  }
  template <typename Params>
  void describe_host(const Params* params) {
    const_cast<Params*>(params)->fn = [](void*) {};
  }
  template <typename Params>
  void describe_batch(const Params* params) {
    auto* p = const_cast<Params*>(params);
    p->ctx = context();
    p->count = 1;
    p->paramArray = out<CUstreamBatchMemOpParams>();
    p->paramArray->operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    p->paramArray->writeValue.address = memory() + 65536;
    p->paramArray->writeValue.value = 0x01010101;
  }
  template <typename Params>
  void describe_alloc(const Params* params) {
    auto* p = const_cast<Params*>(params);
    p->poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    p->poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    p->bytesize = 4096;
  }
  void describe_copy(const CUDA_MEMCPY3D* params);

  // Green contexts, shared memory, tiles, the log (world_shares.cc).
  CUdevResource resource();         // the multiprocessors of the device
  CUdevResourceDesc description();  // of resource()
  CUgreenCtx green();
  CUmemGenericAllocationHandle exportable();  // 2 MiB
  void* exported();                           // its descriptor
  CUmemoryPool exportable_pool();
  void* exported_pool();
  CUmemoryPool imported_pool();  // the same pool again
  CUdeviceptr exportable_pool_memory();
  CUarray sparse_array();
  CUmemGenericAllocationHandle tile_pool();  // 2 MiB
  CUmipmappedArray sparse_mipmap();
  CUarray deferred_array();  // without memory
  CUmipmappedArray deferred_mipmap();
  CUarray planes();        // of an image of three
  CUtexObject view();      // a texture of mipmap() that begins at level 1
  CUevent shared_event();  // for other processes
  CUevent green_event();   // of the context of green()
  // Of another process (world_other.cc).
  CUipcMemHandle foreign_memory();
  CUipcEventHandle foreign_event();
  CUdeviceptr opened_memory();
  CUlogsCallbackHandle log_callback();
  CUasyncCallbackHandle notification();
  const char* file();   // a file that holds the kernels
  void** parameters();  // of function()

  // States (world_states.cc). What is held goes on behind the call.
  CUstream busy_stream();       // waits
  CUevent busy_event();         // recorded in it
  void end_current();           // the current context is one that another thread has destroyed
  void break_context();         // a kernel has failed in the context
  CUfunction heavy_function();  // "heavy", with too many registers for 1024 threads
  CUgraph programmatic_graph();
  CUgraphNode first_programmatic_node();
  CUgraphNode programmatic_node();        // behind the first one, by a programmatic edge
  CUstream capturing_data();              // capturing() where the next node has such an edge
  CUgreenCtx capturing_green();           // green() while one of its streams is captured
  const char* file_of(long long number);  // file() with wrong_image(number)

  // A handle that was valid once.
  CUcontext destroyed(CUcontext);
  CUstream destroyed(CUstream);
  CUevent destroyed(CUevent);
  CUmodule destroyed(CUmodule);
  CUfunction destroyed(CUfunction);
  CUlibrary destroyed(CUlibrary);
  CUkernel destroyed(CUkernel);
  CUlinkState destroyed(CUlinkState);
  CUarray destroyed(CUarray);
  CUmipmappedArray destroyed(CUmipmappedArray);
  CUgraph destroyed(CUgraph);
  CUgraphNode destroyed(CUgraphNode);
  CUgraphExec destroyed(CUgraphExec);
  CUuserObject destroyed(CUuserObject);
  CUmemoryPool destroyed(CUmemoryPool);
  CUmemGenericAllocationHandle destroyed(CUmemGenericAllocationHandle);
  CUgreenCtx destroyed(CUgreenCtx);
  CUlogsCallbackHandle destroyed(CUlogsCallbackHandle);
  CUasyncCallbackHandle destroyed(CUasyncCallbackHandle);

  // Zeroed memory that lasts until the next case, large enough for any output here.
  template <typename T>
  T* out() {
    return static_cast<T*>(scratch());
  }
  // The same holding `value`.
  template <typename T>
  T* in(T value) {
    T* place = out<T>();
    std::memcpy(static_cast<void*>(place), &value, sizeof value);
    return place;
  }

 private:
  void* scratch();
  void release_busy();
  bool can() const { return phase_ != Phase::kBeforeInit; }
  uint64_t& slot(const char* name) { return objects_[name]; }

  Phase phase_ = Phase::kBeforeInit;
  CUcontext context_ = nullptr;
  CUstream captured_ = nullptr;
  std::map<std::string, uint64_t> objects_;
  std::string file_;
  bool file_written_ = false;
};

// A value that no driver gave out.
template <typename Handle>
Handle garbage() {
  if constexpr (std::is_pointer_v<Handle>) {
    return reinterpret_cast<Handle>(0x7777000);
  } else {
    return 0x7777000;
  }
}

// One or several calls with one argument changed: `first` to `last`, or with `bits` each power of
// two and all bits. The name may hold a place for the value, as printf has it.
template <typename Args>
struct Case {
  const char* name;
  Phase phase;
  long long first;
  long long last;
  bool bits;
  void (*change)(World&, Args&, long long);  // null: nothing is changed
};

// `call` on a thread of its own, with the caller's context.
CUresult on_another_thread(const std::function<CUresult()>& call);

// The values of a call, as they are printed.
class Line {
 public:
  void number(const char* name, long long value);
  void text(const char* name, const char* value);
  void presence(const char* name, bool there);
  template <typename T>
  void value(const char* name, const T* place) {
    if (place == nullptr) return;
    if constexpr (std::is_pointer_v<T>) {
      presence(name, *place != nullptr);
    } else {
      number(name, static_cast<long long>(*place));
    }
  }
  const std::string& values() const { return values_; }

 private:
  std::string values_;
};

// Runs the cases of one function and prints their lines. `next` counts cases; the first `skip` of
// them are not called, nor those in `left_out`.
class Runner {
 public:
  virtual ~Runner() = default;
  // False: this case is not to be called.
  virtual bool begin(const std::string& name) = 0;
  virtual void end(const std::string& name, CUresult result, const Line& line) = 0;
  virtual void missing() = 0;
  World& world() { return world_; }

 protected:
  World world_;
};

struct Function {
  const char* name;
  bool fresh;
  void (*run)(Runner& runner, Phase phase, bool fresh);
};
extern const Function kFunctions[];
extern const size_t kFunctionCount;
const char* result_name(CUresult result);

// Images that cannot be loaded: 0 empty, 1 zeros, 2 text, 3 half a program, 4 a wrong instruction,
// 5 a target to come, 6 a version to come, 7 an unresolved call, 8 and 9 machine code of other
// GPUs, 10 a variable of 256 GiB.
const char* wrong_image(long long number);
// What the other process does; returns its exit code.
int give_handles();

const char* image();  // the kernels, as PTX
// Ends the capture of a stream, and says whether it still stood and how many nodes it has made.
void end_capture(CUstream stream, Line& line);
// The device of an advice, as either version of the call has it.
template <typename Args>
void set_device(Args& args, int device) {
  if constexpr (requires { args.location; }) {
    args.location.id = device;
  } else {
    args.device = device;
  }
}
// Calls a function of the driver by the name of its symbol.
template <typename... Args>
CUresult call(const char* name, Args... args) {
  const auto function = entry<CUresult (*)(Args...)>(name);
  return function == nullptr ? CUDA_ERROR_NOT_FOUND : function(args...);
}
// The same for what a case needs: it says so when there is an error.
bool succeeded(const char* name, CUresult result);
template <typename... Args>
bool need(const char* name, Args... args) {
  return succeeded(name, call(name, args...));
}
void show_pointer_attribute(CUpointer_attribute attribute, const void* data, Line& line);

std::string case_name(const char* name, long long value);

template <typename Args, size_t kCount>
void run_cases(Runner& runner, Phase phase, bool fresh, const Case<Args> (&cases)[kCount],
               void (*good)(World&, Args&), CUresult (*call)(const Args&),
               void (*show)(const Args&, Line&)) {
  for (const auto& one : cases) {
    if (one.phase != phase) continue;
    const auto run = [&](long long value) {
      const std::string name = case_name(one.name, value);
      if (!runner.begin(name)) return;
      Args args{};
      runner.world().prepare(fresh);
      good(runner.world(), args);
      if (one.change != nullptr) one.change(runner.world(), args, value);
      runner.world().leave();
      const CUresult result = call(args);
      Line line;
      if (result == CUDA_SUCCESS) show(args, line);
      runner.end(name, result, line);
    };
    if (one.bits) {
      for (int bit = 0; bit < 32; ++bit) run(1ll << bit);
      run(0xffffffffll);
    } else {
      for (long long value = one.first; value <= one.last; ++value) run(value);
    }
  }
}

// `captured`: changes the arguments when the capture has begun; null: nothing. `ends`: the call may
// end the stream or its context, which is not asked afterwards.
template <typename Args>
void run_captures(Runner& runner, void (*good)(World&, Args&), void (*captured)(World&, Args&),
                  CUresult (*call)(const Args&), bool ends) {
  for (const Capture& capture : kCaptures) {
    if (!runner.begin(capture.name)) continue;
    Args args{};
    runner.world().prepare(true);
    good(runner.world(), args);
    runner.world().begin_capture(capture);
    if (captured != nullptr) captured(runner.world(), args);
    const CUresult result =
        capture.same_thread ? call(args) : on_another_thread([&] { return call(args); });
    Line line;
    if (!ends) runner.world().end_capture(line);
    runner.end(capture.name, result, line);
  }
}

}  // namespace answers
