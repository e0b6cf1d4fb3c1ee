#include "server/stream/completion.h"

#include <utility>

#include "server/stream/stream_events.h"
#include "server/stream/stream_holds.h"
#include "server/stream/told_streams.h"

namespace fargpu::server {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kAskEvery = std::chrono::microseconds(50);  // whether a context has failed

}  // namespace

Completion::~Completion() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    jobs_.clear();
    compilations_.clear();
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Completion::when(const UntilPassed& lifetime, Done done) {
  const auto [context, stream] = lifetime;
  // Without an event the stream's own state has to do; it also brings a sticky error of the context
  // to light. It is asked now only: by the next time the stream may be gone.
  CUevent event = nullptr;
  if (core_.events.record(context, stream, &event) != CUDA_SUCCESS) {
    const CUresult result = core_.driver.cuStreamQuery(stream);
    if (result == CUDA_ERROR_NOT_READY)
      return start(context, How::kWhenIdle, device_of(context), {}, std::move(done));
    core_.pending.add([result, done = std::move(done)]() mutable {
      done(result);
      return true;
    });
    return;
  }
  poll(core_.contexts.ref(context), event, /*ours=*/true, std::move(done));
}

// What a kernel printed comes out when the driver is asked, a green context's stream may not write
// what was registered in another one, and the legacy stream's work is that of all blocking streams.
bool Completion::word_says_all(const UntilPassed& lifetime) const {
  if (core_.driver.cuStreamWriteValue32_v2 == nullptr || words_ == kMaxWords ||
      core_.output.may_come() || core_.contexts.green(lifetime.context) != nullptr)
    return false;
  const bool is_default = reinterpret_cast<uint64_t>(lifetime.stream) <= kPerThreadStreamId;
  return !is_default || (streams_in(lifetime.context) == 0 &&
                         !core_.contexts.uses_per_thread_stream(lifetime.context));
}

CUresult Completion::ask_for_error(const ContextRef& context) {
  const CUresult result = core_.contexts.enter(context);
  return result == CUDA_SUCCESS ? core_.driver.cuStreamQuery(CU_STREAM_LEGACY) : result;
}

void Completion::when(const UntilPassed& lifetime, const StreamWord& word, Done done) {
  if (!word_says_all(lifetime) ||
      core_.driver.cuStreamWriteValue32_v2(lifetime.stream, word.device, word.value,
                                           CU_STREAM_WRITE_VALUE_DEFAULT) != CUDA_SUCCESS)
    return when(lifetime, std::move(done));
  told_streams_.will_write(lifetime, word);
  ++words_;
  core_.pending.add([this, word, context = core_.contexts.ref(lifetime.context),
                     ask_at = Clock::now() + kAskEvery, done = std::move(done)]() mutable {
    CUresult result = CUDA_SUCCESS;
    if (!word.is_written()) {
      if (Clock::now() < ask_at) return false;
      result = ask_for_error(context);
      // Neither of these says how far the stream is.
      if (result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY) {
        ask_at = Clock::now() + kAskEvery;
        return false;
      }
    }
    --words_;
    done(result);
    return true;
  });
}

void Completion::poll(const ContextRef& context, CUevent event, bool ours, Done&& done) {
  core_.pending.add([this, context, event, ours, done = std::move(done)]() mutable {
    CUresult result = core_.contexts.enter(context);
    if (result == CUDA_SUCCESS) {
      result = core_.driver.cuEventQuery(event);
      if (result == CUDA_ERROR_NOT_READY) return false;
      // Done already, so this does not wait: it makes the driver write out what kernels printed.
      if (result == CUDA_SUCCESS && core_.output.may_come())
        result = core_.driver.cuEventSynchronize(event);
      if (ours) core_.events.give_back(context.id, event);
    }
    done(result);
    return true;
  });
}

CUresult Completion::ask(uint16_t context) {
  for (const uint16_t green : core_.contexts.greens_of(context)) {
    if (const CUresult result = ask(green); result != CUDA_SUCCESS) return result;
  }
  const DriverTable& driver = core_.driver;
  CUresult result = core_.contexts.enter(context);
  if (result == CUDA_SUCCESS) result = driver.cuStreamQuery(CU_STREAM_LEGACY);
  // It would be made by the question. A green context has no such stream.
  if (result == CUDA_SUCCESS && core_.contexts.uses_per_thread_stream(context) &&
      core_.contexts.green(context) == nullptr)
    result = driver.cuStreamQuery(CU_STREAM_PER_THREAD);
  for (void* const stream : core_.handles.streams(context)) {
    if (result != CUDA_SUCCESS) break;
    result = driver.cuStreamQuery(static_cast<CUstream>(stream));
  }
  return result == CUDA_SUCCESS ? ask_ending(context) : result;
}

CUresult Completion::ask_ending(uint16_t context) {
  const auto found = ending_.find(context);
  if (found == ending_.end()) return CUDA_SUCCESS;
  for (const CUstream stream : found->second) {
    if (core_.driver.cuStreamQuery(stream) == CUDA_ERROR_NOT_READY) return CUDA_ERROR_NOT_READY;
  }
  return CUDA_SUCCESS;
}

CUresult Completion::stream_ends(uint16_t context, CUstream stream) {
  const DriverTable& driver = core_.driver;
  if (driver.cuStreamQuery(stream) != CUDA_ERROR_NOT_READY)
    return driver.cuStreamDestroy_v2(stream);
  ending_[context].push_back(stream);
  when(UntilPassed{context, stream}, [this, ref = core_.contexts.ref(context), stream](CUresult) {
    if (core_.contexts.enter(ref) != CUDA_SUCCESS) return;  // it went with its context
    const auto found = ending_.find(ref.id);
    std::erase(found->second, stream);
    if (found->second.empty()) ending_.erase(found);
    core_.driver.cuStreamDestroy_v2(stream);
  });
  return CUDA_SUCCESS;
}

size_t Completion::streams_in(uint16_t context) const {
  const auto found = ending_.find(context);
  return core_.handles.streams(context).size() +
         (found == ending_.end() ? 0 : found->second.size());
}

CUdevice Completion::device_of(uint16_t context) const {
  return context == 0 ? StreamHolds::kEveryDevice : core_.contexts.device_of(context);
}

void Completion::when_idle(uint16_t context, Done done) {
  if (streams_in(context) > kMaxPolledStreams)
    return start(context, How::kWhenIdle, device_of(context), {}, std::move(done));
  const auto last = std::chrono::steady_clock::now() + kPolledTime;
  core_.pending.add([this, context, last, done = std::move(done)]() mutable {
    const CUresult result = ask(context);
    // Only a graph that was launched in a stream of another context may still work in this one.
    if (result == CUDA_SUCCESS && core_.contexts.count() == 1) {
      // Nothing is left to wait for: it makes the driver write out what kernels printed.
      done(core_.driver.cuCtxSynchronize());
      return true;
    }
    // Also after an error, which may belong to a single stream (a capture): only the driver's own
    // wait shows what it means for the context.
    if (result == CUDA_ERROR_NOT_READY && std::chrono::steady_clock::now() < last) return false;
    start(context, How::kWhenIdle, device_of(context), {}, std::move(done));
    return true;
  });
}

void Completion::off_thread(uint16_t context, Call call, Done done) {
  start(context, How::kAtOnce, StreamHolds::kEveryDevice, std::move(call), std::move(done));
}

void Completion::off_thread_exclusive(uint16_t context, CUdevice device, Call call, Done done) {
  start(context, How::kAlone, device, std::move(call), std::move(done));
}

void Completion::off_thread_when_idle(uint16_t context, Call call, Done done) {
  start(context, How::kWhenIdle, device_of(context), std::move(call), std::move(done));
}

void Completion::compile(uint16_t context, CUdevice device, Call call, Done done) {
  const How how = device == kNoDevice ? How::kAtOnce : How::kAlone;
  start(context, how, device, std::move(call), std::move(done), /*compiles=*/true);
}

void Completion::queue(Job job) {
  jobs_.push_back(std::move(job));
  if (idle_threads_ < jobs_.size() && threads_.size() < kMaxThreads)
    threads_.emplace_back([this] { run(); });
}

void Completion::start(uint16_t context, How how, CUdevice device, Call call, Done done,
                       bool compiles) {
  const CUcontext handle = context == 0 ? nullptr : core_.contexts.find(context);
  if (handle == nullptr && (context != 0 || !call)) {
    done(CUDA_ERROR_INVALID_CONTEXT);
    return;
  }
  {
    std::lock_guard lock(mutex_);
    Job job{handle, how, device, std::move(call), std::move(done), compiles};
    queued_ = jobs_.size() + compilations_.size();
    if (compiles && compiling_ == kMaxCompilations) {
      compilations_.push_back(std::move(job));
      return;
    }
    compiling_ += compiles ? 1 : 0;
    queue(std::move(job));
  }
  changed_.notify_one();
}

void Completion::run() {
  for (;;) {
    Job job;
    {
      std::unique_lock lock(mutex_);
      ++idle_threads_;
      changed_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
      --idle_threads_;
      if (stopping_) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    const CUresult result = execute(job);
    job.call = {};
    if (job.compiles) {
      std::lock_guard lock(mutex_);
      --compiling_;
      if (!compilations_.empty()) {
        ++compiling_;
        jobs_.push_back(std::move(compilations_.front()));  // for this thread, or one that is idle
        compilations_.pop_front();
      }
    }
    core_.posted.post([done = std::move(job.done), result]() mutable { done(result); });
  }
}

CUresult Completion::execute(const Job& job) {
  const DriverTable& driver = core_.driver;
  CUresult result = driver.cuCtxSetCurrent(job.context);
  // It has ended. The call must not be made in whatever context this thread had before.
  if (result == CUDA_ERROR_INVALID_CONTEXT || result == CUDA_ERROR_CONTEXT_IS_DESTROYED)
    return result;
  if (result == CUDA_SUCCESS && job.how == How::kWhenIdle && job.context != nullptr)
    result = driver.cuCtxSynchronize();
  if (!job.call) return result;
  // An error of earlier work is for the call to report, as it does natively.
  if (job.how == How::kAtOnce) return job.call();
  if (!holds_.begin_call(job.device)) return CUDA_ERROR_DEINITIALIZED;
  result = job.call();
  holds_.end_call(job.device);
  return result;
}

size_t Completion::calls_under_way() {
  std::lock_guard lock(mutex_);
  return jobs_.size() + compilations_.size() + threads_.size() - idle_threads_;
}

void Completion::context_ended(const ContextEnd& end) {
  ending_.erase(end.id);  // they go with it
}

}  // namespace fargpu::server
