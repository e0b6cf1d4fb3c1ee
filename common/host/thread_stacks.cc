#include "common/host/thread_stacks.h"

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstddef>

#include "common/base/keep_errno.h"
#include "common/base/late_thread_local.h"

namespace fargpu {
namespace {

struct Slot {
  std::atomic<bool> taken{false};
  std::atomic<uint64_t> begin{0}, end{0};  // of zeros: none
};
constinit std::array<Slot, 4096> slots{};
constinit std::atomic<size_t> slots_used{0};  // no slot behind these was ever taken
constinit std::atomic<bool> any_unknown{false};

StackRange find_this_stack() {
  const KeepErrno keep;
  pthread_attr_t attributes;
  if (::pthread_getattr_np(::pthread_self(), &attributes) != 0) return {};
  void* stack = nullptr;
  size_t bytes = 0;
  ::pthread_attr_getstack(&attributes, &stack, &bytes);
  ::pthread_attr_destroy(&attributes);
  const auto begin = reinterpret_cast<uint64_t>(stack);
  return {begin, begin + bytes};
}

class NotedStack {
 public:
  NotedStack() : range(find_this_stack()) {
    for (size_t i = 0; range.begin != range.end && i < slots.size(); ++i) {
      if (slots[i].taken.exchange(true)) continue;
      slot_ = &slots[i];
      slot_->begin = range.begin;
      slot_->end = range.end;
      size_t used = slots_used;
      while (used <= i && !slots_used.compare_exchange_weak(used, i + 1)) {
      }
      return;
    }
    any_unknown = true;
  }
  ~NotedStack() {
    if (slot_ == nullptr) return;
    slot_->end = 0;
    slot_->taken = false;
  }
  NotedStack(const NotedStack&) = delete;
  NotedStack& operator=(const NotedStack&) = delete;

  const StackRange range;

 private:
  Slot* slot_ = nullptr;
};

}  // namespace

StackRange note_this_stack() { return LateThreadLocal<NotedStack>::get().range; }

bool is_on_a_stack(uint64_t begin, uint64_t end) {
  (void)note_this_stack();
  if (any_unknown) return true;
  for (size_t i = 0; i < slots_used; ++i)
    if (begin < slots[i].end && end > slots[i].begin) return true;
  return false;
}

}  // namespace fargpu
