#include "sim/base/task_queue.h"

#include <atomic>
#include <random>
#include <thread>

namespace fargpu::sim {
namespace {

constexpr std::chrono::seconds kIdle{2};

// Both set before the first task.
std::atomic<int64_t> jitter_microseconds{0};
std::atomic<size_t> places_of_a_queue{TaskQueue::kPlaces};

void wait_by_chance() {
  const int64_t most = jitter_microseconds.load(std::memory_order_relaxed);
  if (most == 0) return;
  thread_local std::minstd_rand random{std::random_device()()};
  if (random() % 4 != 0) return;
  std::this_thread::sleep_for(std::chrono::microseconds(random() % (most + 1)));
}

}  // namespace

void TaskQueue::set_jitter(std::chrono::microseconds most) { jitter_microseconds = most.count(); }

void TaskQueue::set_places(size_t places) { places_of_a_queue = places; }

void TaskQueue::push(Task task) {
  {
    std::lock_guard lock(mutex_);
    if (is_host(task.kind)) last_ = task.kind;
    tasks_.push_back(std::move(task));
    if (!started_) {
      started_ = true;
      std::thread([self = shared_from_this()] { self->work(); }).detach();
    }
  }
  changed_.notify_one();
}

bool TaskQueue::has_room(const QueuePlace& place) const {
  const size_t most = places_of_a_queue.load(std::memory_order_relaxed);
  const bool has_places = place.places <= kPlaces
                              ? places_taken_ + place.places <= most || places_taken_ == 0
                              : tasks_.empty() && !busy_;
  return has_places &&
         (place.bytes == 0 || all_taken_.bytes + place.bytes <= kBytes || places_taken_ == 0) &&
         (place.turns == 0 || all_taken_.turns + place.turns <= kTurns || all_taken_.turns == 0);
}

QueuePlace TaskQueue::take_place(size_t bytes, size_t places, size_t turns, TaskKind kind) {
  std::unique_lock lock(mutex_);
  QueuePlace place{places, bytes, turns, turns > 0};
  if (is_host(last_) && !is_host(kind)) {
    place.turns += turns != 0 || kind == TaskKind::kGraphWithKernels ? 2 : 1;
  }
  room_.wait(lock, [&] { return has_room(place); });
  last_ = kind;
  places_taken_ += place.places;
  all_taken_.bytes += place.bytes;
  all_taken_.turns += place.turns;
  return place;
}

void TaskQueue::give_back(QueuePlace& place, bool at_its_end) {
  if (!at_its_end) {
    places_taken_ -= place.places;
    all_taken_.bytes -= place.bytes;
  }
  if (place.turns_to_its_end == at_its_end) all_taken_.turns -= place.turns;
}

bool TaskQueue::try_begin_inline() {
  if (jitter_microseconds.load(std::memory_order_relaxed) != 0) return false;
  std::lock_guard lock(mutex_);
  if (busy_ || !tasks_.empty()) return false;
  busy_ = true;
  return true;
}

void TaskQueue::end_inline() {
  {
    std::lock_guard lock(mutex_);
    busy_ = false;
  }
  changed_.notify_one();
  room_.notify_all();
}

void TaskQueue::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    const auto ready = [this] { return !busy_ && !tasks_.empty(); };
    if (!changed_.wait_for(lock, kIdle, ready)) {
      if (busy_ || !tasks_.empty()) continue;
      started_ = false;
      return;
    }
    Task task = std::move(tasks_.front());
    tasks_.pop_front();
    busy_ = true;
    lock.unlock();
    for (const Fence& fence : task.after) fence->wait();
    if (task.begun) task.begun->complete();
    wait_by_chance();
    if (task.place.places > 0) {
      lock.lock();
      give_back(task.place, /*at_its_end=*/false);
      lock.unlock();
      room_.notify_all();
    }
    task.run();
    // What the task holds (staging buffers, modules) is released before its end is signalled.
    task.run = nullptr;
    wait_by_chance();
    task.done->complete();
    lock.lock();
    busy_ = false;
    if (task.place.turns_to_its_end) give_back(task.place, /*at_its_end=*/true);
    room_.notify_all();
  }
}

}  // namespace fargpu::sim
