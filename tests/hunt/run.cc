#include "tests/hunt/run.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <random>
#include <shared_mutex>
#include <thread>

#include "tests/hunt/buffers.h"
#include "tests/hunt/call.h"
#include "tests/hunt/graphs.h"

extern "C" const char kernels_ptx[];  // tests/orderings/kernels.cu

namespace fargpu::hunt {
namespace {

constexpr size_t kMostThreads = 8;
std::array<std::atomic<int>, kMostThreads> positions;  // by thread: its operation, -1: none

class Run;
struct HostCall {
  Run* run;
  size_t operation;
};

class Run {
 public:
  Run(const Device& device, const Program& program, const Allowed& allowed, Mistake mistake,
      Meeting* meeting, int process)
      : device_(device),
        program_(program),
        allowed_(allowed),
        mistake_(mistake),
        meeting_(program.processes == 2 ? meeting : nullptr),
        process_(process),
        buffers_(program, process, mistake),
        graphs_(device, program, allowed, buffers_, events_, process, mistake,
                [this](const std::string& why) { fail(why); }),
        tokens_(static_cast<size_t>(program.tokens)) {
    if (tokens_.size() > SharedPage::kMostTokens || program.buffers.size() > SharedPage::kMost)
      throw Failure("a program with more than two processes can share");
  }

  std::string run() {
    try {
      make();
      std::vector<std::thread> threads;
      for (int i = 0; i < program_.threads; ++i) {
        if (program_.process_of(i) == process_) threads.emplace_back([this, i] { work(i); });
      }
      for (std::thread& thread : threads) thread.join();
      CU(cuCtxSetCurrent(device_.context));
      CU(cuCtxSynchronize());
      if (part()) unmake();
    } catch (const Failure& failure) {
      fail(std::string("making or ending: ") + failure.what());
    }
    std::lock_guard lock(mutex_);
    if (failure_.empty() && meeting_ != nullptr && meeting_->failed())
      return meeting_->page().failure.data();
    return failure_;
  }

 private:
  void fail(const std::string& why) {
    std::lock_guard lock(mutex_);
    if (!failure_.empty()) return;
    failure_ = why;
    if (meeting_ == nullptr) return;
    meeting_->fail((process_ == 0 ? "first process: " : "second process: ") + why);
  }
  bool failed() {
    std::lock_guard lock(mutex_);
    return !failure_.empty() || (meeting_ != nullptr && meeting_->failed());
  }

  void make() {
    CU(cuCtxSetCurrent(device_.context));
    buffers_.make();
    graphs_.make();
    streams_.resize(static_cast<size_t>(program_.streams));
    for (size_t i = 0; i < streams_.size(); ++i) {
      if (owns_stream(i)) make_stream(i);
    }
    events_.resize(static_cast<size_t>(program_.events));
    for (size_t i = 0; i < events_.size(); ++i) {
      if (!owns_event(i)) continue;
      CU(cuEventCreate(&events_[i], CU_EVENT_DISABLE_TIMING |
                                        (program_.event_shared[i] ? CU_EVENT_INTERPROCESS : 0)));
    }
    if (meeting_ != nullptr) share();
    CU(cuCtxSynchronize());
    if (meeting_ != nullptr) meeting_->meet(2);
  }

  bool owns_stream(size_t i) const {
    return !program_.is_legacy(static_cast<int>(i)) && program_.stream_process[i] == process_;
  }
  bool owns_event(size_t i) const { return program_.event_process[i] == process_; }
  bool opens_event(size_t i) const { return !owns_event(i) && program_.event_shared[i]; }

  void share() {
    SharedPage& page = meeting_->page();
    buffers_.share(page);
    for (size_t i = 0; i < events_.size(); ++i) {
      if (owns_event(i) && program_.event_shared[i])
        CU(cuIpcGetEventHandle(&page.events[i], events_[i]));
    }
    meeting_->meet(1);
    if (meeting_->failed()) throw Failure("the other process has failed");
    buffers_.open_shared(page);
    for (size_t i = 0; i < events_.size(); ++i) {
      if (opens_event(i)) CU(cuIpcOpenEventHandle(&events_[i], page.events[i]));
    }
  }

  // From the other process, of which nothing is used any more. False: nothing is to be freed.
  bool part() {
    if (meeting_ == nullptr) return true;
    meeting_->meet(3);
    const bool leaves = program_.leaves && process_ == 1;
    if (!leaves) {
      buffers_.close_shared();
      for (size_t i = 0; i < events_.size(); ++i) {
        if (opens_event(i)) CU(cuEventDestroy(events_[i]));
      }
    }
    meeting_->meet(4);
    if (program_.leaves && process_ == 0) {
      meeting_->await_end();
      if (!failed()) buffers_.use_again();
    }
    return !leaves;
  }

  void make_stream(size_t i) {
    CU(cuStreamCreate(&streams_[i], program_.blocking[i] ? 0 : CU_STREAM_NON_BLOCKING));
  }

  void unmake() {
    for (size_t i = 0; i < streams_.size(); ++i) {
      if (owns_stream(i)) CU(cuStreamDestroy(streams_[i]));
    }
    for (size_t i = 0; i < events_.size(); ++i) {
      if (owns_event(i)) CU(cuEventDestroy(events_[i]));
    }
    graphs_.unmake();
    buffers_.unmake();
  }

  void work(int thread) {
    try {
      CU(cuCtxSetCurrent(device_.context));
    } catch (const Failure& failure) {
      fail(failure.what());
    }
    for (size_t i = 0; i < program_.operations.size(); ++i) {
      const Operation& operation = program_.operations[i];
      if (operation.thread != thread || !program_.kept[i]) continue;
      positions[static_cast<size_t>(thread)] = static_cast<int>(i);
      try {
        // After a failure threads only let each other go.
        if (operation.kind == Kind::kPost)
          token(operation.token) = true;
        else if (operation.kind == Kind::kAwait)
          await(i);
        else if (!failed())
          execute(i);
      } catch (const Failure& failure) {
        fail(describe(program_, i) + ": " + failure.what());
      }
    }
    positions[static_cast<size_t>(thread)] = -1;
  }

  // A token that nobody posts, in a shrunk program, is no reason to wait.
  void await(size_t i) {
    const int token = program_.operations[i].token;
    bool posted = false;
    for (size_t j = 0; j < i; ++j) {
      const Operation& other = program_.operations[j];
      posted |= program_.kept[j] && other.kind == Kind::kPost && other.token == token;
    }
    for (int spins = 0; posted && !this->token(token) && !failed_elsewhere(); ++spins) {
      if (spins < 1000) {
        std::this_thread::yield();
        continue;
      }
      std::this_thread::sleep_for(std::chrono::microseconds(100));
      if (meeting_ != nullptr && spins % 100 == 0) meeting_->look_after_other();
    }
  }
  bool failed_elsewhere() const { return meeting_ != nullptr && meeting_->failed(); }

  std::atomic<bool>& token(int number) {
    const auto i = static_cast<size_t>(number);
    return meeting_ == nullptr ? tokens_[i] : meeting_->page().tokens[i];
  }

  bool skips_wait(const Operation& operation) const {
    return mistake_ == Mistake::kWaits ||
           (mistake_ == Mistake::kShared &&
            program_.event_shared[static_cast<size_t>(operation.event)]);
  }

  CUstream stream_of(const Operation& operation) const {
    return streams_[static_cast<size_t>(operation.stream)];
  }

  template <typename... Values>
  void launch(CUfunction function, unsigned threads, CUstream stream, Values... values) {
    void* parameters[] = {&values..., nullptr};
    CU(cuLaunchKernel(function, 1, 1, 1, threads, 1, 1, 0, stream, parameters, nullptr));
  }

  void execute(size_t i) {
    const Operation& operation = program_.operations[i];
    const CUstream stream = stream_of(operation);
    const auto event = [&] { return events_[static_cast<size_t>(operation.event)]; };
    const Place &to = operation.to, &from = operation.from;
    // While a thread captures, no other one does what would end the capture.
    std::shared_lock<std::shared_mutex> beside_captures;
    std::unique_lock<std::shared_mutex> captures;
    if (graphs_.captures(operation))
      captures = std::unique_lock(capture_);
    else if (ends_captures(operation))
      beside_captures = std::shared_lock(capture_);
    switch (operation.kind) {
      case Kind::kFill:
        launch(device_.fill, 32, stream, buffers_.address(to), operation.value, buffers_.words(to));
        break;
      case Kind::kKernelCopy:
        launch(device_.copy, 32, stream, buffers_.address(to), buffers_.address(from),
               buffers_.words(to));
        break;
      case Kind::kMemset:
        CU(cuMemsetD32Async(buffers_.address(to), operation.value, buffers_.words(to), stream));
        break;
      case Kind::kCopyAsync:
        CU(cuMemcpyAsync(buffers_.address(to), buffers_.address(from),
                         size_t{4} * buffers_.words(to), stream));
        break;
      case Kind::kCopy:
        CU(cuMemcpy(buffers_.address(to), buffers_.address(from), size_t{4} * buffers_.words(to)));
        break;
      case Kind::kCopy2D:
        copy_rows(operation);
        break;
      case Kind::kHostWrite:
        buffers_.write(to, operation.value);
        break;
      case Kind::kHostRead:
        check(i);
        break;
      case Kind::kHostFunction: {
        HostCall* call = nullptr;
        {
          std::lock_guard lock(mutex_);
          call = &host_calls_.emplace_back(HostCall{this, i});
        }
        CU(cuLaunchHostFunc(stream, host_function, call));
        break;
      }
      case Kind::kSpin:
        launch(device_.spin, 1, stream, operation.value);
        break;
      case Kind::kRecord:
        CU(cuEventRecord(event(), stream));
        break;
      case Kind::kWaitEvent:
        if (!skips_wait(operation)) CU(cuStreamWaitEvent(stream, event(), 0));
        break;
      case Kind::kEventSync:
        if (!skips_wait(operation)) CU(cuEventSynchronize(event()));
        break;
      case Kind::kStreamSync:
        CU(cuStreamSynchronize(stream));
        break;
      case Kind::kContextSync:
        CU(cuCtxSynchronize());
        break;
      case Kind::kNewStream:
        CU(cuStreamDestroy(stream));
        make_stream(static_cast<size_t>(operation.stream));
        break;
      case Kind::kNewEvent:
        CU(cuEventDestroy(event()));
        CU(cuEventCreate(&events_[static_cast<size_t>(operation.event)], CU_EVENT_DISABLE_TIMING));
        break;
      case Kind::kLoad:
        load_image(operation.value);
        break;
      case Kind::kScratch:
        scratch(stream, operation.value);
        break;
      case Kind::kSideContext:
        side_context(operation.value);
        break;
      case Kind::kInstantiate:
        graphs_.instantiate(i);
        break;
      case Kind::kLaunch:
        graphs_.launch(i, stream);
        break;
      case Kind::kUpload:
        graphs_.upload(i, stream);
        break;
      case Kind::kSetParams:
        graphs_.set_params(i);
        break;
      case Kind::kUpdate:
        graphs_.update(i);
        break;
      case Kind::kDropGraph:
        graphs_.drop(i);
        break;
      case Kind::kPost:
      case Kind::kAwait:
        break;
    }
  }

  bool ends_captures(const Operation& operation) const {
    switch (operation.kind) {
      case Kind::kCopy:
      case Kind::kCopy2D:
      case Kind::kContextSync:
      case Kind::kLoad:
      case Kind::kScratch:
      case Kind::kSideContext:
      case Kind::kNewStream:
        return true;
      case Kind::kHostRead:
      case Kind::kHostWrite:
      case Kind::kEventSync:
        return false;
      default:
        return program_.is_legacy(operation.stream);
    }
  }

  void copy_rows(const Operation& operation) {
    CUDA_MEMCPY2D copy{};
    copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
    copy.srcDevice = buffers_.address(operation.from);
    copy.dstDevice = buffers_.address(operation.to);
    copy.srcPitch = operation.from.stride * buffers_.segment_bytes(operation.from);
    copy.dstPitch = operation.to.stride * buffers_.segment_bytes(operation.to);
    copy.WidthInBytes = buffers_.segment_bytes(operation.to);
    copy.Height = operation.to.count;
    CU(cuMemcpy2D(&copy));
  }

  void check(size_t i) {
    const std::string wrong = buffers_.check(program_.operations[i].from, allowed_[i]);
    if (!wrong.empty()) fail(describe(program_, i) + ": " + wrong);
  }

  static void CUDA_CB host_function(void* data) {
    const HostCall& call = *static_cast<HostCall*>(data);
    const Operation& operation = call.run->program_.operations[call.operation];
    if (operation.value % 4 == 0)
      std::this_thread::sleep_for(std::chrono::microseconds(operation.value * 37 % 2000));
    std::this_thread::sleep_for(std::chrono::milliseconds(operation.hold));
    if (operation.reads)
      call.run->check(call.operation);
    else if (operation.to.buffer >= 0)
      call.run->buffers_.write(operation.to, operation.value);
  }

  // The same for all threads, unlike that of any other run.
  const std::string& image() {
    std::lock_guard lock(mutex_);
    if (image_.empty()) {
      std::mt19937_64 random(std::random_device{}());
      std::string padding = "\n";
      char line[64];
      for (int i = 0; i < 32000; ++i) {
        std::snprintf(line, sizeof line, "// %016llx%016llx\n",
                      static_cast<unsigned long long>(random()),
                      static_cast<unsigned long long>(random()));
        padding += line;
      }
      image_ = kernels_ptx;
      while (image_.size() < program_.image_bytes) image_ += padding;
    }
    return image_;
  }

  // A block of device memory that `function` fills, brought back and checked.
  void fill_and_check(CUfunction function, uint32_t value, CUstream stream) {
    constexpr uint32_t kWords = 64;
    CUdeviceptr memory = 0;
    CU(cuMemAlloc(&memory, kWords * 4));
    launch(function, 32, stream, memory, value, kWords);
    std::array<uint32_t, kWords> seen{};
    CU(cuMemcpyDtoHAsync(seen.data(), memory, sizeof seen, stream));
    CU(cuStreamSynchronize(stream));
    CU(cuMemFree(memory));
    for (const uint32_t word : seen) {
      if (word != value)
        throw Failure("a kernel wrote " + std::to_string(word) + ", not its value");
    }
  }

  void load_image(uint32_t value) {
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    CUstream stream = nullptr;
    const char* const text = image().c_str();
    std::this_thread::sleep_for(std::chrono::microseconds(value * 371 % 10000));
    CU(cuModuleLoadData(&module, text));
    CU(cuModuleGetFunction(&function, module, "fill_words"));
    CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    fill_and_check(function, value, stream);
    CU(cuStreamDestroy(stream));
    CU(cuModuleUnload(module));
  }

  // Memory freed while work that uses it may still run, as the driver allows: it waits.
  void scratch(CUstream stream, uint32_t value) {
    constexpr uint32_t kWords = 3000;
    void* host = nullptr;
    CUdeviceptr memory = 0;
    CU(cuMemAllocHost(&host, kWords * 4));
    auto* const words = static_cast<uint32_t*>(host);
    std::fill_n(words, kWords, value);
    CU(cuMemAlloc(&memory, kWords * 4));
    CU(cuMemcpyHtoDAsync(memory, host, kWords * 4, stream));
    std::vector<uint32_t> seen(kWords);
    CU(cuMemcpyDtoHAsync(seen.data(), memory, kWords * 4, stream));
    CU(cuMemcpyDtoHAsync(host, memory, kWords * 4, stream));
    CU(cuMemFree(memory));
    CU(cuStreamSynchronize(stream));
    const bool right =
        std::all_of(words, words + kWords, [=](uint32_t w) { return w == value; }) &&
        std::all_of(seen.begin(), seen.end(), [=](uint32_t w) { return w == value; });
    CU(cuMemFreeHost(host));
    if (!right) throw Failure("scratch memory came back changed");
  }

  void side_context(uint32_t value) {
    CUcontext context = nullptr;
#if CUDA_VERSION >= 13000
    CU(cuCtxCreate(&context, nullptr, 0, 0));
#else
    CU(cuCtxCreate(&context, 0, 0));
#endif
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    CUstream stream = nullptr;
    CU(cuModuleLoadData(&module, kernels_ptx));
    CU(cuModuleGetFunction(&function, module, "fill_words"));
    CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    fill_and_check(function, value, stream);
    if (value % 2 == 0) {  // it goes while it works
      CUdeviceptr memory = 0;
      CU(cuMemAlloc(&memory, 4096));
      for (int i = 0; i < 20; ++i) launch(function, 32, stream, memory, value, uint32_t{1024});
    }
    CU(cuCtxDestroy(context));
    CU(cuCtxSetCurrent(device_.context));
  }

  const Device& device_;
  const Program& program_;
  const Allowed& allowed_;
  const Mistake mistake_;
  Meeting* const meeting_;  // null: there is one process
  const int process_;
  Buffers buffers_;
  std::vector<CUstream> streams_;
  std::vector<CUevent> events_;
  Graphs graphs_;
  std::shared_mutex capture_;
  std::vector<std::atomic<bool>> tokens_;
  std::mutex mutex_;
  std::string failure_;  // guarded by mutex_, like these
  std::deque<HostCall> host_calls_;
  std::string image_;
};

}  // namespace

Device open_device() {
  for (auto& position : positions) position = -1;
  try {
    Device device;
    CU(cuInit(0));
    CU(cuDevicePrimaryCtxRetain(&device.context, 0));
    CU(cuCtxSetCurrent(device.context));
    CUmodule module = nullptr;
    CU(cuModuleLoadData(&module, kernels_ptx));
    CU(cuModuleGetFunction(&device.fill, module, "fill_words"));
    CU(cuModuleGetFunction(&device.counted, module, "fill_counted"));
    CU(cuModuleGetFunction(&device.copy, module, "copy_words"));
    CU(cuModuleGetFunction(&device.spin, module, "spin"));
    return device;
  } catch (const Failure& failure) {
    std::fprintf(stderr, "error: %s\n", failure.what());
    std::exit(2);
  }
}

std::string run(const Device& device, const Program& program, const Allowed& allowed,
                Mistake mistake, Meeting* meeting, int process) {
  return Run(device, program, allowed, mistake, meeting, process).run();
}

void show_positions() {
  for (size_t thread = 0; thread < kMostThreads; ++thread) {
    const int position = positions[thread];
    if (position < 0) continue;
    char line[80];
    const int length = std::snprintf(line, sizeof line, "thread %d is in operation #%d\n",
                                     static_cast<int>(thread), position);
    (void)!::write(STDOUT_FILENO, line, static_cast<size_t>(length));
  }
}

}  // namespace fargpu::hunt
