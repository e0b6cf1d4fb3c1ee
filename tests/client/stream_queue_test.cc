#include "client/stream/stream_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

namespace fargpu::client {
namespace {

using namespace std::chrono_literals;

// Marks are reached when the test says so.
class FakeWorker final : public QueueMarks::Worker {
 public:
  bool ask(uint64_t ticket) override {
    if (refuses) return false;
    std::lock_guard lock(mutex_);
    asked_.push_back(ticket);
    return true;
  }
  std::vector<uint64_t> asked() {
    std::lock_guard lock(mutex_);
    return asked_;
  }
  bool wait(const std::function<bool()>& seen) override {
    ++waits;
    while (!seen() && !lost) std::this_thread::sleep_for(1ms);
    return !lost;
  }
  bool refuses = false;
  std::atomic<int> waits{0};
  std::atomic<bool> lost{false};

 private:
  std::mutex mutex_;
  std::vector<uint64_t> asked_;
};

class StreamQueueTest : public testing::Test {
 protected:
  void submit(uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) {
      if (queue_->take()) continue;
      ++looks_;
      marks_.wait_for_place(queue_, worker_);
    }
  }
  // One operation that takes several places.
  void submit_large(uint32_t places) {
    if (!queue_->take_ahead(places)) marks_.wait_for_places(queue_, places, worker_);
    submit(1);
  }
  std::shared_ptr<StreamQueue> queue_ = std::make_shared<StreamQueue>();
  QueueMarks marks_;
  FakeWorker worker_;
  int looks_ = 0;
};

TEST_F(StreamQueueTest, AsksOnceForAStep) {
  submit(StreamQueue::kStep);
  EXPECT_TRUE(worker_.asked().empty());
  submit(StreamQueue::kMost - StreamQueue::kStep);
  EXPECT_EQ(worker_.asked().size(), StreamQueue::kMost / StreamQueue::kStep - 1);
  EXPECT_EQ(looks_, 3);
  EXPECT_EQ(worker_.waits, 0) << "there is room";
}

TEST_F(StreamQueueTest, NeverWaitsForAGpuThatKeepsUp) {
  for (int i = 0; i < 100; ++i) {
    submit(StreamQueue::kStep);
    if (!worker_.asked().empty()) marks_.reached(worker_.asked().back());
  }
  EXPECT_EQ(worker_.waits, 0);
  EXPECT_LE(looks_, 101);
}

TEST_F(StreamQueueTest, WaitsWhenTheStreamIsFullUntilTheGpuHasGotOn) {
  submit(StreamQueue::kMost);
  std::atomic<int> done{0};
  std::thread submitter([&] {
    submit(StreamQueue::kStep);
    done = 1;
    submit(1);
    done = 2;
  });
  while (worker_.waits < 1) std::this_thread::sleep_for(1ms);
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(done, 0);
  marks_.reached(worker_.asked()[0]);
  while (done == 0 || worker_.waits < 2) std::this_thread::sleep_for(1ms);
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(done, 1);
  marks_.reached(worker_.asked()[1]);
  submitter.join();
  EXPECT_EQ(done, 2);
}

TEST_F(StreamQueueTest, AMarkCoversOnlyWhatWasSent) {
  submit_large(600);
  EXPECT_TRUE(worker_.asked().empty()) << "nothing was sent before it";
  EXPECT_EQ(looks_, 0);
  std::atomic<bool> done{false};
  std::thread submitter([&] {
    submit_large(600);
    done = true;
  });
  while (worker_.waits < 1) std::this_thread::sleep_for(1ms);
  std::this_thread::sleep_for(50ms);
  EXPECT_FALSE(done) << "1200 places";
  EXPECT_EQ(worker_.asked().size(), 1u);
  marks_.reached(worker_.asked()[0]);
  submitter.join();
  // Of the second one nothing is known.
  submit(StreamQueue::kMost - 600);
  EXPECT_EQ(worker_.waits, 1);
  worker_.lost = true;
  submit(1);
  EXPECT_EQ(worker_.waits, 2);
}

TEST_F(StreamQueueTest, AnOperationOfAllPlacesWaitsForAnEmptyQueue) {
  submit(1);
  std::thread submitter([&] { submit_large(StreamQueue::kMost); });
  while (worker_.waits < 1) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(worker_.asked().size(), 1u);
  marks_.reached(worker_.asked()[0]);
  submitter.join();
  EXPECT_EQ(queue_->position(), 1 + StreamQueue::kMost);
}

TEST_F(StreamQueueTest, AMarkThatCannotBeAskedForCountsAsReached) {
  worker_.refuses = true;
  submit(10 * StreamQueue::kMost);
  EXPECT_EQ(worker_.waits, 0);
}

TEST_F(StreamQueueTest, OldAndUnknownMarksChangeNothing) {
  submit(StreamQueue::kMost);
  marks_.reached(worker_.asked()[1]);
  marks_.reached(worker_.asked()[0]);
  marks_.reached(worker_.asked()[0]);
  marks_.reached(12345);
  submit(2 * StreamQueue::kStep);
  EXPECT_EQ(worker_.waits, 0);
}

TEST_F(StreamQueueTest, ALostSessionEndsTheWait) {
  submit(StreamQueue::kMost);
  worker_.lost = true;
  submit(3);
}

TEST_F(StreamQueueTest, ASynchronisationShowsThatThereIsRoom) {
  submit(StreamQueue::kStep / 2);
  queue_->done(queue_->position());
  submit(StreamQueue::kMost);
  EXPECT_EQ(worker_.waits, 0);
  queue_->done(queue_->position());
  submit(StreamQueue::kMost);
  EXPECT_EQ(worker_.waits, 0);
  queue_->done(1);  // an old one
  worker_.lost = true;
  submit(1);
  EXPECT_EQ(worker_.waits, 1);
}

TEST_F(StreamQueueTest, AMarkMayComeAfterItsStream) {
  submit(StreamQueue::kStep + 1);
  queue_.reset();
  marks_.reached(worker_.asked()[0]);
}

TEST_F(StreamQueueTest, CountsWrap) {
  queue_ = std::make_shared<StreamQueue>(0u - StreamQueue::kMost / 2);
  submit(StreamQueue::kMost);
  EXPECT_EQ(worker_.waits, 0);
  EXPECT_EQ(worker_.asked().size(), 3u);
  marks_.reached(worker_.asked()[1]);
  submit(2 * StreamQueue::kStep);
  EXPECT_EQ(worker_.waits, 0);
  worker_.lost = true;  // nothing would be reached any more
  submit(1);
  EXPECT_EQ(worker_.waits, 1);
}

// By what was counted on a driver: it takes that many operations of these sizes.
TEST(StreamQueuePlacesTest, WhatLiesInTheQueueTakesPlacesByItsBytes) {
  const auto most = [](uint32_t bytes) {
    return StreamQueue::kMost / StreamQueue::places_of(bytes);
  };
  EXPECT_EQ(most(StreamQueue::kBytesOfLaunch), StreamQueue::kMost);
  EXPECT_LE(most(4000 + StreamQueue::kBytesOfLaunch), 735u);
  EXPECT_EQ(most(4096 + StreamQueue::kBytesOfCopy), StreamQueue::kMost);
  EXPECT_LE(most(16384 + StreamQueue::kBytesOfCopy), 250u);
  EXPECT_GE(most(16384 + StreamQueue::kBytesOfCopy), 200u);
  EXPECT_LE(most(65536 + StreamQueue::kBytesOfCopy), 63u);
}

}  // namespace
}  // namespace fargpu::client
