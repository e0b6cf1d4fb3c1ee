#include "client/servers/held_streams.h"

#include <atomic>
#include <map>
#include <system_error>

#include "client/entry/call_target.h"
#include "client/entry/to_wire.h"
#include "client/process/process.h"
#include "client/transfer/submission.h"
#include "common/host/thread.h"
#include "generated/client/wire/event.h"
#include "generated/client/wire/memory.h"
#include "generated/client/wire/stream.h"
#include "generated/client/wire/stream_memory_operations.h"

namespace fargpu::client {
namespace {

// Which lane a held stream has, and lanes that no stream has. Never destroyed: threads use it until
// the process ends.
struct Table {
  std::mutex mutex;
  std::map<uint64_t, std::shared_ptr<Lane>> busy;  // by the stream
  std::vector<std::shared_ptr<Lane>> idle;
};
Table& table() {
  static auto& made = *new Table;
  return made;
}

// The legacy stream has one id in all contexts.
uint64_t key_of(const Context& context, uint64_t stream) {
  return stream == kLegacyStreamId ? context.id : stream;
}

constexpr unsigned kWork = Submission::kHostMemory | Submission::kQueuePlace;

CUresult write_value(Session& session, uint16_t context, CUstream stream, CUdeviceptr word,
                     uint32_t value) {
  return submit(session, context, stream, kWork, [&](uint64_t id) {
    return wire::cuStreamWriteValue32_v2(session, context, id, word, value, 0);
  });
}

void keep(Context& context, CUresult error) {
  int none = CUDA_SUCCESS;
  context.kept.compare_exchange_strong(none, error);
}

}  // namespace

Lane::Lane(Context& context) : context_(context), epoch_(context.epoch.load()) {}

CUresult Lane::make_word() {
  if (word_ != 0) return CUDA_SUCCESS;
  Session& session = *context_.session;
  CUstream own = nullptr;
  if (const CUresult result = work_.in(context_, &own); result != CUDA_SUCCESS) return result;
  CUdeviceptr word = 0;
  CUresult result = wire::cuMemAlloc_v2(session, context_.wire_id, &word, sizeof(uint32_t));
  if (result != CUDA_SUCCESS) return result;
  allocation_created(session, context_.wire_id, word, sizeof(uint32_t));
  result = write_value(session, context_.wire_id, own, word, 0);
  if (result == CUDA_SUCCESS) result = await_stream(session, context_.wire_id, own);
  if (result != CUDA_SUCCESS) return result;
  word_ = word;
  own_ = own;
  return CUDA_SUCCESS;
}

void Lane::open(uint32_t count) {
  Session& session = *context_.session;
  if (context_.epoch.load() == epoch_) {
    (void)write_value(session, context_.wire_id, own_, word_, count);
    (void)session.channel().flush();
  }
  session.host_calls.release(device_key(&context_));
}

namespace {

std::shared_ptr<Lane> take_idle(Table& lanes, Context& context) {
  auto& idle = lanes.idle;
  for (auto each = idle.begin(); each != idle.end(); ++each) {
    if (&(*each)->context() != &context) continue;
    auto found = std::move(*each);
    idle.erase(each);
    return found;
  }
  return std::make_shared<Lane>(context);
}

}  // namespace

CUresult HeldStreams::hold(Context& context, CUstream stream, Touched touched,
                           const std::function<CUresult(Lane&)>& before,
                           const std::function<CUresult(Lane&)>& work) {
  Session& session = *context.session;
  ResolvedStream resolved;
  if (const CUresult result = resolve_stream(session, stream, &resolved); result != CUDA_SUCCESS)
    return result;
  const uint64_t key = key_of(context, resolved.id);
  Table& lanes = table();
  std::shared_ptr<Lane> lane;
  {
    std::lock_guard lock(lanes.mutex);
    // Those of a context that was reset are of no use any more.
    std::erase_if(lanes.idle,
                  [](const auto& each) { return each->context_.epoch.load() != each->epoch_; });
    auto& place = lanes.busy[key];
    if (place == nullptr) place = take_idle(lanes, context);
    lane = place;
    ++lane->users_;
  }
  const auto leave = [&lanes, key, lane] {
    std::lock_guard lock(lanes.mutex);
    if (--lane->users_ != 0) return;
    lanes.idle.push_back(lane);
    lanes.busy.erase(key);
  };

  touched.contexts.push_back(&context);
  auto under_way =
      std::make_unique<CrossServerWork>(std::move(touched.contexts), std::move(touched.memory));
  std::lock_guard order(lane->order_);
  CUresult result = lane->make_word();
  if (result == CUDA_SUCCESS) result = before(*lane);
  if (result != CUDA_SUCCESS) {
    leave();
    return result;
  }
  // As for waits of the application's own (client/manual/stream/stream_memory_operations.cc).
  Observers::Coming wait(session.observers, Observers::kValueWaits);
  session.host_calls.hold(device_key(&context));
  const uint32_t count = ++lane->count_;
  result = submit(session, context.wire_id, stream, kWork, [&](uint64_t id) {
    return wire::cuStreamWaitValue32_v2(session, context.wire_id, id, lane->word_, count,
                                        CU_STREAM_WAIT_VALUE_GEQ);
  });
  if (result != CUDA_SUCCESS) {
    session.host_calls.release(device_key(&context));
    leave();
    return result;
  }
  wait.stays();
  (void)session.channel().flush();
  const auto task = [lane, work, leave]() -> CUresult {
    const CUresult done = work(*lane);
    if (done != CUDA_SUCCESS) keep(lane->context_, done);
    return done;
  };
  {
    std::lock_guard lock(lane->mutex_);
    lane->tasks_.push_back({std::move(under_way), task, count});
    if (lane->running_) return CUDA_SUCCESS;
    lane->running_ = true;
  }
  const auto run = [lane, leave] {
    for (;;) {
      Lane::Task next;
      {
        std::lock_guard own(lane->mutex_);
        if (lane->tasks_.empty()) {
          lane->running_ = false;
          return;
        }
        next = std::move(lane->tasks_.front());
        lane->tasks_.pop_front();
      }
      (void)next.work();
      const ContextScope scope(&lane->context_);
      lane->open(next.count);
      leave();
    }
  };
  try {
    Thread(run).detach();
  } catch (const std::system_error&) {
    run();  // no thread is left: the caller waits
  }
  return CUDA_SUCCESS;
}

CUresult HeldStreams::borrow(Context& context, const std::function<CUresult(Lane&)>& work) {
  Table& lanes = table();
  std::shared_ptr<Lane> lane;
  {
    std::lock_guard lock(lanes.mutex);
    lane = take_idle(lanes, context);
  }
  const CUresult result = work(*lane);
  std::lock_guard lock(lanes.mutex);
  lanes.idle.push_back(std::move(lane));
  return result;
}

CUresult ServerPoint::set(Context& context, CUstream stream) {
  Session& session = *context.session;
  const ContextScope scope(&context);
  CUresult result = make_object(session, rpc::HandleKind::kEvent, &event_, [&](uint64_t id) {
    return wire::cuEventCreate(session, context.wire_id, id, CU_EVENT_DISABLE_TIMING);
  });
  if (result != CUDA_SUCCESS) return result;
  context_ = &context;
  result = submit(session, context.wire_id, stream, Submission::kNothing, [&](uint64_t id) {
    return wire::cuEventRecord(session, context.wire_id, event_, id);
  });
  (void)session.channel().flush();
  return result;
}

CUresult ServerPoint::wait() {
  Session& session = *context_->session;
  const ContextScope scope(context_);
  return synchronise(
      session, context_->wire_id, Synchronisation::Of::kSome, nullptr,
      [&](uint64_t) { return wire::cuEventSynchronize(session, context_->wire_id, event_); });
}

ServerPoint::~ServerPoint() {
  if (context_ == nullptr) return;
  Session& session = *context_->session;
  if (!is_live(session, rpc::HandleKind::kEvent, event_)) return;  // it ended with the context
  if (wire::cuEventDestroy_v2(session, context_->wire_id, event_) == CUDA_SUCCESS)
    handle_destroyed(session, event_);
}

namespace {

const Object* event_of(CUevent event) {
  return Process::get().tables()->handles.find(rpc::HandleKind::kEvent,
                                               reinterpret_cast<uint64_t>(event));
}

}  // namespace

bool is_event_of_another_server(CUstream stream, CUevent event) {
  if (Process::get().session(1) == nullptr) [[likely]]
    return false;
  const Context* const context = context_of(stream);
  const Object* const found = event_of(event);
  return context != nullptr && found != nullptr && found->session != context->session;
}

CUresult wait_for_other_server(CUstream stream, CUevent event) {
  Context* const waits = context_of(stream);
  const Object* const found = event_of(event);
  if (waits == nullptr || found == nullptr || found->context == nullptr)
    return CUDA_ERROR_INVALID_HANDLE;
  Context& other = *found->context;
  if (const int sticky = other.sticky.load()) return static_cast<CUresult>(sticky);
  auto point = std::make_shared<ServerPoint>();
  // A stream of ours waits for the event first: it may be recorded again before the thread looks.
  const auto set = [&](Lane& lane) -> CUresult {
    Session& session = *other.session;
    CUstream ours = nullptr;
    if (const CUresult result = lane.waits().in(other, &ours); result != CUDA_SUCCESS)
      return result;
    {
      const ContextScope scope(&other);
      uint64_t wanted = 0;
      CUresult result = required_to_wire(session, rpc::HandleKind::kEvent, event, &wanted);
      if (result != CUDA_SUCCESS) return result;
      result = submit(session, other.wire_id, ours, Submission::kQueuePlace, [&](uint64_t id) {
        return wire::cuStreamWaitEvent(session, other.wire_id, id, wanted, CU_EVENT_WAIT_DEFAULT);
      });
      if (result != CUDA_SUCCESS) return result;
    }
    return point->set(other, ours);
  };
  return HeldStreams::hold(*waits, stream, {{&other}}, set,
                           [point](Lane&) { return point->wait(); });
}

}  // namespace fargpu::client
