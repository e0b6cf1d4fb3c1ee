#include "client/hostmem/stream_words.h"

#include <bit>
#include <utility>

#include "client/link/link.h"
#include "client/object/context.h"
#include "common/transport/spin.h"
#include "generated/schema/opcodes.h"

namespace fargpu::client {

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t) &&
              std::atomic<uint32_t>::is_always_lock_free);

namespace {

// Only a spinning wait polls words.
bool watches() {
  const auto spin = transport::spin_from_environment(transport::SpinningEnd::kClient);
  return spin.ok() && spin->count() != 0;
}

}  // namespace

std::shared_ptr<StreamWords> StreamWords::make(Link& link, HostCalls& functions, Context& context) {
  auto segment = SharedSegment::make(link, functions, context, kWords * kSpacing);
  if (!segment) return nullptr;
  auto words = std::make_shared<StreamWords>(segment->base(), segment->device_pointer());
  words->segment_ = std::move(segment);
  return words;
}

int StreamWords::take() {
  uint64_t free = free_.load(std::memory_order_relaxed);
  do {
    if (free == 0) return -1;
  } while (!free_.compare_exchange_weak(free, free & (free - 1), std::memory_order_acquire,
                                        std::memory_order_relaxed));
  const int index = std::countr_zero(free);
  // Where the worker does without words they stay as they are, and values come round again after
  // 2^32 waits.
  const uint32_t value = ++values_[static_cast<unsigned>(index)];
  word(index).store(value - 1, std::memory_order_relaxed);
  return index;
}

std::shared_ptr<StreamWords> SessionStreamWords::get(Context& context) {
  {
    const std::lock_guard lock(mutex_);
    OfContext& known = contexts_[&context];
    if (known.words != nullptr || known.making || ++known.waits < kFirst) return known.words;
    known.making = true;  // others do without meanwhile; for good if it is refused
  }
  if (!SharedSegment::possible(link_) || !watches() || !context.usable() ||
      !link_.knows(schema::op_fgStreamSynchronize))
    return nullptr;
  const ContextEpoch epoch(context);
  auto made = StreamWords::make(link_, functions_, context);
  const std::lock_guard lock(mutex_);
  // What ended with this life of the context says nothing of the next.
  if (epoch.is_over()) return nullptr;
  contexts_[&context].words = made;
  return made;
}

void SessionStreamWords::context_ended(const Context& context) {
  const std::lock_guard lock(mutex_);
  contexts_.erase(&context);
}

}  // namespace fargpu::client
