// What the executor notes for a timeline, and what a client may ask about it.
#include "server/core/timeline.h"

#include <gtest/gtest.h>

#include <cstring>

#include "common/wire/control.h"
#include "generated/schema/internal.capnp.h"
#include "generated/schema/opcodes.h"
#include "tests/server/executor_fixture.h"

namespace fargpu::server {
namespace {

using wire::TimelineKind;
using wire::TimelineRecord;

wire::FrameHeader frame(uint32_t sequence) {
  wire::FrameHeader header;
  header.opcode = 100;
  header.sequence = sequence;
  return header;
}

std::vector<TimelineRecord> taken(Timeline& timeline, size_t most = 100) {
  std::vector<TimelineRecord> records(most);
  records.resize(timeline.take(std::as_writable_bytes(std::span(records))));
  return records;
}

void note(Timeline& timeline, uint32_t sequence) {
  timeline.begin_frame(frame(sequence));
  timeline.end_frame();
}

TEST(Timeline, StartsOnceWithRoom) {
  Timeline timeline;
  EXPECT_FALSE(timeline.start(0));
  EXPECT_FALSE(timeline.start(wire::kMostTimelineRecords + 1));
  EXPECT_FALSE(timeline.on());
  EXPECT_TRUE(timeline.start(1));
  EXPECT_FALSE(timeline.start(1));
  EXPECT_TRUE(timeline.on());
}

TEST(Timeline, AFullRingLeavesLaterOnesOut) {
  Timeline timeline;
  ASSERT_TRUE(timeline.start(3));
  for (uint32_t sequence = 1; sequence <= 5; ++sequence) note(timeline, sequence);
  EXPECT_EQ(timeline.dropped(), 2u);
  EXPECT_EQ(taken(timeline, 2).size(), 2u);
  // Round the end of the ring.
  for (uint32_t sequence = 6; sequence <= 7; ++sequence) note(timeline, sequence);
  const auto rest = taken(timeline);
  ASSERT_EQ(rest.size(), 3u);
  EXPECT_EQ(rest[0].sequence, 3u);
  EXPECT_EQ(rest[1].sequence, 6u);
  EXPECT_EQ(rest[2].sequence, 7u);
  EXPECT_EQ(timeline.dropped(), 2u);
  EXPECT_TRUE(taken(timeline).empty());
}

TEST(Timeline, AnAnswerEndsItsFrame) {
  Timeline timeline;
  ASSERT_TRUE(timeline.start(10));
  timeline.begin_frame(frame(1));
  timeline.sends(frame(1));
  const uint64_t after = Timeline::now();
  timeline.end_frame();
  note(timeline, 2);
  timeline.sends(frame(2));
  const auto records = taken(timeline);
  ASSERT_EQ(records.size(), 3u);
  EXPECT_EQ(records[0].kind, TimelineKind::kAnswered);
  EXPECT_LE(records[0].begin, records[0].end);
  EXPECT_LE(records[0].end, after);
  EXPECT_EQ(records[1].kind, TimelineKind::kFrame);
  EXPECT_EQ(records[2].kind, TimelineKind::kLater);
  EXPECT_EQ(records[2].sequence, 2u);
}

class TimelineCalls : public ExecutorTest {
 protected:
  uint32_t begin(uint64_t records) {
    return send<schema::FgTimelineStartParams>(schema::op_fgTimelineStart,
                                               [&](auto p) { p.setRecords(records); });
  }
  // What comes when `bytes` are asked for, as records.
  std::vector<TimelineRecord> take(uint64_t bytes, uint64_t* dropped = nullptr) {
    send<schema::FgTimelineTakeParams>(schema::op_fgTimelineTake,
                                       [&](auto p) { p.setMostBytes(bytes); });
    const Answer answer = next();
    EXPECT_EQ(answer.header.result, CUDA_SUCCESS);
    wire::SegmentReader reader(answer.body);
    const auto results = reader.getRoot<schema::FgTimelineTakeResults>();
    EXPECT_EQ(results.getBytes(), answer.bulk.size());
    EXPECT_EQ(answer.bulk.size() % sizeof(TimelineRecord), 0u);
    EXPECT_LE(answer.bulk.size(), bytes);
    if (dropped != nullptr) *dropped = results.getDropped();
    std::vector<TimelineRecord> records(answer.bulk.size() / sizeof(TimelineRecord));
    if (!records.empty()) std::memcpy(records.data(), answer.bulk.data(), answer.bulk.size());
    return records;
  }
};

TEST_F(TimelineCalls, NothingIsNotedUnlessAsked) {
  start();
  expect_answer(send(wire::kPing), CUDA_SUCCESS);
  EXPECT_TRUE(take(1 << 20).empty());
}

TEST_F(TimelineCalls, WrongNumbersAreRefused) {
  start();
  for (const uint64_t records : {uint64_t{0}, wire::kMostTimelineRecords + 1, ~uint64_t{0}})
    expect_answer(begin(records), CUDA_ERROR_INVALID_VALUE);
  expect_answer(begin(4), CUDA_SUCCESS);
  expect_answer(begin(4), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(TimelineCalls, FramesComeInOrderAndWhole) {
  start();
  expect_answer(begin(100), CUDA_SUCCESS);
  uint32_t last = 0;
  for (int i = 0; i < 3; ++i) expect_answer(last = send(wire::kPing), CUDA_SUCCESS);
  EXPECT_TRUE(take(sizeof(TimelineRecord) - 1).empty());
  auto records = take(2 * sizeof(TimelineRecord) + 1);
  // The answer to the start, which came after the notes had begun, and the first ping.
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].kind, TimelineKind::kLater);
  EXPECT_EQ(records[1].opcode, wire::kPing);
  records = take(~uint64_t{0});
  ASSERT_GE(records.size(), 2u);
  EXPECT_EQ(records[1].sequence, last);
  for (size_t i = 0; i < records.size(); ++i) {
    EXPECT_EQ(records[i].kind, TimelineKind::kAnswered);
    EXPECT_LE(records[i].begin, records[i].end);
    if (i > 0) EXPECT_LE(records[i - 1].end, records[i].begin);
  }
}

TEST_F(TimelineCalls, DroppedRecordsAreCounted) {
  start();
  expect_answer(begin(2), CUDA_SUCCESS);
  for (int i = 0; i < 5; ++i) expect_answer(send(wire::kPing), CUDA_SUCCESS);
  uint64_t dropped = 0;
  EXPECT_EQ(take(1 << 20, &dropped).size(), 2u);
  EXPECT_EQ(dropped, 4u);
}

TEST_F(TimelineCalls, TheClockIsOurs) {
  start();
  const uint64_t before = Timeline::now();
  send(schema::op_fgTimelineClock);
  const Answer answer = next();
  wire::SegmentReader reader(answer.body);
  const uint64_t told = reader.getRoot<schema::FgTimelineClockResults>().getNanoseconds();
  EXPECT_LE(before, told);
  EXPECT_LE(told, Timeline::now());
}

}  // namespace
}  // namespace fargpu::server
