#include "sim/context/context.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "sim/base/program_report.h"
#include "sim/context/capture.h"
#include "sim/context/current.h"
#include "sim/context/green_context.h"
#include "sim/driver/device.h"
#include "sim/driver/driver.h"

namespace fargpu::sim {
namespace {

uint64_t next_id() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1);
}

}  // namespace

std::shared_ptr<Context> Context::create(Device& device, unsigned flags, bool primary) {
  const Settings& settings = Driver::get().settings();
  if (settings.context_bytes != 0 && !device.memory().charge(settings.context_bytes))
    return nullptr;
  Driver::get().contexts().fetch_add(1);
  std::shared_ptr<Context> context(new Context(device, flags, primary));
  context->legacy_ =
      std::make_shared<Stream>(context, StreamRole::kLegacy, CU_STREAM_DEFAULT, 0, next_id());
  return context;
}

Context::Context(Device& device, unsigned flags, bool primary)
    : device_(device),
      id_(next_id()),
      primary_(primary),
      flags_(flags),
      channels_(Driver::get().settings().connections) {
  memory_ = std::make_shared<ContextMemory>(Driver::get().allocations(), device.memory(),
                                            device.ordinal(), id_);
  limits_[CU_LIMIT_STACK_SIZE] = 1024;
  limits_[CU_LIMIT_PRINTF_FIFO_SIZE] = size_t{1} << 20;
  limits_[CU_LIMIT_MALLOC_HEAP_SIZE] = size_t{8} << 20;
  limits_[CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH] = 2;
  limits_[CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048;
  limits_[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64;
  limits_[CU_LIMIT_SHMEM_SIZE] =
      static_cast<size_t>(device.attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN));
}

void Context::fail(CUresult error, std::string_view text) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (error_.load() != CUDA_SUCCESS) return;
  report_to_program(text);  // who sees the error may end the process at once
  error_.store(error);
}

std::shared_ptr<Stream> Context::per_thread_stream() {
  std::lock_guard lock(submit_mutex_);
  auto& stream = per_thread_[this_thread_number()];
  if (!stream) {
    stream = std::make_shared<Stream>(weak_from_this(), StreamRole::kPerThread, CU_STREAM_DEFAULT,
                                      0, next_id());
    streams_.push_back(stream);
  }
  return stream;
}

std::shared_ptr<Stream> Context::create_stream(unsigned flags, int priority,
                                               std::shared_ptr<GreenContext> green) {
  auto stream = std::make_shared<Stream>(weak_from_this(), StreamRole::kCreated, flags, priority,
                                         next_id(), std::move(green));
  std::lock_guard lock(submit_mutex_);
  prune_streams();
  streams_.push_back(stream);
  return stream;
}

// A destroyed stream with work left stays in the list until it is idle: the legacy stream must
// still wait for it.
void Context::forget_stream(const std::shared_ptr<Stream>& stream) {
  std::lock_guard lock(submit_mutex_);
  stream->retired = true;
  prune_streams();
}

void Context::prune_streams() {
  std::erase_if(streams_,
                [](const auto& stream) { return stream->retired && !pending(stream->last); });
}

std::vector<Fence> Context::ahead_of(const Stream& stream, std::vector<Fence> extra) const {
  extra.insert(extra.end(), gates_.begin(), gates_.end());
  if (stream.green)
    extra.insert(extra.end(), stream.green->gates.begin(), stream.green->gates.end());
  std::erase_if(extra, [](const Fence& fence) { return !pending(fence); });
  if (stream.role == StreamRole::kLegacy) {
    for (const auto& other : streams_) {
      if (other->blocking() && pending(other->last)) extra.push_back(other->last);
    }
  } else if (stream.blocking() && pending(legacy_->last)) {
    extra.push_back(legacy_->last);
  }
  return extra;
}

Fence Context::submit(const std::shared_ptr<Stream>& stream, std::function<void()> run,
                      std::vector<Fence> extra) {
  return push(*stream, Task{std::move(run), std::move(extra), nullptr});
}

Fence Context::submit_made(const std::shared_ptr<Stream>& stream, const Make& make,
                           std::vector<Fence> extra) {
  std::lock_guard lock(submit_mutex_);
  return make_locked(*stream, make, Task{nullptr, std::move(extra), nullptr});
}

void Context::submit_to_device(const std::shared_ptr<Stream>& stream, std::function<void()> run,
                               size_t bytes, ChannelKind kind) {
  const bool is_legacy = stream->role == StreamRole::kLegacy;
  const size_t turns =
      !is_legacy && stream->blocking() && take_legacy_function() ? size_t{1} : size_t{0};
  const QueuePlace place = stream->queue->take_place(bytes, 1, turns);
  std::lock_guard lock(submit_mutex_);
  Task task{std::move(run), {}, nullptr, place};
  if (kind != ChannelKind::kNone) channels_.take(&task, kind, &stream->channels);
  const Fence done = push_locked(*stream, std::move(task));
  if (is_legacy) note_legacy_work(done);
}

void Context::note_legacy_work(const Fence& done) {
  legacy_work_ = done;
  legacy_function_ = nullptr;
}

bool Context::take_legacy_function() {
  std::lock_guard lock(submit_mutex_);
  return pending(std::exchange(legacy_function_, nullptr));
}

void Context::submit_host_function(const std::shared_ptr<Stream>& stream,
                                   std::function<void()> run) {
  if (Driver::get().settings().stream_waits) const std::lock_guard is_free(functions_mutex_);
  QueuePlace place;
  if (turns_beside_legacy(*stream, {.count = 1, .alone = true}) > 0)
    place = stream->queue->take_place(0, 0, 1, TaskKind::kHostFunction);
  std::lock_guard lock(submit_mutex_);
  const Fence done =
      push_locked(*stream, Task{std::move(run), {}, nullptr, place, TaskKind::kHostFunction});
  if (stream->role == StreamRole::kLegacy) legacy_function_ = done;
}

std::shared_lock<std::shared_mutex> Context::hold_functions_off() {
  return Driver::get().settings().stream_waits ? std::shared_lock(functions_mutex_)
                                               : std::shared_lock<std::shared_mutex>();
}

size_t Context::turns_beside_legacy(const Stream& stream, const GraphFunctions& functions) const {
  if (functions.count == 0 || stream.role == StreamRole::kLegacy || !stream.blocking()) return 0;
  std::lock_guard lock(submit_mutex_);
  if (functions.alone) return pending(legacy_work_) ? functions.count : 0;
  return pending(legacy_->last) ? 1 : 0;
}

Fence Context::submit_graph(const std::shared_ptr<Stream>& stream, const Make& make, size_t places,
                            GraphFunctions functions) {
  size_t turns = functions.turns() + turns_beside_legacy(*stream, functions);
  // In turn with another graph a launch takes one more, and beside the work of other streams so
  // many that an H200 with 13 launches under way did not take the next one.
  constexpr size_t kInTurn = 3;
  const uint64_t last = stream->last_graph.exchange(functions.graph);
  if (functions.turns() > 0 && last != 0 && last != functions.graph) turns += kInTurn;
  std::unique_lock lock(submit_mutex_, std::defer_lock);
  if (turns > 0 && Driver::get().settings().locked_waits) lock.lock();
  const TaskKind kind = functions.task_kind();
  const QueuePlace place = stream->queue->take_place(0, places, turns, kind);
  if (!lock.owns_lock()) lock.lock();
  Task task{nullptr, {}, std::make_shared<Completion>(), place, kind};
  channels_.take_lanes(&task, functions.lanes, &stream->channels, functions.side_lanes);
  Fence done = make_locked(*stream, make, std::move(task));
  if (stream->role == StreamRole::kLegacy && !is_host(kind) && !functions.is_nothing())
    note_legacy_work(done);
  return done;
}

Fence Context::push(Stream& stream, Task task) {
  std::lock_guard lock(submit_mutex_);
  return push_locked(stream, std::move(task));
}

Fence Context::make_locked(Stream& stream, const Make& make, Task task) {
  if (!task.done) task.done = std::make_shared<Completion>();
  task.run = make(task.done);
  return push_locked(stream, std::move(task));
}

Fence Context::push_locked(Stream& stream, Task task) {
  if (!task.done) task.done = std::make_shared<Completion>();
  auto done = task.done;
  task.after = ahead_of(stream, std::move(task.after));
  stream.queue->push(std::move(task));
  stream.last = done;
  return done;
}

void Context::submit_and_wait(const std::shared_ptr<Stream>& stream, std::function<void()> run) {
  auto done = std::make_shared<Completion>();
  bool inline_run = false;
  {
    std::lock_guard lock(submit_mutex_);
    auto after = ahead_of(*stream, {});
    inline_run = after.empty() && stream->queue->try_begin_inline();
    if (!inline_run) stream->queue->push(Task{std::move(run), std::move(after), done});
    stream->last = done;
  }
  if (!inline_run) {
    done->wait();
    return;
  }
  // NOLINTNEXTLINE(bugprone-use-after-move): moved only if it is not run here
  run();
  done->complete();
  stream->queue->end_inline();
}

Fence Context::submit_after_all(const Make& make, const GreenContext* green) {
  auto stream = create_stream(CU_STREAM_NON_BLOCKING, 0);
  Fence fence = submit_made(stream, make, outstanding(green));
  forget_stream(stream);
  return fence;
}

void Context::gate(Fence fence, GreenContext* green) {
  std::lock_guard lock(submit_mutex_);
  auto& gates = green == nullptr ? gates_ : green->gates;
  std::erase_if(gates, [](const Fence& old) { return !pending(old); });
  gates.push_back(std::move(fence));
}

void Context::add_from_elsewhere(Fence done) {
  std::lock_guard lock(submit_mutex_);
  std::erase_if(from_elsewhere_, [](const Fence& old) { return !pending(old); });
  from_elsewhere_.push_back(std::move(done));
}

bool Context::has_own_work(const Stream& stream) const {
  std::lock_guard lock(submit_mutex_);
  return pending(stream.last);
}

std::vector<Fence> Context::outstanding(const std::shared_ptr<Stream>& stream) const {
  std::lock_guard lock(submit_mutex_);
  std::vector<Fence> fences;
  if (stream->role == StreamRole::kLegacy) fences = ahead_of(*stream, {});
  if (pending(stream->last)) fences.push_back(stream->last);
  return fences;
}

std::vector<Fence> Context::outstanding(const GreenContext* green) const {
  std::lock_guard lock(submit_mutex_);
  return pending_work(green);
}

std::vector<Fence> Context::pending_work(const GreenContext* green) const {
  std::vector<Fence> fences;
  for (const auto& stream : streams_) {
    if (green != nullptr && stream->green.get() != green) continue;
    if (pending(stream->last)) fences.push_back(stream->last);
  }
  if (green != nullptr) return fences;
  if (pending(legacy_->last)) fences.push_back(legacy_->last);
  for (const Fence& fence : from_elsewhere_) {
    if (pending(fence)) fences.push_back(fence);
  }
  return fences;
}

CUresult Context::synchronize(const std::shared_ptr<Stream>& stream) {
  for (const Fence& fence : outstanding(stream)) fence->wait();
  output_.flush();
  return error();
}

CUresult Context::synchronize(const GreenContext* green) {
  for (const Fence& fence : outstanding(green)) fence->wait();
  output_.flush();
  return error();
}

void Context::quiesce_if_locked() {
  if (Driver::get().settings().locked_waits) (void)quiesce();
}

CUresult Context::quiesce() {
  if (!Driver::get().settings().locked_waits) return synchronize();
  {
    std::lock_guard lock(submit_mutex_);
    for (const Fence& fence : pending_work()) fence->wait();
  }
  output_.flush();
  return error();
}

void Context::destroy() {
  if (!alive_.exchange(false)) return;
  end_captures_of(*this);
  for (const Fence& fence : outstanding()) fence->wait();
  output_.flush();
  Driver& driver = Driver::get();
  // Modules go before the memory they occupy.
  driver.registry().remove_owned(id_);
  memory_->abandon();
  // A real one ends not at once.
  std::this_thread::sleep_for(
      std::chrono::milliseconds(driver.settings().context_end_milliseconds));
  for (const Allocation& allocation : driver.allocations().take_context(id_))
    driver.release(allocation);
  if (driver.settings().context_bytes != 0)
    device_.memory().refund(driver.settings().context_bytes);
  driver.contexts().fetch_sub(1);
  std::lock_guard lock(submit_mutex_);
  streams_.clear();
  per_thread_.clear();
}

CUresult Context::limit(CUlimit limit, size_t* value) const {
  std::lock_guard lock(limits_mutex_);
  if (limit < 0 || limit >= CU_LIMIT_MAX) return CUDA_ERROR_INVALID_VALUE;
  if (!has_limit(limit)) return CUDA_ERROR_UNSUPPORTED_LIMIT;
  *value = limits_[limit];
  return CUDA_SUCCESS;
}

CUresult Context::set_limit(CUlimit limit, size_t value) {
  constexpr size_t kMaxStack = size_t{512} << 10;
  constexpr size_t kMaxFetch = 128;
  std::lock_guard lock(limits_mutex_);
  if (limit < 0 || limit >= CU_LIMIT_MAX) return CUDA_ERROR_INVALID_VALUE;
  if (!has_limit(limit)) return CUDA_ERROR_UNSUPPORTED_LIMIT;
  if (limit == CU_LIMIT_SHMEM_SIZE || limit == CU_LIMIT_CIG_ENABLED)
    return CUDA_ERROR_NOT_PERMITTED;
  if (limit == CU_LIMIT_STACK_SIZE && value > kMaxStack) return CUDA_ERROR_INVALID_VALUE;
  if (limit == CU_LIMIT_MAX_L2_FETCH_GRANULARITY && value > kMaxFetch)
    return CUDA_ERROR_INVALID_VALUE;
  if (limit == CU_LIMIT_PERSISTING_L2_CACHE_SIZE) value = 0;  // there is no such cache
  if (limit == CU_LIMIT_MALLOC_HEAP_SIZE && value > device_.memory().total())
    return CUDA_ERROR_OUT_OF_MEMORY;
  if (limit == CU_LIMIT_PRINTF_FIFO_SIZE) output_.set_limit(value);
  limits_[limit] = value;
  return CUDA_SUCCESS;
}

// The depth of device-side synchronisation went with capability 9.0.
bool Context::has_limit(CUlimit limit) const {
  if (limit == CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH) return device_.compute_capability() < 90;
  return limit <= CU_LIMIT_CIG_ENABLED;
}

}  // namespace fargpu::sim
