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

TEST(TaskQueueTest, WhoSubmitsTooMuchWaitsForAPlace) {
  auto queue = std::make_shared<TaskQueue>();
  auto gate = std::make_shared<Completion>();
  for (size_t i = 0; i < TaskQueue::kPlaces; ++i) {
    queue->take_place();
    queue->push(Task{[] {}, {gate}, std::make_shared<Completion>(), true});
  }
  auto event = std::make_shared<Completion>();
  queue->push(Task{[] {}, {}, event});  // takes no place
  std::atomic<bool> taken{false};
  std::thread submitter([&] {
    queue->take_place();
    taken = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(taken);
  gate->complete();
  submitter.join();
  event->wait();
  EXPECT_TRUE(taken);
}

}  // namespace
}  // namespace fargpu::sim
