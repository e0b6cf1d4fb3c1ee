// Fences behind copies whose calls have returned: who waits for which, once; and when they go.
#include "server/stream/copy_fences.h"

#include <gmock/gmock.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "generated/server/driver_table.h"
#include "server/stream/stream_events.h"

namespace fargpu::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Events are numbers from 1 up; they are done when the test says so.
struct Driver {
  std::vector<std::string> calls;
  std::set<uint64_t> alive, done, failed;
  std::map<uint64_t, unsigned> flags;  // of streams
  uint64_t events = 0;
  CUresult record = CUDA_SUCCESS, wait = CUDA_SUCCESS, create = CUDA_SUCCESS;

  std::vector<std::string> take() { return std::exchange(calls, {}); }
};
Driver* driver = nullptr;

template <typename Handle>
uint64_t number(Handle handle) {
  return reinterpret_cast<uint64_t>(handle);
}

DriverTable table() {
  DriverTable t{};
  t.cuEventCreate = [](CUevent* event, unsigned flags) {
    EXPECT_EQ(flags, static_cast<unsigned>(CU_EVENT_DISABLE_TIMING));
    if (driver->create != CUDA_SUCCESS) return driver->create;
    driver->alive.insert(++driver->events);
    *event = reinterpret_cast<CUevent>(driver->events);
    return CUDA_SUCCESS;
  };
  t.cuEventDestroy_v2 = [](CUevent event) {
    EXPECT_EQ(driver->alive.erase(number(event)), 1u);
    return CUDA_SUCCESS;
  };
  t.cuEventRecord = [](CUevent event, CUstream stream) {
    if (driver->record != CUDA_SUCCESS) return driver->record;
    driver->done.erase(number(event));
    driver->calls.push_back(std::to_string(number(stream)) + " records " +
                            std::to_string(number(event)));
    return CUDA_SUCCESS;
  };
  t.cuEventQuery = [](CUevent event) {
    EXPECT_TRUE(driver->alive.contains(number(event)));
    if (driver->failed.contains(number(event))) return CUDA_ERROR_ILLEGAL_ADDRESS;
    return driver->done.contains(number(event)) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
  };
  t.cuStreamWaitEvent = [](CUstream stream, CUevent event, unsigned flags) {
    EXPECT_EQ(flags, 0u);
    if (driver->wait != CUDA_SUCCESS) return driver->wait;
    driver->calls.push_back(std::to_string(number(stream)) + " waits for " +
                            std::to_string(number(event)));
    return CUDA_SUCCESS;
  };
  t.cuStreamGetFlags = [](CUstream stream, unsigned* flags) {
    *flags = driver->flags[number(stream)];
    return CUDA_SUCCESS;
  };
  return t;
}

class CopyFencesTest : public ::testing::Test {
 protected:
  CopyFencesTest() : table_(table()), events_(table_), fences(table_, events_) { driver = &state_; }
  ~CopyFencesTest() override { driver = nullptr; }

  // The legacy stream of a context, and streams that the application made, whose handles are their
  // numbers.
  static CopyFences::Stream legacy(uint16_t context = 1) { return {1, context, CU_STREAM_LEGACY}; }
  CopyFences::Stream own(uint64_t id, uint16_t context = 1) {
    driver->flags[id] = CU_STREAM_NON_BLOCKING;
    return {id, context, reinterpret_cast<CUstream>(id)};
  }
  CopyFences::Stream blocking(uint64_t id, uint16_t context = 1) {
    driver->flags[id] = CU_STREAM_DEFAULT;
    return {id, context, reinterpret_cast<CUstream>(id)};
  }
  void copy(const CopyFences::Stream& stream, bool returned = false) {
    EXPECT_EQ(fences.add(stream, returned), CUDA_SUCCESS);
  }
  void work(const CopyFences::Stream& stream) {
    EXPECT_EQ(fences.before_work(stream), CUDA_SUCCESS);
  }

  Driver state_;
  DriverTable table_;
  StreamEvents events_;
  CopyFences fences;
};

TEST_F(CopyFencesTest, WithoutACopyNothingIsAsked) {
  work(legacy());
  work(own(50));
  EXPECT_THAT(driver->take(), IsEmpty());
  EXPECT_EQ(driver->events, 0u);
}

TEST_F(CopyFencesTest, EachOtherStreamWaitsOnceForEachFence) {
  copy(legacy());
  work(legacy());
  work(own(50));
  work(own(50));
  work(own(60));
  EXPECT_THAT(driver->take(), ElementsAre("1 records 1", "50 waits for 1", "60 waits for 1"));
  copy(own(60));
  work(own(50));
  work(own(60));
  work(legacy());
  EXPECT_THAT(driver->take(), ElementsAre("60 records 2", "50 waits for 2", "1 waits for 2"));
}

TEST_F(CopyFencesTest, WhatIsDoneIsNotWaitedFor) {
  copy(legacy());
  driver->done.insert(1);
  work(own(50));
  EXPECT_EQ(fences.size(), 0u);
  copy(legacy());
  driver->done.insert(1);
  fences.poll();
  EXPECT_EQ(fences.size(), 0u);
  work(own(50));
  EXPECT_THAT(driver->take(), ElementsAre("1 records 1", "1 records 1"));  // the event again
}

TEST_F(CopyFencesTest, BlockingStreamsComeAfterTheirLegacyStreamAndBeforeIt) {
  copy(legacy());
  work(blocking(50));
  EXPECT_THAT(driver->take(), ElementsAre("1 records 1"));
  copy(blocking(50));
  work(legacy());
  work(blocking(60));  // two of them have no order
  EXPECT_THAT(driver->take(), ElementsAre("50 records 2", "60 waits for 2"));
}

TEST_F(CopyFencesTest, TheRuleOfBlockingStreamsEndsAtTheContext) {
  copy(legacy(1));
  work(blocking(50, 2));
  work(legacy(2));
  EXPECT_THAT(driver->take(), ElementsAre("1 records 1", "50 waits for 1", "1 waits for 1"));
}

TEST_F(CopyFencesTest, DefaultStreamsOfTwoContextsAreTwoStreams) {
  copy(legacy(1));
  work(legacy(2));
  work(legacy(1));
  work({0, 2, nullptr});  // the legacy stream's other name
  EXPECT_THAT(driver->take(), ElementsAre("1 records 1", "1 waits for 1"));
}

TEST_F(CopyFencesTest, AStreamHasTwoFencesAtMostAndTheOlderOneEnds) {
  for (int i = 0; i < 1000; ++i) copy(legacy());
  EXPECT_EQ(fences.size(), 2u);
  EXPECT_EQ(driver->events, 2u);
  driver->take();
  work(own(50));
  EXPECT_THAT(driver->take(), ElementsAre("50 waits for 1", "50 waits for 2"));
  copy(legacy());
  work(own(50));  // not for the older one again
  EXPECT_THAT(driver->take(), ElementsAre("1 records 2", "50 waits for 2"));
  driver->done.insert(1);
  copy(own(50));
  fences.poll();
  copy(legacy());  // now the second is the older one, and stays as it was recorded
  EXPECT_THAT(driver->take(), ElementsAre("50 records 3", "1 records 1"));
}

TEST_F(CopyFencesTest, WhatIsInADestroyedStreamIsStillWaitedFor) {
  copy(own(50));
  fences.stream_ended({50});
  work(own(60));
  work(own(50));  // another stream that got the same id
  EXPECT_THAT(driver->take(), ElementsAre("50 records 1", "60 waits for 1", "50 waits for 1"));
  driver->done.insert(1);
  fences.poll();
  EXPECT_EQ(fences.size(), 0u);
}

TEST_F(CopyFencesTest, AStreamThatGotAnotherOnesIdHasWaitedForNothing) {
  copy(legacy());
  work(own(50));
  fences.stream_ended({50});
  work(own(50));
  EXPECT_THAT(driver->take(), ElementsAre("1 records 1", "50 waits for 1", "50 waits for 1"));
}

TEST_F(CopyFencesTest, AContextTakesItsFencesAndEventsWithIt) {
  copy(legacy(1));
  copy(legacy(2));
  copy(legacy(2));
  driver->done.insert(1);
  fences.poll();
  EXPECT_EQ(driver->alive.size(), 3u);
  fences.context_ended({2});
  events_.context_ended({2});
  EXPECT_EQ(fences.size(), 0u);
  EXPECT_THAT(driver->alive, ElementsAre(1u));
  driver->take();
  work(own(50));
  copy(legacy(2));
  EXPECT_THAT(driver->take(), ElementsAre("1 records 4"));
}

TEST_F(CopyFencesTest, AFailedContextIsNotWaitedFor) {
  copy(legacy(1));
  driver->failed.insert(1);
  driver->wait = CUDA_ERROR_ILLEGAL_ADDRESS;
  work(legacy(2));
  EXPECT_EQ(fences.size(), 0u);
}

TEST_F(CopyFencesTest, ErrorsAreTheCallsAndLeaveNothing) {
  driver->record = CUDA_ERROR_ILLEGAL_ADDRESS;
  EXPECT_EQ(fences.add(legacy(), true), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_FALSE(fences.any_returned());
  fences.context_ended({1});
  events_.context_ended({1});
  EXPECT_THAT(driver->alive, IsEmpty());
  driver->record = CUDA_SUCCESS;
  driver->create = CUDA_ERROR_OUT_OF_MEMORY;
  EXPECT_EQ(fences.add(legacy(), true), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(fences.size(), 0u);
  driver->create = CUDA_SUCCESS;
  copy(legacy());
  driver->wait = CUDA_ERROR_INVALID_HANDLE;
  EXPECT_EQ(fences.before_work(own(50)), CUDA_ERROR_INVALID_HANDLE);
  driver->wait = CUDA_SUCCESS;
  driver->take();
  work(own(50));  // it has not waited yet
  EXPECT_THAT(driver->take(), ElementsAre("50 waits for 2"));
}

TEST_F(CopyFencesTest, QueriesWaitForThoseThatTheCallerTakesForDone) {
  copy(legacy(), false);
  EXPECT_FALSE(fences.any_returned());
  EXPECT_FALSE(fences.stands(fences.newest()));
  copy(legacy(), true);
  EXPECT_TRUE(fences.any_returned());
  const uint64_t number = fences.newest();
  EXPECT_FALSE(fences.stands(number - 1));
  EXPECT_TRUE(fences.stands(number));
  driver->done.insert(1);  // the first one says nothing of the second
  EXPECT_TRUE(fences.stands(number));
  driver->done.insert(2);
  EXPECT_FALSE(fences.stands(number));
  EXPECT_FALSE(fences.any_returned());
}

// A thread that goes on copying keeps no other thread's query waiting.
TEST_F(CopyFencesTest, LaterCopiesDoNotKeepAQueryWaiting) {
  copy(legacy(), true);
  const uint64_t number = fences.newest();
  for (int i = 0; i < 10; ++i) copy(legacy(), true);
  EXPECT_TRUE(fences.stands(number));
  driver->done.insert(1);
  EXPECT_FALSE(fences.stands(number));
  EXPECT_TRUE(fences.any_returned());
}

}  // namespace
}  // namespace fargpu::server
