#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "common/pages/agreement.h"
#include "common/pages/byte_runs.h"
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

TEST(WordRunsTest, TakesRunsOfOneWord) {
  const std::byte one[] = {std::byte{1}},
                  four[] = {std::byte{5}, std::byte{6}, std::byte{7}, std::byte{8}};
  WordRuns word({0x1008, one});
  EXPECT_TRUE(word.takes({0x100c, four}));
  EXPECT_FALSE(word.takes({0x100d, four})) << "it ends behind the word";
  EXPECT_FALSE(word.takes({0x1007, one}));
  EXPECT_FALSE(word.takes({0x1010, one}));
  word.add({0x100c, four});
  EXPECT_FALSE(WordRuns({0x1006, four}).takes({0x1006, one})) << "the first one is in two words";
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
  size_t push(size_t limit = 1u << 20) {
    return carry(host_agreed_, host_, limit,
                 [&](const ByteRun& run) { worker_agreed_.adopt(run, worker_.data()); });
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
    (round % 3 ? push(200) : pull(300, gaps));
  }
  push();
  pull();
  EXPECT_EQ(host_, expected);
  EXPECT_EQ(worker_, expected);
}

// A value and what it tells of, side by side, of which device code must see both or neither.
TEST_F(AgreementTest, ChangesOfOneWordAreWrittenTogether) {
  alignas(8) std::byte memory[24] = {};
  const auto begin = reinterpret_cast<uint64_t>(memory);
  Agreement agreement(begin, sizeof memory);
  memory[9] = std::byte{3};  // changed at this end
  const std::byte value[] = {std::byte{7}}, flag[] = {std::byte{1}};
  WordRuns word({begin + 8, flag});
  word.add({begin + 12, value});
  word.adopt(agreement, memory);
  EXPECT_EQ(memory[8], std::byte{1});
  EXPECT_EQ(memory[9], std::byte{3});
  EXPECT_EQ(memory[12], std::byte{7});
  RunWriter runs(100);
  agreement.collect(memory, 0, sizeof memory, runs);
  RunReader reader(runs.bytes());
  const auto run = reader.next();
  ASSERT_TRUE(run);
  EXPECT_EQ(run->address, begin + 9) << "what was written is agreed on";
  EXPECT_EQ(run->data.size(), 1u);
  EXPECT_FALSE(reader.next());
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
