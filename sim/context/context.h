// A CUDA context of the simulated GPU: owns its streams' order, its sticky error, limits and view
// of memory.
//
// Ordering rules: work of one stream runs in order. Work in the legacy default stream waits for all
// earlier work of blocking streams, and work in a blocking stream waits for all earlier work of the
// legacy default stream. Non-blocking streams know no others.
//
// Thread safe. Kept alive by the registry, by queued work and by calls in progress; after destroy()
// it refuses everything.
#pragma once

#include <cuda.h>

#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <vector>

#include "sim/context/context_memory.h"
#include "sim/context/printf_buffer.h"
#include "sim/context/stream.h"

namespace fargpu::sim {

class Device;
struct GreenContext;

// The host nodes of a graph, the turns that a launch takes for them in a queue
// (TaskQueue::kTurns), and its lanes.
struct GraphFunctions {
  size_t count = 0;
  bool alone = false;         // without other nodes: like functions of a stream
  bool side_by_side = false;  // some nodes may run at the same time
  bool beside_kernels = false;
  uint64_t graph = 0;                                 // the executable graph
  size_t lanes = 0;                                   // that have more than copies and host nodes
  std::vector<ChannelPointer>* side_lanes = nullptr;  // of the executable graph
  size_t turns() const { return alone ? 0 : (side_by_side ? 4 : 2) * count; }
  bool is_nothing() const { return alone && count == 0; }
  TaskKind task_kind() const {
    if (alone && count > 0) return TaskKind::kHostFunction;
    return beside_kernels ? TaskKind::kGraphWithKernels : TaskKind::kDeviceWork;
  }
};

class Context : public std::enable_shared_from_this<Context> {
 public:
  static constexpr ObjectKind kKind = ObjectKind::kContext;

  // Null: the GPU has no memory for it.
  static std::shared_ptr<Context> create(Device& device, unsigned flags, bool primary);

  Device& device() const { return device_; }
  uint64_t id() const { return id_; }
  bool primary() const { return primary_; }
  CUcontext handle() const { return handle_; }
  void set_handle(CUcontext handle) { handle_ = handle; }
  unsigned flags() const { return flags_.load(); }
  void set_flags(unsigned flags) { flags_.store(flags); }
  ContextMemory& memory() { return *memory_; }
  std::shared_ptr<ContextMemory> shared_memory() { return memory_; }
  PrintfBuffer& output() { return output_; }

  // The sticky error; CUDA_SUCCESS while there is none.
  CUresult error() const { return static_cast<CUresult>(error_.load(std::memory_order_acquire)); }
  // The first failure stays. `text` goes to the log.
  void fail(CUresult error, std::string_view text);
  // The usage count of cuCtxAttach and cuCtxDetach; true: that was the last user.
  void attach() { users_.fetch_add(1); }
  bool detach() { return users_.fetch_sub(1) == 1; }
  bool alive() const { return alive_.load(std::memory_order_acquire); }

  // --- streams
  std::shared_ptr<Stream> legacy_stream() const { return legacy_; }
  std::shared_ptr<Stream> per_thread_stream();
  std::shared_ptr<Stream> create_stream(unsigned flags, int priority,
                                        std::shared_ptr<GreenContext> green = nullptr);
  void forget_stream(const std::shared_ptr<Stream>& stream);
  // Queues work, to run after `extra` and after earlier work by the ordering rules.
  Fence submit(const std::shared_ptr<Stream>& stream, std::function<void()> run,
               std::vector<Fence> extra = {});
  // Of work that others wait for by an event: `make` receives the event at the end of the work, and
  // returns the work. No other thread submits to the context meanwhile, so a stream that waits for
  // the event never has its place ahead of the work. It must not call the context.
  using Make = std::function<std::function<void()>(const Fence& done)>;
  Fence submit_made(const std::shared_ptr<Stream>& stream, const Make& make,
                    std::vector<Fence> extra = {});
  // Kernels, copies, fills and operations on memory: they take places in the stream's queue, and
  // the caller waits when there is none (TaskQueue::kPlaces). `bytes`: kept in the queue.
  void submit_to_device(const std::shared_ptr<Stream>& stream, std::function<void()> run,
                        size_t bytes = 0, ChannelKind kind = ChannelKind::kCompute);
  void submit_host_function(const std::shared_ptr<Stream>& stream, std::function<void()> run);
  // With Settings::stream_waits submit_host_function() waits while a copy to pageable memory holds
  // this, as seen on an H200 with driver 580; other work goes on.
  std::shared_lock<std::shared_mutex> hold_functions_off();
  // A launch of a graph, which may record events. `places`: of its nodes. With
  // Settings::locked_waits no other thread can submit to the context while it waits for turns.
  Fence submit_graph(const std::shared_ptr<Stream>& stream, const Make& make, size_t places,
                     GraphFunctions functions);
  // As submit(), and waits; runs it on the calling thread when no work is ahead of it.
  void submit_and_wait(const std::shared_ptr<Stream>& stream, std::function<void()> run);
  // Queues work outside of all streams that runs after all earlier work of the context. Here and
  // below `green` means only the streams of that green context; null: all.
  Fence submit_after_all(const Make& make, const GreenContext* green = nullptr);
  // Work of the context that a launch in a stream of another one does. It belongs to none of the
  // streams here: only waits for the whole context see it.
  void add_from_elsewhere(Fence done);
  // All later work of the context waits for the fence.
  void gate(Fence fence, GreenContext* green = nullptr);
  // Whether something that was put into this very stream has not ended.
  bool has_own_work(const Stream& stream) const;
  // The work that must end for the stream to count as idle.
  std::vector<Fence> outstanding(const std::shared_ptr<Stream>& stream) const;
  std::vector<Fence> outstanding(const GreenContext* green = nullptr) const;
  // Wait, print the output of kernels, and return the sticky error.
  CUresult synchronize(const std::shared_ptr<Stream>& stream);
  CUresult synchronize(const GreenContext* green = nullptr);
  // The same, before something is freed that work may use. With Settings::locked_waits no thread
  // can submit to the context or query it meanwhile.
  CUresult quiesce();
  // With Settings::locked_waits the same, for calls that wait on real drivers only; else nothing.
  void quiesce_if_locked();

  // Waits for all work (waits for values in memory are given up), then frees everything the context
  // owns. Only the first call does.
  void destroy();

  // --- limits and preferences, each guarded by mutex_
  CUresult limit(CUlimit limit, size_t* value) const;
  CUresult set_limit(CUlimit limit, size_t value);
  CUfunc_cache cache_config() const { return cache_config_.load(); }
  void set_cache_config(CUfunc_cache config) { cache_config_.store(config); }
  CUsharedconfig shared_config() const { return shared_config_.load(); }
  void set_shared_config(CUsharedconfig config) { shared_config_.store(config); }

 private:
  Context(Device& device, unsigned flags, bool primary);
  bool has_limit(CUlimit limit) const;
  void prune_streams();
  // The turns of functions in a blocking stream that will wait for the legacy stream.
  size_t turns_beside_legacy(const Stream& stream, const GraphFunctions& functions) const;
  // Whether the next work of a stream that waits for the legacy one is right behind its function.
  bool take_legacy_function();
  void note_legacy_work(const Fence& done);  // with submit_mutex_ held
  Fence push(Stream& stream, Task task);
  Fence push_locked(Stream& stream, Task task);  // with submit_mutex_ held, as the next one
  Fence make_locked(Stream& stream, const Make& make, Task task);
  std::vector<Fence> pending_work(
      const GreenContext* green = nullptr) const;  // needs submit_mutex_
  std::vector<Fence> ahead_of(const Stream& stream, std::vector<Fence> extra) const;

  Device& device_;
  const uint64_t id_;
  const bool primary_;
  CUcontext handle_ = nullptr;  // set once, before the context is published
  std::atomic<unsigned> flags_;
  std::atomic<int> error_{CUDA_SUCCESS};
  std::atomic<bool> alive_{true};
  std::atomic<int> users_{1};
  std::atomic<CUfunc_cache> cache_config_{CU_FUNC_CACHE_PREFER_NONE};
  std::atomic<CUsharedconfig> shared_config_{CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE};
  std::shared_ptr<ContextMemory> memory_;
  PrintfBuffer output_;

  mutable std::mutex submit_mutex_;  // orders submissions of all streams; guards Stream::last and
                                     // the members up to the next blank line
  std::shared_ptr<Stream> legacy_;
  std::vector<std::shared_ptr<Stream>> streams_;
  std::map<uint64_t, std::shared_ptr<Stream>> per_thread_;
  std::vector<Fence> gates_;  // all later work waits for these
  std::vector<Fence> from_elsewhere_;
  Fence legacy_work_;      // the newest of the legacy stream; no event, no function
  Fence legacy_function_;  // its newest, with no work behind it yet
  const Channels channels_;

  std::shared_mutex functions_mutex_;  // taken before submit_mutex_

  mutable std::mutex limits_mutex_;
  std::array<size_t, CU_LIMIT_MAX> limits_{};
};

}  // namespace fargpu::sim
