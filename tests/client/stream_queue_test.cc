#include "client/stream/stream_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

#include "client/process/queue_marks.h"
#include "common/wire/slot_message.h"
#include "generated/schema/internal.capnp.h"
#include "generated/schema/opcodes.h"
#include "tests/client/loopback_link.h"

namespace fargpu::client {
namespace {

using namespace std::chrono_literals;

// Takes marks, which are reached when the test says so.
class MarkedWorker {
 public:
  explicit MarkedWorker(const wire::OpcodeSet& known = bootstrap::known_opcodes())
      : link([this](rpc::Responder&, const test::ReceivedFrame& request) { return serve(request); },
             known) {}
  // What came by now.
  std::vector<uint64_t> asked() {
    link.settle();
    return now();
  }
  size_t count_soon(size_t count) {
    for (int i = 0; i < 20000 && now().size() < count; ++i) std::this_thread::sleep_for(1ms);
    return now().size();
  }

 private:
  std::vector<uint64_t> now() {
    std::lock_guard lock(mutex_);
    return asked_;
  }
  Status serve(const test::ReceivedFrame& request) {
    EXPECT_EQ(request.header.opcode, schema::op_fgQueueMark);
    EXPECT_EQ(request.header.context, kStream.context);
    wire::SegmentReader body(request.body);
    const auto mark = body.getRoot<schema::FgQueueMarkParams>();
    EXPECT_EQ(mark.getStream(), kStream.id);
    std::lock_guard lock(mutex_);
    asked_.push_back(mark.getTicket());
    return Status();
  }

  std::mutex mutex_;
  std::vector<uint64_t> asked_;

 public:
  static constexpr QueueMarks::Stream kStream{3, 77};
  LoopbackLink link;
};

class StreamQueueTest : public testing::Test {
 protected:
  void submit(uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) {
      if (queue_->take()) continue;
      ++looks_;
      marks_.wait_for_place(queue_, MarkedWorker::kStream);
    }
  }
  // One operation, of which the position is returned.
  uint32_t count_one() {
    uint32_t position = 0;
    (void)queue_->take_exactly(&position);
    return position;
  }
  // One operation that takes several places.
  void submit_large(uint32_t places) {
    if (!queue_->take_ahead(places, /*exactly=*/false))
      marks_.wait_for_places(queue_, places, MarkedWorker::kStream);
    submit(1);
  }
  void reach(uint64_t ticket) {
    marks_.reached(ticket);
    worker_.link.settle();  // who waits gets a frame, as by the notice
  }
  // Whether one more operation waits. The session is lost then, which ends the wait.
  bool waits_at_last() {
    std::atomic<bool> done{false};
    std::thread submitter([&] {
      submit(1);
      done = true;
    });
    std::this_thread::sleep_for(50ms);
    const bool waits = !done;
    worker_.link.stop();
    submitter.join();
    return waits;
  }

  std::shared_ptr<StreamQueue> queue_ = std::make_shared<StreamQueue>();
  MarkedWorker worker_;
  QueueMarks marks_{worker_.link};
  int looks_ = 0;
};

TEST_F(StreamQueueTest, AsksOnceForAStep) {
  submit(StreamQueue::kStep);
  EXPECT_TRUE(worker_.asked().empty());
  submit(StreamQueue::kMost - StreamQueue::kStep);
  EXPECT_EQ(worker_.asked().size(), StreamQueue::kMost / StreamQueue::kStep - 1);
  EXPECT_EQ(looks_, 3);
}

TEST_F(StreamQueueTest, NeverWaitsForAGpuThatKeepsUp) {
  for (int i = 0; i < 100; ++i) {
    submit(StreamQueue::kStep);
    if (const auto asked = worker_.asked(); !asked.empty()) reach(asked.back());
  }
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
  ASSERT_EQ(worker_.count_soon(4), 4u);
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(done, 0);
  reach(worker_.asked()[0]);
  ASSERT_EQ(worker_.count_soon(5), 5u);
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(done, 1);
  reach(worker_.asked()[1]);
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
  ASSERT_EQ(worker_.count_soon(1), 1u);
  std::this_thread::sleep_for(50ms);
  EXPECT_FALSE(done) << "1200 places";
  EXPECT_EQ(worker_.asked().size(), 1u);
  reach(worker_.asked()[0]);
  submitter.join();
  // Of the second one nothing is known.
  submit(StreamQueue::kMost - 600);
  EXPECT_TRUE(waits_at_last());
}

TEST_F(StreamQueueTest, WhatCameToNothingIsNoWork) {
  submit(3);
  queue_->done(3);
  queue_->begin_sending();
  const uint32_t position = count_one();
  EXPECT_TRUE(queue_->may_have_work());
  queue_->give_back(position);
  queue_->end_sending();
  EXPECT_FALSE(queue_->may_have_work());
}

TEST_F(StreamQueueTest, WhatOthersCountedSinceIsNotGivenBack) {
  queue_->begin_sending();
  const uint32_t position = count_one();
  submit(1);
  queue_->give_back(position);
  queue_->end_sending();
  EXPECT_EQ(queue_->position(), 2u);
  EXPECT_TRUE(queue_->may_have_work());
}

TEST_F(StreamQueueTest, AMarkDoesNotCoverWhatIsBeingSent) {
  submit(3);
  queue_->begin_sending();
  count_one();
  EXPECT_EQ(queue_->position(), 4u);
  EXPECT_EQ(queue_->covered_position(), 3u);
  marks_.follow(queue_, MarkedWorker::kStream);
  reach(worker_.asked().at(0));
  EXPECT_TRUE(queue_->may_have_work());
  marks_.follow(queue_, MarkedWorker::kStream);
  EXPECT_EQ(worker_.asked().size(), 1u);  // nothing more was sent
  queue_->end_sending();
  marks_.follow(queue_, MarkedWorker::kStream);
  reach(worker_.asked().at(1));
  EXPECT_FALSE(queue_->may_have_work());
}

TEST_F(StreamQueueTest, AMarkForAPlaceDoesNotCoverWhatAnotherThreadSends) {
  submit(StreamQueue::kStep - 2);
  for (int others = 0; others < 3; ++others) {
    queue_->begin_sending();
    count_one();
  }
  marks_.wait_for_place(queue_, MarkedWorker::kStream);  // of the last one
  ASSERT_EQ(worker_.asked().size(), 1u);
  reach(worker_.asked().at(0));
  for (int others = 0; others < 3; ++others) queue_->end_sending();
  queue_->done(StreamQueue::kStep - 2);  // no news, if the mark covered no more
  EXPECT_TRUE(queue_->may_have_work());
  marks_.follow(queue_, MarkedWorker::kStream);
  EXPECT_EQ(worker_.asked().size(), 2u);  // the mark lay in front of all three
}

TEST_F(StreamQueueTest, WhatWasSetBackIsUnfinishedAndCanBeMarked) {
  submit(5);
  queue_->done(9);  // four counts were lost
  EXPECT_TRUE(queue_->may_have_work());
  marks_.follow(queue_, MarkedWorker::kStream);
  ASSERT_EQ(worker_.asked().size(), 1u);
  reach(worker_.asked().at(0));
  EXPECT_FALSE(queue_->may_have_work());
  count_one();
  EXPECT_TRUE(queue_->may_have_work());
}

TEST_F(StreamQueueTest, NoCountIsLostWhereAllCountExactly) {
  constexpr uint32_t kThreads = 4, kCounts = 20000;
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (uint32_t count = 0; count < kCounts; ++count) count_one();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(queue_->position(), kThreads * kCounts);
}

TEST_F(StreamQueueTest, AnOperationOfAllPlacesWaitsForAnEmptyQueue) {
  submit(1);
  std::thread submitter([&] { submit_large(StreamQueue::kMost); });
  ASSERT_EQ(worker_.count_soon(1), 1u);
  reach(worker_.asked()[0]);
  submitter.join();
  EXPECT_EQ(queue_->position(), 1 + StreamQueue::kMost);
}

TEST_F(StreamQueueTest, AMarkThatCannotBeAskedForCountsAsReached) {
  MarkedWorker old(wire::OpcodeSet{});
  QueueMarks marks(old.link);
  for (uint32_t i = 0; i < 10 * StreamQueue::kMost; ++i) {
    if (!queue_->take()) marks.wait_for_place(queue_, MarkedWorker::kStream);
  }
  EXPECT_TRUE(marks.set(MarkedWorker::kStream)->is_reached());
  EXPECT_TRUE(old.asked().empty());
}

TEST_F(StreamQueueTest, OldAndUnknownMarksChangeNothing) {
  submit(StreamQueue::kMost);
  marks_.reached(worker_.asked()[1]);
  marks_.reached(worker_.asked()[0]);
  marks_.reached(worker_.asked()[0]);
  marks_.reached(12345);
  submit(2 * StreamQueue::kStep);
}

TEST_F(StreamQueueTest, ALostSessionEndsTheWait) {
  submit(StreamQueue::kMost);
  EXPECT_TRUE(waits_at_last());
  submit(3);
}

TEST_F(StreamQueueTest, ASynchronisationShowsThatThereIsRoom) {
  submit(StreamQueue::kStep / 2);
  queue_->done(queue_->position());
  submit(StreamQueue::kMost);
  queue_->done(queue_->position());
  submit(StreamQueue::kMost);
  queue_->done(1);  // an old one
  EXPECT_TRUE(waits_at_last());
}

TEST_F(StreamQueueTest, AMarkMayComeAfterItsStream) {
  submit(StreamQueue::kStep + 1);
  queue_.reset();
  marks_.reached(worker_.asked()[0]);
}

TEST_F(StreamQueueTest, CountsWrap) {
  queue_ = std::make_shared<StreamQueue>(0u - StreamQueue::kMost / 2);
  submit(StreamQueue::kMost);
  EXPECT_EQ(worker_.asked().size(), 3u);
  marks_.reached(worker_.asked()[1]);
  submit(2 * StreamQueue::kStep);
  EXPECT_TRUE(waits_at_last());
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
