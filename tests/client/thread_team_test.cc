#include "common/copy/thread_team.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace fargpu {
namespace {

std::vector<uint32_t> pattern(size_t words, uint32_t seed) {
  std::vector<uint32_t> values(words);
  for (size_t i = 0; i < words; ++i) values[i] = static_cast<uint32_t>(i) * 2654435761u + seed;
  return values;
}

// Nothing before or behind the destination is touched, whatever the size and the number of threads.
TEST(ThreadTeamTest, CopiesExactlyTheBytes) {
  for (const unsigned threads : {1u, 2u, 4u}) {
    ThreadTeam team(threads);
    for (const size_t words :
         {size_t{0}, size_t{1}, ThreadTeam::kChunk / 4, ThreadTeam::kAlone / 4 - 1,
          ThreadTeam::kAlone / 4, ThreadTeam::kAlone / 4 + 1, size_t{1} << 20}) {
      const auto from = pattern(words, threads);
      std::vector<uint32_t> to(words + 2, 7);
      team.copy(to.data() + 1, from.data(), words * 4);
      EXPECT_EQ(to.front(), 7u);
      EXPECT_EQ(to.back(), 7u);
      EXPECT_TRUE(std::equal(from.begin(), from.end(), to.begin() + 1))
          << threads << " threads, " << words;
    }
  }
}

// Copies follow each other closely, so that late helpers meet the next one.
TEST(ThreadTeamTest, NoHelperWorksOnAnOldCopy) {
  ThreadTeam team(4);
  const size_t words = ThreadTeam::kAlone / 4 + 100;
  std::vector<uint32_t> to(words);
  const std::vector<uint32_t> sources[2] = {pattern(words, 1), pattern(words, 2)};
  for (int i = 0; i < 300; ++i) {
    team.copy(to.data(), sources[i % 2].data(), words * 4);
    ASSERT_EQ(to, sources[i % 2]) << i;
  }
}

TEST(ThreadTeamTest, SeveralCallersAtOnce) {
  ThreadTeam team(3);
  std::atomic<int> wrong{0};
  std::vector<std::thread> callers;
  for (uint32_t t = 0; t < 3; ++t) {
    callers.emplace_back([&, t] {
      const auto from = pattern(ThreadTeam::kAlone, t);
      std::vector<uint32_t> to(from.size());
      for (int i = 0; i < 10; ++i) {
        std::fill(to.begin(), to.end(), 0);
        team.copy(to.data(), from.data(), from.size() * 4);
        wrong += to != from;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong, 0);
}

TEST(ThreadTeamTest, EachPartIsDoneOnce) {
  for (const unsigned threads : {1u, 4u}) {
    ThreadTeam team(threads);
    for (const size_t parts : {0u, 1u, 2u, 100u}) {
      std::vector<std::atomic<int>> done(parts);
      for (int i = 0; i < 50; ++i) team.run(parts, [&](size_t part) { ++done[part]; });
      for (const auto& times : done) EXPECT_EQ(times, 50);
    }
  }
}

}  // namespace
}  // namespace fargpu
