#include "client/object/context.h"

#include "client/object/handle_table.h"
#include "client/object/launch_blocking.h"
#include "client/stream/host_calls.h"
#include "common/base/late_thread_local.h"
#include "common/host/thread_stacks.h"

namespace fargpu::client {
namespace {

void make_top(Context* context) {
  Context* const home = home_of(context);
  if (home != nullptr) (void)note_this_stack();  // of a thread that makes calls
  current_contexts = {home, home == context ? nullptr : context};
}

struct Below {
  std::vector<Context*> contexts;
};
using BelowOfThread = LateThreadLocal<Below>;

}  // namespace

uint16_t device_key(const Context* context) {
  return context == nullptr ? 0 : HostCalls::device_key(context->device);
}

bool is_sticky(CUresult result) {
  switch (result) {
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_TENSOR_MEMORY_LEAK:
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_CONTAINED:
      return true;
    default:
      return false;
  }
}

void ContextTable::add_primary(int device, int worker_ordinal, const Owner& owner) {
  if (device < 0 || static_cast<size_t>(device) >= kMaxDevices) return;
  std::lock_guard lock(mutex_);
  auto context = std::make_unique<Context>();
  context->id = handles_.reserve(rpc::HandleKind::kContext, owner.number);
  context->session = owner.session;
  context->device = device;
  context->worker_device = worker_ordinal;
  context->wire_id = static_cast<uint16_t>(worker_ordinal + 1);
  context->primary = true;
  Context* raw = context.get();
  handles_.publish(std::move(context));
  // NOLINTNEXTLINE(clang-analyzer-cplusplus.NewDelete): publish keeps it
  primaries_[static_cast<size_t>(device)].store(raw, std::memory_order_release);
}

Context* ContextTable::primary(int device) const {
  if (device < 0 || static_cast<size_t>(device) >= kMaxDevices) return nullptr;
  return primaries_[static_cast<size_t>(device)].load(std::memory_order_acquire);
}

Context* ContextTable::create(int device, int worker_ordinal, unsigned flags, const Owner& owner,
                              Context* home) {
  std::lock_guard lock(mutex_);
  // After 65280 contexts the 16-bit ids are used again, but only those of destroyed ones.
  uint32_t tried = 0;
  while (tried <= UINT16_MAX) {
    Context* holder = by_wire_[next_wire_].load(std::memory_order_relaxed);
    if (holder == nullptr || holder->state.load() == ContextState::kDestroyed) break;
    next_wire_ = next_wire_ == UINT16_MAX ? kFirstCreated : next_wire_ + 1;
    ++tried;
  }
  if (tried > UINT16_MAX) return nullptr;
  read_launch_blocking();
  auto context = std::make_unique<Context>();
  context->id = handles_.reserve(rpc::HandleKind::kContext, owner.number);
  context->session = owner.session;
  context->device = device;
  context->worker_device = worker_ordinal;
  context->home = home;
  if (context->id == 0) return nullptr;
  context->wire_id = static_cast<uint16_t>(next_wire_);
  context->flags.store(flags);
  next_wire_ = next_wire_ == UINT16_MAX ? kFirstCreated : next_wire_ + 1;
  Context* raw = context.get();
  handles_.publish(std::move(context));
  // NOLINTNEXTLINE(clang-analyzer-cplusplus.NewDelete): publish keeps it
  by_wire_[raw->wire_id].store(raw, std::memory_order_release);
  return raw;
}

Context* ContextTable::find(const void* handle) const {
  return static_cast<Context*>(
      handles_.find(rpc::HandleKind::kContext, reinterpret_cast<uint64_t>(handle)));
}

Context* ContextTable::find_wire(uint16_t wire_id, unsigned session) const {
  const auto is_of_session = [session](const Context* context) {
    return context != nullptr && rpc::handle_session(context->id) == session;
  };
  if (wire_id >= kFirstCreated) {
    Context* const context = by_wire_[wire_id].load(std::memory_order_acquire);
    return is_of_session(context) ? home_of(context) : nullptr;
  }
  for (const auto& primary : primaries_) {
    Context* const context = primary.load(std::memory_order_acquire);
    if (is_of_session(context) && context->wire_id == wire_id) return context;
  }
  return nullptr;
}

std::vector<Context*> ContextTable::greens_of(const Context& home) const {
  std::vector<Context*> found;
  for (const auto& each : by_wire_) {
    Context* const context = each.load(std::memory_order_acquire);
    if (context != nullptr && context->home == &home && context->usable()) found.push_back(context);
  }
  return found;
}

std::vector<Context*> ContextTable::active_of(unsigned session) const {
  std::vector<Context*> found;
  const auto look_at = [&](const std::atomic<Context*>& each) {
    Context* const context = each.load(std::memory_order_acquire);
    if (context != nullptr && context->home == nullptr && context->usable() &&
        rpc::handle_session(context->id) == session)
      found.push_back(context);
  };
  for (const auto& context : primaries_) look_at(context);
  for (const auto& context : by_wire_) look_at(context);
  return found;
}

void ContextTable::lose(unsigned session) {
  std::lock_guard lock(mutex_);
  lost_.set(session);
  const auto fail = [session](Context* context) {
    if (context != nullptr && rpc::handle_session(context->id) == session)
      context->sticky.store(CUDA_ERROR_DEVICE_UNAVAILABLE);
  };
  for (const auto& context : primaries_) fail(context.load(std::memory_order_relaxed));
  for (const auto& context : by_wire_) fail(context.load(std::memory_order_relaxed));
}

void ContextTable::activate(Context& context, unsigned flags) {
  read_launch_blocking();
  const std::lock_guard lock(mutex_);  // with lose()
  context.flags.store(flags);
  context.cig_enabled.store(Context::kNotAsked);
  context.epoch.fetch_add(1);
  context.sticky.store(lost_.test(rpc::handle_session(context.id)) ? CUDA_ERROR_DEVICE_UNAVAILABLE
                                                                   : CUDA_SUCCESS);
  context.kept.store(CUDA_SUCCESS);
  context.unique_id.store(next_unique_.fetch_add(1));
  activated_.fetch_add(1, std::memory_order_release);
  context.state.store(ContextState::kActive, std::memory_order_release);
}

void ContextTable::retire(Context& context, ContextState now) {
  context.state.store(now, std::memory_order_release);
  context.epoch.fetch_add(1);
  context.sticky.store(CUDA_SUCCESS);
  context.kept.store(CUDA_SUCCESS);
  if (now != ContextState::kDestroyed) return;
  std::lock_guard lock(mutex_);
  destroyed_.push_back(&context);
  if (destroyed_.size() <= kRemembered) return;
  past_.push_back(handles_.take(destroyed_.front()->id));
  destroyed_.pop_front();
}

void set_current_context(Context* context) {
  if (context == nullptr) {
    pop_context();
  } else {
    make_top(context);
  }
}

void push_context(Context* context) {
  if (current_context() != nullptr) BelowOfThread::get().contexts.push_back(named_current());
  make_top(context);
}

Context* pop_context() {
  Context* popped = named_current();
  make_top(nullptr);
  if (Below* below = BelowOfThread::if_made(); below != nullptr && !below->contexts.empty()) {
    make_top(below->contexts.back());
    below->contexts.pop_back();
  }
  return popped;
}

void forget_context_stack() {
  make_top(nullptr);
  if (Below* below = BelowOfThread::if_made()) below->contexts.clear();
}

ContextScope::ContextScope(Context* context) : before_(current_contexts) { make_top(context); }
ContextScope::~ContextScope() { current_contexts = before_; }

}  // namespace fargpu::client
