// The work of one stream, executed in order by a thread of its own, which starts with the first
// task and ends when there has been none for a while. Before a task runs, the fences it names are
// waited for; they always belong to work submitted earlier, so no cycle can arise.
//
// Thread safe. The thread keeps the queue alive; dropping the last outside reference lets it finish
// its queued tasks.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "sim/base/completion.h"

namespace fargpu::sim {

// The places and turns of a task in its queue (TaskQueue::take_place).
struct QueuePlace {
  size_t places = 0;
  size_t bytes = 0;
  size_t turns = 0;               // behind host functions
  bool turns_to_its_end = false;  // else until it begins
};

enum class TaskKind : uint8_t {
  kDeviceWork,
  kGraphWithKernels,
  kHostFunction,  // or a graph of host nodes alone
};
constexpr bool is_host(TaskKind kind) { return kind == TaskKind::kHostFunction; }

struct Task {
  std::function<void()> run;
  std::vector<Fence> after;
  Fence done;
  QueuePlace place{};
  TaskKind kind = TaskKind::kDeviceWork;
  Fence begun = nullptr;  // completed when all of `after` is over; null: nobody asks
};

class TaskQueue : public std::enable_shared_from_this<TaskQueue> {
 public:
  // So much work may wait in a stream, as counted on an H100 (driver 580): the call that submits
  // more waits until some has begun. Events and host functions take no place.
  static constexpr size_t kPlaces = 1021;
  // The memory that the queue itself keeps: parameters of launches, bytes of small copies.
  static constexpr size_t kBytes = size_t{4} << 20;
  // Work behind a host function takes one more thing, until it begins; each host node of a graph
  // takes two of them, and so does a graph with kernels behind a host function.
  static constexpr size_t kTurns = 56;

  // Of all queues, once, before the first task: one task of four waits for a random time of up to
  // this much, and none runs inline.
  static void set_jitter(std::chrono::microseconds most);
  // Of all queues, once, before the first task: fewer places than kPlaces.
  static void set_places(size_t places);

  void push(Task task);
  // Waits until there is a place for a task that is about to be pushed, which keeps `bytes` in the
  // queue. The result belongs to the task. `places`, `turns`: of a graph's nodes. More places than
  // kPlaces wait until the queue is idle, more turns than kTurns until all are given back.
  QueuePlace take_place(size_t bytes = 0, size_t places = 1, size_t turns = 0,
                        TaskKind kind = TaskKind::kDeviceWork);
  // Claims an idle queue for the calling thread, which then runs one task itself and calls
  // end_inline(). false: there is work in it.
  bool try_begin_inline();
  void end_inline();

 private:
  void work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::condition_variable room_;
  bool has_room(const QueuePlace& place) const;  // with mutex_ held, as give_back()
  void give_back(QueuePlace& place, bool at_its_end);

  QueuePlace all_taken_;  // by tasks in the queue
  size_t places_taken_ = 0;
  TaskKind last_ = TaskKind::kDeviceWork;
  std::deque<Task> tasks_;
  bool busy_ = false;     // a task is being executed, by the thread or inline
  bool started_ = false;  // the thread exists
};

}  // namespace fargpu::sim
