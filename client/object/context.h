// Contexts of the client: records, the table of primary contexts, and each thread's stack of
// current contexts.
//
// A Context is never freed (a thread may hold a pointer to a destroyed one for ever); its id is
// never used again. The last destroyed ones are known as such, older ones as no context at all. The
// current context of a thread is a plain thread-local pointer: reading it costs nothing. Everything
// else is thread safe.
#pragma once

#include <cuda.h>

#include <array>
#include <atomic>
#include <bitset>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "client/object/object.h"
#include "client/stream/stream_state.h"

namespace fargpu::client {

class HandleTable;

enum class ContextState : uint8_t {
  kInactive,
  kActive,
  kDestroyed
};  // inactive: a primary context that is not retained

struct Context final : Object {
  static constexpr size_t kNotAsked = ~size_t{0};
  // Of a green context converted to a CUcontext: its primary context, in which all its objects live
  // except streams; null: not a green context.
  Context* home = nullptr;
  uint64_t green = 0;  // of a green context: its CUgreenCtx
  uint16_t wire_id = 0;
  int device = 0;         // ordinal among the visible devices of the process
  int worker_device = 0;  // the worker's ordinal
  bool primary = false;
  std::atomic<ContextState> state{ContextState::kInactive};
  std::atomic<uint32_t> epoch{0};         // raised when the contents are gone, and by activation
  std::atomic<uint64_t> unique_id{0};     // cuCtxGetId: never used again
  std::atomic<int> sticky{CUDA_SUCCESS};  // an execution error that stays
  std::atomic<int> kept{CUDA_SUCCESS};    // an error of an async call, to be returned once
  std::atomic<unsigned> flags{0};
  std::atomic<size_t> cig_enabled{kNotAsked};  // CU_LIMIT_CIG_ENABLED, which cannot be set
  const std::shared_ptr<StreamState> legacy_stream = std::make_shared<StreamState>();
  std::mutex mutex;        // the members below
  unsigned retained = 0;   // primary contexts
  bool flags_set = false;  // primary contexts: cuDevicePrimaryCtxSetFlags was called

  bool usable() const { return state.load(std::memory_order_acquire) == ContextState::kActive; }
  CUcontext handle() { return reinterpret_cast<CUcontext>(id); }
};

// A CUgreenCtx.
struct GreenContext final : Object {
  Context* converted = nullptr;  // set before the application knows the handle
};

// The context that owns objects made in `context`: itself, or the home of a green context.
inline Context* home_of(Context* context) {
  return context != nullptr && context->home != nullptr ? context->home : context;
}

// A context in one of its lives. A later operation asks whether that life is over; it is over
// before any object of the context is notified of the end.
class ContextEpoch {
 public:
  explicit ContextEpoch(const Context& context)
      : context_(&context), epoch_(context.epoch.load()) {}
  bool is_over() const { return context_->epoch.load() != epoch_; }

 private:
  const Context* context_;
  uint32_t epoch_;
};

// How HostCalls names the context's device; 0: no context.
uint16_t device_key(const Context* context);

// Errors of kernels after which a context can only be destroyed.
bool is_sticky(CUresult result);

// The contexts of all sessions of the process. Ids on the wire are unique in the process, but those
// of primary contexts only in their session: a worker derives them from its devices.
class ContextTable {
 public:
  static constexpr size_t kMaxDevices = 64;
  explicit ContextTable(HandleTable& handles) : handles_(handles) {}
  // Makes the (inactive) primary context of a visible device, given by its ordinal in the process
  // and in the worker. Devices beyond kMaxDevices get none.
  void add_primary(int device, int worker_ordinal, const Owner& owner = {});
  Context* primary(int device) const;  // nullptr: no such device
  // A new context, not yet active; nullptr when all 16-bit ids or all slots of handles are in use.
  Context* create(int device, int worker_ordinal, unsigned flags, const Owner& owner = {},
                  Context* home = nullptr);
  std::vector<Context*> greens_of(const Context& home) const;  // the active ones
  std::vector<Context*> active_of(unsigned session) const;     // without green ones
  Context* find(const void* handle) const;                     // any state; nullptr: never made
  // nullptr: `session` has no such context. Of a green one: its home.
  Context* find_wire(uint16_t wire_id, unsigned session = 0) const;
  void activate(Context& context, unsigned flags);
  // The session with this number is lost: its contexts fail from now on, including contexts that
  // become active later.
  void lose(unsigned session);
  // The context ends; end_context() (client/entry/object_ends.h) ends the objects that live in it.
  // `now`: kInactive for primaries, kDestroyed for others.
  void retire(Context& context, ContextState now);
  // How often a context became active.
  uint64_t activated() const { return activated_.load(std::memory_order_acquire); }

 private:
  static constexpr uint32_t kFirstCreated = 256;
  static constexpr size_t kRemembered = 1024;
  HandleTable& handles_;
  mutable std::mutex mutex_;
  std::array<std::atomic<Context*>, kMaxDevices> primaries_{};  // by visible ordinal
  std::deque<Context*> destroyed_;  // contexts that still have a handle, oldest first
  std::vector<std::unique_ptr<Object>> past_;
  std::array<std::atomic<Context*>, 65536> by_wire_{};  // all contexts that are not primary
  std::bitset<size_t{1} << rpc::kSessionBits> lost_;    // sessions; guarded by mutex_
  uint32_t next_wire_ = kFirstCreated;
  std::atomic<uint64_t> next_unique_{1};
  std::atomic<uint64_t> activated_{0};
};

// The calling thread's stack. While a green context is current, so is its home: only what is about
// streams, and what names the current context, asks for the green one.
//
// The top is a separate member, so that reading it touches no heap memory. Only context.cc writes
// it.
struct CurrentContexts {
  Context* top;    // never a green one
  Context* green;  // `top` is its home
};
inline constinit thread_local CurrentContexts current_contexts{};
inline Context* current_context() { return current_contexts.top; }  // nullptr: none
inline Context* current_green() { return current_contexts.green; }  // nullptr: none
inline Context* named_current() {
  Context* const green = current_green();
  return green != nullptr ? green : current_context();
}
// Wire id of the thread's current context; 0: none.
inline uint16_t current_context_id() {
  const Context* const context = current_context();
  return context == nullptr ? 0 : context->wire_id;
}
void set_current_context(Context* context);  // replaces the top; nullptr pops it
void push_context(Context* context);
Context* pop_context();       // as it was pushed; nullptr: the stack is empty
void forget_context_stack();  // after fork, in the child

// Another context as the current one for a while, without touching the stack below.
class ContextScope {
 public:
  explicit ContextScope(Context* context);
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  const CurrentContexts before_;
};

}  // namespace fargpu::client
