// The work of one stream, executed in order by a thread of its own, which starts with the first
// task and ends when there has been none for a while. Before a task runs, the fences it names are
// waited for; they always belong to work submitted earlier, so no cycle can arise.
//
// Thread safe. The thread keeps the queue alive; dropping the last outside reference lets it finish
// what is queued.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "sim/base/completion.h"

namespace fargpu::sim {

struct Task {
  std::function<void()> run;
  std::vector<Fence> after;
  Fence done;
  bool has_place = false;  // take_place() was called for it
};

class TaskQueue : public std::enable_shared_from_this<TaskQueue> {
 public:
  // So much work may wait in a stream, as counted on an H100 (driver 580): who submits more waits
  // until some has begun. Events and host functions take no place.
  static constexpr size_t kPlaces = 1021;

  // Of all queues, once, before the first task: one task of four waits for a random time of up to
  // this much, and none runs inline.
  static void set_jitter(std::chrono::microseconds most);
  // Of all queues, once, before the first task: fewer places than kPlaces.
  static void set_places(size_t places);

  void push(Task task);
  // Waits until there is a place for a task that is about to be pushed.
  void take_place();
  // Claims an idle queue for the calling thread, which then runs one task itself and calls
  // end_inline(). false: there is work in it.
  bool try_begin_inline();
  void end_inline();

 private:
  void work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::condition_variable room_;
  size_t places_taken_ = 0;
  std::deque<Task> tasks_;
  bool busy_ = false;     // a task is being executed, by the thread or inline
  bool started_ = false;  // the thread exists
};

}  // namespace fargpu::sim
