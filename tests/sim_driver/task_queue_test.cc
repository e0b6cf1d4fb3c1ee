#include "sim/base/task_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace fargpu::sim {
namespace {

TEST(TaskQueueTest, RunsInOrderAndKeepsRunningWithoutOwner) {
  std::vector<int> order;
  auto last = std::make_shared<Completion>();
  {
    auto queue = std::make_shared<TaskQueue>();
    for (int i = 0; i < 100; ++i) {
      queue->push(Task{[&order, i] { order.push_back(i); },
                       {},
                       i == 99 ? last : std::make_shared<Completion>()});
    }
  }
  last->wait();
  ASSERT_EQ(order.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
}

TEST(TaskQueueTest, WaitsForFences) {
  auto gate = std::make_shared<Completion>();
  auto first = std::make_shared<TaskQueue>();
  auto done = std::make_shared<Completion>();
  bool open = false, seen = false;
  first->push(Task{[&] { seen = open; }, {gate}, done});
  EXPECT_FALSE(done->done());
  open = true;
  gate->complete();
  done->wait();
  EXPECT_TRUE(seen);
}

TEST(TaskQueueTest, InlineUseExcludesTheThread) {
  auto queue = std::make_shared<TaskQueue>();
  ASSERT_TRUE(queue->try_begin_inline());
  EXPECT_FALSE(queue->try_begin_inline());
  auto done = std::make_shared<Completion>();
  int value = 0, seen = -1;
  queue->push(Task{[&] { seen = value; }, {}, done});
  value = 1;
  queue->end_inline();
  done->wait();
  EXPECT_EQ(seen, 1);
}

// Whether a place is there only when `gate` has opened.
bool waits_for(TaskQueue& queue, Completion& gate, size_t bytes = 0, size_t turns = 0) {
  std::atomic<bool> taken{false};
  std::thread submitter([&] {
    (void)queue.take_place(bytes, 1, turns);
    taken = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const bool waited = !taken;
  gate.complete();
  submitter.join();
  return waited;
}

TEST(TaskQueueTest, WhoSubmitsTooMuchWaitsForAPlace) {
  auto queue = std::make_shared<TaskQueue>();
  auto gate = std::make_shared<Completion>();
  for (size_t i = 0; i < TaskQueue::kPlaces; ++i)
    queue->push(Task{[] {}, {gate}, std::make_shared<Completion>(), queue->take_place()});
  auto event = std::make_shared<Completion>();
  queue->push(Task{[] {}, {}, event});  // takes no place
  EXPECT_TRUE(waits_for(*queue, *gate));
  event->wait();
}

TEST(TaskQueueTest, NodesOfAGraphTakePlaces) {
  auto queue = std::make_shared<TaskQueue>();
  auto gate = std::make_shared<Completion>();
  // Alone there is room for any.
  const QueuePlace place = queue->take_place(0, TaskQueue::kPlaces + 1);
  queue->push(Task{[] {}, {gate}, std::make_shared<Completion>(), place});
  EXPECT_TRUE(waits_for(*queue, *gate));
}

TEST(TaskQueueTest, BytesInTheQueueTakeRoom) {
  constexpr size_t kEach = 64 << 10;
  auto queue = std::make_shared<TaskQueue>();
  auto gate = std::make_shared<Completion>();
  for (size_t i = 0; i < TaskQueue::kBytes / kEach; ++i)
    queue->push(Task{[] {}, {gate}, std::make_shared<Completion>(), queue->take_place(kEach)});
  queue->push(Task{[] {}, {}, std::make_shared<Completion>(), queue->take_place()});
  EXPECT_TRUE(waits_for(*queue, *gate, kEach));
}

TEST(TaskQueueTest, WorkBehindHostFunctionsTakesTurns) {
  auto queue = std::make_shared<TaskQueue>();
  auto gate = std::make_shared<Completion>();
  const auto push_function = [&] {
    queue->push(Task{[] {}, {gate}, std::make_shared<Completion>(), {}, TaskKind::kHostFunction});
  };
  for (size_t i = 0; i < TaskQueue::kTurns; ++i) {
    push_function();
    push_function();
    for (int work = 0; work < 2; ++work)
      queue->push(Task{[] {}, {}, std::make_shared<Completion>(), queue->take_place()});
  }
  for (int i = 0; i < 1000; ++i) push_function();
  EXPECT_TRUE(waits_for(*queue, *gate));
}

// As counted on an H200: the 57th launch waits, of whatever is in a graph of host nodes.
TEST(TaskQueueTest, GraphsWithKernelsBehindHostFunctionsTakeTwoTurns) {
  auto queue = std::make_shared<TaskQueue>();
  auto gate = std::make_shared<Completion>();
  const auto launch = [&](TaskKind kind) {
    const QueuePlace place = queue->take_place(0, 1, 0, kind);
    queue->push(Task{[] {}, {gate}, std::make_shared<Completion>(), place, kind});
  };
  for (size_t i = 0; i < TaskQueue::kTurns / 2; ++i) {
    launch(TaskKind::kHostFunction);
    launch(TaskKind::kGraphWithKernels);
  }
  launch(TaskKind::kHostFunction);
  EXPECT_TRUE(waits_for(*queue, *gate));
}

}  // namespace
}  // namespace fargpu::sim
