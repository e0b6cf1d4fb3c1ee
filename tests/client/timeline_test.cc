// What the client makes of a worker's clock and records: pure parts, and records that lie.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "client/timeline/clock_relation.h"
#include "client/timeline/frames.h"
#include "client/timeline/records.h"

namespace fargpu::client::timeline {
namespace {

using wire::TimelineKind;
using wire::TimelineRecord;

constexpr ClockRelation kSameClock{{0, 0, 0}, {0, 0, 0}};

wire::FrameHeader frame(uint32_t sequence, bool asks, uint16_t opcode = 100) {
  wire::FrameHeader header;
  header.sequence = sequence;
  header.opcode = opcode;
  header.flags = asks ? wire::kWantReply : 0;
  return header;
}

std::vector<Slice> only(const std::vector<Slice>& slices, Lane lane) {
  std::vector<Slice> found;
  for (const Slice& slice : slices) {
    if (slice.lane == lane) found.push_back(slice);
  }
  return found;
}

std::vector<std::byte> bytes_of(const std::vector<TimelineRecord>& records) {
  std::vector<std::byte> bytes(records.size() * sizeof(TimelineRecord));
  std::memcpy(bytes.data(), records.data(), bytes.size());
  return bytes;
}

TEST(ClockRelation, TheShortestRoundTripCounts) {
  const Exchange exchanges[] = {{1000, 6000, 1900}, {2000, 7060, 2100}, {3000, 9000, 3500}};
  const Exchange best = best_of(exchanges);
  EXPECT_EQ(best.round_trip(), 100u);
  EXPECT_EQ(best.offset(), 7060 - 2050);
}

TEST(ClockRelation, AWorkerMayBeBehind) {
  const Exchange behind{5000, 100, 5000};
  EXPECT_EQ(behind.offset(), -4900);
  EXPECT_EQ(ClockRelation(behind, behind).to_ours(200), 5100u);
}

TEST(ClockRelation, DriftIsEven) {
  // Ahead by 1000 at the beginning, by 3000 at the end.
  const ClockRelation clocks({0, 1000, 0}, {100'000, 103'000, 100'000});
  EXPECT_EQ(clocks.to_ours(1000), 0u);
  EXPECT_EQ(clocks.to_ours(52'000), 50'000u);
  EXPECT_EQ(clocks.to_ours(103'000), 100'000u);
  EXPECT_EQ(clocks.to_ours(104'000), 101'000u);  // no further than that
}

TEST(ClockRelation, ClocksThatLieAreOnlyWrong) {
  constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
  for (const uint64_t first : {uint64_t{0}, kMost / 2, kMost / 2 + 1, kMost}) {
    for (const uint64_t last : {uint64_t{0}, kMost / 2, kMost / 2 + 1, kMost}) {
      const ClockRelation clocks({10, first, 20}, {30, last, 40});
      for (const uint64_t time : {uint64_t{0}, kMost / 2, kMost}) (void)clocks.to_ours(time);
    }
  }
}

TEST(ClockRelation, TheLeastCorrection) {
  EXPECT_EQ(least_correction(-5, 7), 0);
  EXPECT_EQ(least_correction(3, 7), 3);
  EXPECT_EQ(least_correction(-9, -4), -4);
  EXPECT_EQ(least_correction(8, 2), 5);
}

TEST(TimelineRecords, AreReadWhole) {
  const std::vector<TimelineRecord> sent = {{10, 20, 1, 100, TimelineKind::kAnswered},
                                            {30, 30, 2, 101, TimelineKind::kLater}};
  const auto read = read_records(bytes_of(sent));
  ASSERT_TRUE(read.ok());
  ASSERT_EQ(read->size(), 2u);
  EXPECT_EQ((*read)[1].sequence, 2u);
  EXPECT_TRUE(read_records({})->empty());
}

TEST(TimelineRecords, WhatIsNoneIsRefused) {
  std::vector<TimelineRecord> sent = {{10, 20, 1, 100, TimelineKind::kFrame}};
  std::vector<std::byte> bytes = bytes_of(sent);
  for (size_t part = 1; part < bytes.size(); ++part)
    EXPECT_EQ(read_records(std::span(bytes).first(part)).status().code(), StatusCode::kProtocol);
  sent[0].kind = static_cast<TimelineKind>(wire::kTimelineKinds);
  EXPECT_EQ(read_records(bytes_of(sent)).status().code(), StatusCode::kProtocol);
  sent[0] = {20, 10, 1, 100, TimelineKind::kFrame};
  EXPECT_EQ(read_records(bytes_of(sent)).status().code(), StatusCode::kProtocol);
}

TEST(TimelineFrames, AnAnsweredFrameIsOnTheWireTwice) {
  Frames frames(8);
  const uint64_t before = Frames::now();
  frames.sends(frame(1, true));
  const uint64_t begin = Frames::now(), end = Frames::now();
  frames.receives(frame(1, true));
  const TimelineRecord record{begin, end, 1, 100, TimelineKind::kAnswered};
  const auto slices = frames.match({&record, 1}, kSameClock);
  ASSERT_EQ(slices.size(), 3u);
  const Slice work = only(slices, Lane::kFrames).at(0), there = only(slices, Lane::kRequest).at(0),
              back = only(slices, Lane::kAnswer).at(0);
  EXPECT_EQ(work.begin, begin);
  EXPECT_EQ(work.end, end);
  EXPECT_LE(before, there.begin);
  EXPECT_EQ(there.end, begin);
  EXPECT_EQ(back.begin, end);
  EXPECT_GE(back.end, end);
}

TEST(TimelineFrames, AnAnswerMayComeWithLaterRecords) {
  Frames frames(8);
  frames.sends(frame(1, true));
  const uint64_t time = Frames::now();
  const TimelineRecord begun{time, time, 1, 100, TimelineKind::kFrame};
  EXPECT_EQ(frames.match({&begun, 1}, kSameClock).size(), 2u);
  const uint64_t later = Frames::now();
  frames.receives(frame(1, true));
  const TimelineRecord answered{later, later, 1, 100, TimelineKind::kLater};
  const auto slices = frames.match({&answered, 1}, kSameClock);
  ASSERT_EQ(only(slices, Lane::kWaits).size(), 1u);
  EXPECT_EQ(only(slices, Lane::kWaits)[0].begin, time);
  EXPECT_EQ(only(slices, Lane::kAnswer).size(), 1u);
  EXPECT_EQ(slices.size(), 2u);
}

// The clocks were related wrongly by more than the way there takes: events say so.
TEST(TimelineFrames, CausesComeBeforeEffects) {
  constexpr uint64_t kOff = 1'000'000'000;
  for (const bool ahead : {false, true}) {
    Frames frames(8);
    frames.sends(frame(1, true));
    const uint64_t begin = Frames::now(), end = Frames::now();
    frames.receives(frame(1, true));
    const uint64_t wrong = ahead ? kOff : -kOff;
    const TimelineRecord record{begin + wrong, end + wrong, 1, 100, TimelineKind::kAnswered};
    const auto slices = frames.match({&record, 1}, kSameClock);
    const Slice there = only(slices, Lane::kRequest).at(0),
                work = only(slices, Lane::kFrames).at(0), back = only(slices, Lane::kAnswer).at(0);
    EXPECT_LE(there.begin, there.end);
    EXPECT_LE(back.begin, back.end);
    EXPECT_EQ(work.end - work.begin, end - begin);
  }
}

TEST(TimelineFrames, SlicesOfALaneDoNotOverlap) {
  Frames frames(8);
  const TimelineRecord first{100, 200, 1, 100, TimelineKind::kFrame},
      second{150, 180, 2, 100, TimelineKind::kFrame};
  (void)frames.match({&first, 1}, kSameClock);
  const auto slices = frames.match({&second, 1}, kSameClock);
  ASSERT_EQ(slices.size(), 1u);
  EXPECT_EQ(slices[0].begin, 200u);
  EXPECT_EQ(slices[0].end, 200u);
}

TEST(TimelineFrames, NumbersWrapAndRecordsMayBeMissing) {
  Frames frames(8);
  constexpr uint32_t kLast = std::numeric_limits<uint32_t>::max();
  for (const uint32_t sequence : {kLast - 1, kLast, 1u, 2u}) frames.sends(frame(sequence, false));
  const uint64_t time = Frames::now();
  const TimelineRecord records[] = {{time, time, kLast, 100, TimelineKind::kFrame},
                                    {time, time, 1, 100, TimelineKind::kFrame}};
  const auto requests = only(frames.match(records, kSameClock), Lane::kRequest);
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(requests[0].sequence, kLast);
  EXPECT_EQ(requests[1].sequence, 1u);
  const TimelineRecord last{time, time, 2, 100, TimelineKind::kFrame};
  EXPECT_EQ(only(frames.match({&last, 1}, kSameClock), Lane::kRequest).size(), 1u);
  EXPECT_EQ(frames.dropped(), 0u);
}

TEST(TimelineFrames, TheyAreBounded) {
  Frames frames(4);
  for (uint32_t sequence = 1; sequence <= 10; ++sequence) frames.sends(frame(sequence, false));
  EXPECT_EQ(frames.dropped(), 6u);
  EXPECT_EQ(frames.noted_since_match(), 10u);
}

TEST(TimelineFrames, RecordsThatLieAreOnlyWrong) {
  Frames frames(64);
  for (uint32_t sequence = 1; sequence <= 32; ++sequence)
    frames.sends(frame(sequence, sequence % 2 == 0));
  constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
  std::vector<TimelineRecord> records;
  for (const uint32_t sequence : {0u, 5u, 5u, 3u, 77u, 0xffff'ffffu, 6u}) {
    for (uint16_t kind = 0; kind < wire::kTimelineKinds; ++kind)
      records.push_back({0, kMost, sequence, 65535, static_cast<TimelineKind>(kind)});
  }
  (void)frames.match(records, ClockRelation({0, kMost, 0}, {5, 0, 5}));
  frames.sends(frame(33, false));
  const TimelineRecord record{1, 2, 33, 100, TimelineKind::kFrame};
  EXPECT_EQ(only(frames.match({&record, 1}, kSameClock), Lane::kRequest).size(), 1u);
}

}  // namespace
}  // namespace fargpu::client::timeline
