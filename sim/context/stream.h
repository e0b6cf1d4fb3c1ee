// A stream of one context: the order of its work, and its properties. Submission goes through the
// context, which knows the rules between streams.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "sim/base/registry.h"
#include "sim/base/task_queue.h"
#include "sim/context/channels.h"

namespace fargpu::sim {

class Context;
struct GreenContext;

enum class StreamRole : uint8_t { kCreated, kLegacy, kPerThread };

// The range of priorities: a lower number comes first.
inline constexpr int kLeastPriority = 0, kGreatestPriority = -5;

struct Stream {
  static constexpr ObjectKind kKind = ObjectKind::kStream;

  Stream(std::weak_ptr<Context> context, StreamRole role, unsigned flags, int priority, uint64_t id,
         std::shared_ptr<GreenContext> green = nullptr)
      : context(std::move(context)),
        green(std::move(green)),
        role(role),
        flags(flags),
        priority(priority),
        id(id) {}

  // Takes part in the implicit synchronisation with the legacy default stream.
  bool blocking() const { return (flags & CU_STREAM_NON_BLOCKING) == 0; }

  const std::weak_ptr<Context> context;
  const std::shared_ptr<GreenContext> green;  // that it was made in; null: none
  const StreamRole role;
  const unsigned flags;
  const int priority;
  const uint64_t id;
  const std::shared_ptr<TaskQueue> queue = std::make_shared<TaskQueue>();
  // Guarded by the context's submission lock, up to the next blank line.
  Fence last;  // of the newest work
  StreamChannels channels;
  bool retired = false;  // destroyed, but perhaps not yet idle

  // Of the last launch of a graph with host nodes and others.
  std::atomic<uint64_t> last_graph{0};
  std::mutex attributes_mutex;
  CUsynchronizationPolicy sync_policy = CU_SYNC_POLICY_AUTO;  // guarded by attributes_mutex
  int mem_sync_domain = 0;                                    // likewise
};

}  // namespace fargpu::sim
