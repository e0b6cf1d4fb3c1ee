#include "sim/driver/task_queue.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace fargpu::sim
