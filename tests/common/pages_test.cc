#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "common/pages/agreement.h"
#include "common/pages/byte_runs.h"
#include "common/pages/late_words.h"
#include "common/pages/word_runs.h"

namespace fargpu::pages {
namespace {

std::vector<std::byte> bytes_of(std::initializer_list<int> values) {
  std::vector<std::byte> bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

TEST(ByteRunsTest, WhatWasWrittenIsRead) {
  RunWriter writer(1000);
  const auto first = bytes_of({1, 2, 3}), second = bytes_of({4});
  EXPECT_EQ(writer.add(0x7fff'1234'5678, first), 3u);
  EXPECT_EQ(writer.add(0x7fff'1234'567c, second), 1u);
  EXPECT_EQ(writer.add(16, second), 1u);  // backwards
  RunReader reader(writer.bytes());
  for (const auto& [address, data] :
       {std::pair(0x7fff'1234'5678u, &first), {0x7fff'1234'567cu, &second}, {16u, &second}}) {
    const auto run = reader.next();
    ASSERT_TRUE(run);
    EXPECT_EQ(run->address, address);
    EXPECT_EQ(std::vector(run->data.begin(), run->data.end()), *data);
  }
  EXPECT_FALSE(reader.next());
  EXPECT_FALSE(reader.malformed());
}

TEST(ByteRunsTest, AFullWriterTakesLess) {
  RunWriter writer(RunWriter::kSmallestLimit);
  const std::vector<std::byte> data(200, std::byte{7});
  const size_t taken = writer.add(100, data);
  EXPECT_GT(taken, 0u);
  EXPECT_LT(taken, data.size());
  EXPECT_LE(writer.bytes().size(), RunWriter::kSmallestLimit);
  EXPECT_EQ(writer.add(400, data), 0u);
  writer.clear();
  EXPECT_TRUE(writer.empty());
  EXPECT_EQ(writer.add(100, data), taken);
}

// What is beside the runs stays, whatever they begin and end with.
TEST(WordRunsTest, WritesTheRunsAndNothingElse) {
  std::mt19937 random(7);
  for (int round = 0; round < 500; ++round) {
    alignas(8) std::byte memory[96] = {}, expected[96] = {};
    std::vector<std::byte> data(96), agreed(96);
    for (std::byte& byte : data) byte = static_cast<std::byte>(random() | 1);
    {
      WordRuns words;
      for (size_t at = random() % 9; at < 96; at += 1 + random() % 9) {
        const size_t n = std::min<size_t>(96 - at, 1 + random() % (round % 2 ? 30 : 3));
        words.add(memory + at, std::span(data).first(n), agreed.data());
        std::copy_n(data.begin(), n, expected + at);
        at += n;
      }
    }
    ASSERT_EQ(std::memcmp(memory, expected, sizeof memory), 0) << round;
  }
}

// A value and what it tells of, side by side, of which device code must see both or neither.
TEST(WordRunsTest, ChangesOfOneWordAreWrittenTogether) {
  alignas(8) std::byte memory[16] = {};
  const auto value = bytes_of({1, 2, 3, 4, 5}), flag = bytes_of({9});
  WordRuns words;
  const std::vector<std::byte> agreed(8);
  words.add(memory + 3, value, agreed.data());
  EXPECT_EQ(memory[3], std::byte{0}) << "more of the word may come";
  words.add(memory + 15, flag, agreed.data());
  EXPECT_EQ(std::vector(memory + 3, memory + 8), value);
  words.add(memory + 8, flag, agreed.data());
  EXPECT_EQ(memory[15], std::byte{0});
  words.finish();
  EXPECT_EQ(memory[8], std::byte{9});
  EXPECT_EQ(memory[15], std::byte{9});
}

TEST(WordRunsTest, BytesAsTheyWereAgreedAreGaps) {
  std::mt19937 random(11);
  for (int round = 0; round < 500; ++round) {
    alignas(8) std::byte memory[96], expected[96];
    std::vector<std::byte> data(96), agreed(96);
    for (size_t i = 0; i < 96; ++i) {
      agreed[i] = static_cast<std::byte>(random());
      data[i] = random() % 3 == 0 ? agreed[i] : static_cast<std::byte>(random());
      memory[i] = expected[i] = static_cast<std::byte>(random());
    }
    {
      WordRuns words;
      for (size_t at = random() % 9; at < 96;) {
        const size_t n = std::min<size_t>(96 - at, 1 + random() % 40);
        words.add(memory + at, std::span(data).subspan(at, n), agreed.data() + at);
        for (size_t i = at; i < at + n; ++i)
          if (data[i] != agreed[i]) expected[i] = data[i];
        at += n + random() % 3;
      }
    }
    ASSERT_EQ(std::memcmp(memory, expected, sizeof memory), 0) << round;
  }
}

// As looks at memory that changes meanwhile find them.
TEST(WordRunsTest, RunsOfOneWordCountInTheirOrder) {
  std::mt19937 random(13);
  for (int round = 0; round < 2000; ++round) {
    alignas(8) std::byte memory[64] = {}, expected[64] = {};
    std::vector<std::byte> agreed(64);
    {
      WordRuns words;
      for (int run = 0; run < 6; ++run) {
        const size_t at = random() % 64, n = std::min<size_t>(64 - at, 1 + random() % 20);
        std::vector<std::byte> data(n);
        for (size_t i = 0; i < n; ++i) {
          data[i] = static_cast<std::byte>(random() % 3);
          if (data[i] != agreed[at + i]) expected[at + i] = data[i];
        }
        words.add(memory + at, data, agreed.data() + at);
        std::copy(data.begin(), data.end(), agreed.begin() + static_cast<ptrdiff_t>(at));
      }
    }
    ASSERT_EQ(std::memcmp(memory, expected, sizeof memory), 0) << round;
  }
}

std::vector<uint64_t> order_of(LateWords& late, std::span<const std::byte> runs = {}) {
  std::vector<uint64_t> order;
  for (const auto& [begin, end] : late.in_order(runs)) order.push_back(begin);
  return order;
}

TEST(LateWordsTest, TheyComeByAddressAndOnce) {
  LateWords late;
  for (const uint64_t address : {0x1040, 0x1004, 0x1000, 0x1041, 0x1000}) late.add(address, 2);
  EXPECT_EQ(order_of(late), (std::vector<uint64_t>{0x1000, 0x1004, 0x1040}));
  EXPECT_EQ(late.in_order({})[2].end, 0x1043u);
}

TEST(LateWordsTest, WhatHasCompanyInItsLineGoesFirst) {
  LateWords late;
  for (const uint64_t address : {0x1000, 0x1080, 0x1090, 0x1100, 0x1200, 0x1300})
    late.add(address, 4);
  RunWriter runs(1000);
  const std::vector<std::byte> data(80);
  runs.add(0x1140, data);
  runs.add(0x11f8, data);
  EXPECT_EQ(order_of(late, runs.bytes()),
            (std::vector<uint64_t>{0x1080, 0x1090, 0x1200, 0x1000, 0x1100, 0x1300}));
}

TEST(ByteRunsTest, NonsenseIsMalformedAndNotRead) {
  const std::vector<std::vector<std::byte>> all = {
      bytes_of({5}),                     // no length
      bytes_of({5, 2, 1}),               // too short
      bytes_of({5, 0}),                  // an empty run
      bytes_of({0x80}),                  // a number without an end
      std::vector(11, std::byte{0xff}),  // one of more than 64 bits
      // Runs over the end of the address space.
      bytes_of({0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 2, 1, 1}),
  };
  for (const auto& bytes : all) {
    RunReader reader(bytes);
    EXPECT_FALSE(reader.next());
    EXPECT_TRUE(reader.malformed());
    EXPECT_FALSE(reader.next());
  }
}

// Both ends of one region that begins and ends inside pages.
class AgreementTest : public testing::Test {
 protected:
  static constexpr size_t kBytes = 3 * Agreement::kPage + 100;
  static constexpr uint64_t kAddress = 5 * Agreement::kPage + 13;
  // What one end changed, taken over by the other one; returns the number of changed bytes.
  size_t push(size_t limit = 1u << 20, Agreement::Gaps gaps = Agreement::Gaps::kNone) {
    const auto take = [&](const ByteRun& run) {
      const size_t at = run.address - kAddress;
      const auto agreed = worker_agreed_.contents(at, run.data.size());
      for (size_t i = 0; i < run.data.size(); ++i)
        if (run.data[i] != agreed[i]) worker_[at + i] = run.data[i];
      worker_agreed_.agree(run);
    };
    return carry(host_agreed_, host_, limit, take, gaps);
  }
  size_t pull(size_t limit = 1u << 20, Agreement::Gaps gaps = Agreement::Gaps::kNone) {
    return carry(
        worker_agreed_, worker_, limit,
        [&](const ByteRun& run) { host_agreed_.merge(run, host_.data()); }, gaps);
  }
  template <typename Take>
  size_t carry(Agreement& from, std::vector<std::byte>& memory, size_t limit, Take&& take,
               Agreement::Gaps gaps = Agreement::Gaps::kNone) {
    size_t changed = 0;
    for (size_t at = 0; at < kBytes;) {
      RunWriter runs(limit);
      at = from.collect(memory.data(), at, kBytes, runs, {}, gaps);
      RunReader reader(runs.bytes());
      while (const auto run = reader.next()) {
        EXPECT_TRUE(from.holds(run->address, run->data.size()));
        changed += run->data.size();
        ++runs_;
        take(*run);
      }
    }
    return changed;
  }
  size_t runs_ = 0;  // carried so far
  std::vector<std::byte> host_ = std::vector<std::byte>(kBytes);
  std::vector<std::byte> worker_ = std::vector<std::byte>(kBytes);
  Agreement host_agreed_{kAddress, kBytes}, worker_agreed_{kAddress, kBytes};
};

TEST_F(AgreementTest, ARunMayGoOnToTheEndOfItsPiece) {
  const size_t piece = Agreement::kPage - kAddress % Agreement::kPage;  // the first one
  host_[5] = std::byte{1};
  host_[piece + Agreement::kPage + 7] = std::byte{2};
  RunWriter runs(1u << 20);
  host_agreed_.collect(host_.data(), 0, kBytes - 1, runs, {}, Agreement::Gaps::kBehind);
  RunReader reader(runs.bytes());
  auto run = reader.next();
  ASSERT_TRUE(run);
  EXPECT_EQ(run->address, kAddress + 5);
  EXPECT_EQ(run->data.size(), piece - 5);
  run = reader.next();
  ASSERT_TRUE(run);
  EXPECT_EQ(run->address, kAddress + piece + Agreement::kPage + 7) << "one piece was not changed";
  EXPECT_EQ(run->address + run->data.size(),
            std::min<uint64_t>(kAddress + kBytes - 1, kAddress + piece + 2 * Agreement::kPage));
  EXPECT_FALSE(reader.next());
  EXPECT_EQ(push(), 0u) << "all of it is agreed";
}

TEST_F(AgreementTest, OnlyChangedBytesTravel) {
  EXPECT_EQ(push(), 0u);  // both begin with zeros
  host_[5] = std::byte{1};
  host_[kBytes - 1] = std::byte{2};
  EXPECT_EQ(push(), 2u);
  EXPECT_EQ(worker_, host_);
  EXPECT_EQ(push(), 0u);
  EXPECT_EQ(pull(), 0u);
  worker_[7] = std::byte{3};
  EXPECT_EQ(pull(), 1u);
  EXPECT_EQ(worker_, host_);
  EXPECT_EQ(push(), 0u);
}

TEST_F(AgreementTest, AlternateBytesOfBothEndsMeet) {
  for (size_t i = 0; i < kBytes; ++i) (i % 2 ? host_ : worker_)[i] = static_cast<std::byte>(i | 1);
  EXPECT_EQ(push(), kBytes / 2);
  EXPECT_EQ(pull(), kBytes - kBytes / 2);
  EXPECT_EQ(worker_, host_);
  for (size_t i = 0; i < kBytes; ++i) ASSERT_EQ(host_[i], static_cast<std::byte>(i | 1)) << i;
}

TEST_F(AgreementTest, WordsThatDifferInAByteAreOneRunWhereGapsMayBe) {
  for (size_t i = 0; i < kBytes; i += 4) worker_[i] = std::byte{1};
  for (size_t i = 1; i < kBytes; i += 4) host_[i] = std::byte{2};       // stays, and is not sent
  EXPECT_GE(pull(1u << 20, Agreement::Gaps::kInside), kBytes - 4 * 3);  // but what ends a page
  EXPECT_LE(runs_, 4u);                                                 // one for each page
  for (size_t i = 0; i < kBytes; ++i) {
    const auto expected = std::byte(i % 4 == 0 ? 1 : i % 4 == 1 ? 2 : 0);
    ASSERT_EQ(host_[i], expected) << i;
    ASSERT_EQ(worker_[i], std::byte(i % 4 == 0 ? 1 : 0)) << i;
  }
  EXPECT_EQ(pull(), 0u);
  EXPECT_EQ(push(), kBytes / 4);
  EXPECT_EQ(worker_, host_);
}

TEST_F(AgreementTest, AGapOfAWordEndsARun) {
  worker_[0] = worker_[7] = worker_[16] = worker_[kBytes - 1] = std::byte{1};
  EXPECT_EQ(pull(1u << 20, Agreement::Gaps::kInside), 10u);
  EXPECT_EQ(runs_, 3u);
  EXPECT_EQ(host_, worker_);
}

TEST_F(AgreementTest, AByteThatBothChangedStaysTheHosts) {
  host_[100] = std::byte{1};
  worker_[100] = std::byte{2};
  pull();
  EXPECT_EQ(host_[100], std::byte{1});
  EXPECT_EQ(push(), 1u);
  EXPECT_EQ(worker_, host_);
}

TEST_F(AgreementTest, ASmallBufferOnlyTakesMoreTurns) {
  for (auto& byte : host_) byte = std::byte{9};
  EXPECT_EQ(push(RunWriter::kSmallestLimit), kBytes);
  EXPECT_EQ(worker_, host_);
}

TEST_F(AgreementTest, RandomChangesOfDisjointBytesAllArrive) {
  std::mt19937 random(20);
  std::vector<std::byte> expected(kBytes);
  for (int round = 0; round < 200; ++round) {
    for (int change = 0; change < 50; ++change) {
      const size_t begin = random() % kBytes, end = std::min(kBytes, begin + random() % 40);
      for (size_t i = begin; i < end; ++i) {
        // The bytes of a region are split among the ends in stripes of three.
        auto& memory = i / 3 % 2 ? host_ : worker_;
        memory[i] = expected[i] = static_cast<std::byte>(random());
      }
    }
    const auto gaps = round % 2 ? Agreement::Gaps::kInside : Agreement::Gaps::kNone;
    (round % 3 ? push(200, gaps) : pull(300, gaps));
  }
  push();
  pull();
  EXPECT_EQ(host_, expected);
  EXPECT_EQ(worker_, expected);
}

TEST_F(AgreementTest, AGapKeepsWhatTheWorkerHasThere) {
  for (size_t i = 0; i < kBytes; i += 4) host_[i] = std::byte{1};
  for (size_t i = 1; i < kBytes; i += 4) worker_[i] = std::byte{2};
  EXPECT_GE(push(1u << 20, Agreement::Gaps::kInside), kBytes - 4 * 3);
  EXPECT_LE(runs_, 4u);  // one for each page
  for (size_t i = 0; i < kBytes; ++i)
    ASSERT_EQ(worker_[i], std::byte(i % 4 == 0 ? 1 : i % 4 == 1 ? 2 : 0)) << i;
  EXPECT_EQ(pull(), (kBytes + 2) / 4);
  EXPECT_EQ(worker_, host_);
}

TEST_F(AgreementTest, ALateWordHasNoGaps) {
  constexpr size_t kLine = 8 * LateWords::kLine - 13;
  host_[kLine + 1] = host_[kLine + 4] = std::byte{1};
  RunWriter runs(1000);
  LateWords late;
  host_agreed_.collect(host_.data(), 0, kBytes, runs, {}, Agreement::Gaps::kInside, &late);
  EXPECT_TRUE(runs.empty());
  EXPECT_EQ(order_of(late), (std::vector{kAddress + kLine + 1, kAddress + kLine + 4}));
}

// A flag alone in its line goes behind everything else; other changes of its word go with it.
TEST_F(AgreementTest, AWordAloneInItsLineIsLate) {
  constexpr size_t kLine = 8 * LateWords::kLine - 13;  // where one begins
  const auto change = [&](std::initializer_list<size_t> offsets) {
    for (const size_t at : offsets) host_[kLine + at] = std::byte{1};
  };
  change({8, 13, 64, 72, 200, 260, 313, 350, 640});
  for (size_t at = 512; at < 600; ++at) change({at});
  RunWriter runs(1000);
  LateWords late;
  EXPECT_EQ(host_agreed_.collect(host_.data(), 0, kBytes, runs, {}, Agreement::Gaps::kNone, &late),
            kBytes);
  const auto at = [&](size_t offset) { return kAddress + kLine + offset; };
  EXPECT_EQ(order_of(late), (std::vector<uint64_t>{at(8), at(13), at(200), at(350), at(640)}));
  std::vector<uint64_t> others;
  RunReader reader(runs.bytes());
  while (const auto run = reader.next()) others.push_back(run->address);
  EXPECT_EQ(others, (std::vector<uint64_t>{at(64), at(72), at(260), at(313), at(512)}));
  EXPECT_EQ(host_agreed_.contents(kLine + 8, 1)[0], std::byte{1});
  EXPECT_EQ(push(), 0u);
}

TEST_F(AgreementTest, AFlagRightBehindItsDataIsLate) {
  constexpr size_t kLine = 8 * LateWords::kLine - 13;
  for (size_t at = 20; at < 132; ++at) host_[kLine + at] = std::byte{1};
  for (size_t at = 316; at < 420; ++at) host_[kLine + at] = std::byte{1};
  RunWriter runs(1000);
  LateWords late;
  host_agreed_.collect(host_.data(), 0, kBytes, runs, {}, Agreement::Gaps::kNone, &late);
  const uint64_t line = kAddress + kLine;
  EXPECT_EQ(order_of(late), (std::vector{line + 128, line + 316}));
  EXPECT_EQ(push(), 0u);
}

TEST_F(AgreementTest, NoWordIsDividedBetweenMessages) {
  for (auto& byte : host_) byte = std::byte{9};
  for (size_t at = 0; at < kBytes;) {
    RunWriter runs(100);
    at = host_agreed_.collect(host_.data(), at, kBytes, runs);
    if (at < kBytes) {
      EXPECT_EQ((kAddress + at) % 8, 0u);
    }
  }
}

TEST_F(AgreementTest, TheVisitorSeesChangedPiecesOnly) {
  host_[Agreement::kPage] = std::byte{1};  // the second page, 13 bytes later
  RunWriter runs(1000);
  std::vector<std::pair<uint64_t, size_t>> seen;
  host_agreed_.collect(host_.data(), 0, kBytes, runs, [&](uint64_t address, auto bytes) {
    seen.emplace_back(address, bytes.size());
  });
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0].first, 6 * Agreement::kPage);
  EXPECT_EQ(seen[0].second, Agreement::kPage);
}

}  // namespace
}  // namespace fargpu::pages
