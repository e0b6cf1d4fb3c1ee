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
  const char* file();                       // a file that holds the kernels
  void** parameters();                      // of function()

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
  bool can() const { return phase_ != Phase::kBeforeInit; }
  uint64_t& slot(const char* name) { return objects_[name]; }

  Phase phase_ = Phase::kBeforeInit;
  CUcontext context_ = nullptr;
  CUstream captured_ = nullptr;
  std::map<std::string, uint64_t> objects_;
  std::string file_;
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

const char* image();  // the kernels, as PTX
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
