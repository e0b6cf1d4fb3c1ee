#include "client/stream/amendable_copies.h"

#include <gtest/gtest.h>

#include <future>
#include <string>
#include <vector>

namespace fargpu::client {
namespace {

uint64_t address(const std::string& text) { return reinterpret_cast<uint64_t>(text.data()); }

std::string text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class AmendableCopiesTest : public testing::Test {
 protected:
  uint64_t send(const std::string& source) {
    const uint64_t id = copies_.add(address(source), source.size());
    EXPECT_EQ(text(copies_.take(id)), source);
    copies_.sent(id);
    return id;
  }
  // What the worker is told: "id:bytes".
  std::vector<std::string> changes() {
    copies_.amend();
    return std::exchange(told_, {});
  }
  bool uses(const std::string& source) { return copies_.uses(address(source), source.size()); }
  void pass(uint64_t id) { copies_.passed(static_cast<uint32_t>(id)); }

  using Changes = std::vector<std::string>;
  Changes told_;
  AmendableCopies copies_{[this](uint64_t id, std::span<const std::byte> bytes) {
    told_.push_back(std::to_string(id) + ":" + text(bytes));
  }};
};

TEST_F(AmendableCopiesTest, AChangedSourceIsSentOnceMore) {
  std::string few = "abcd", many(5000, 'a');
  const uint64_t first = send(few), second = send(many);
  EXPECT_EQ(changes(), Changes());
  few = "bcde";
  EXPECT_EQ(changes(), Changes{std::to_string(first) + ":bcde"});
  EXPECT_EQ(changes(), Changes());
  many.back() = 'b';
  EXPECT_EQ(changes(), Changes{std::to_string(second) + ":" + many});
}

// Whatever was stored by then is read when the bytes are taken.
TEST_F(AmendableCopiesTest, ACopyThatHasTakenNoBytesIsNotCompared) {
  std::string source = "abcd";
  const uint64_t id = copies_.add(address(source), source.size());
  source = "bcde";
  EXPECT_EQ(changes(), Changes());
  EXPECT_EQ(text(copies_.take(id)), "bcde");
  copies_.sent(id);
}

// What is said of a copy follows its frame.
TEST_F(AmendableCopiesTest, AFrameThatIsBeingSentIsWaitedFor) {
  std::string source = "abcd";
  const uint64_t id = copies_.add(address(source), source.size());
  copies_.take(id);
  source = "bcde";
  auto told = std::async(std::launch::async, [&] { return changes(); });
  EXPECT_EQ(told.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  copies_.sent(id);
  EXPECT_EQ(told.get(), Changes{std::to_string(id) + ":bcde"});
}

TEST_F(AmendableCopiesTest, OneThatIsNotSentIsNotWaitedFor) {
  std::string source = "abcd";
  const uint64_t id = copies_.add(address(source), source.size());
  copies_.take(id);
  auto told = std::async(std::launch::async, [&] { return changes(); });
  copies_.cancel(id);
  EXPECT_EQ(told.get(), Changes());
  EXPECT_FALSE(uses(source));
}

TEST_F(AmendableCopiesTest, EndsWhenItsStreamHasPassedIt) {
  std::string source = "abcd", second = "efgh", other = "abcd";
  const uint64_t id = send(source);
  send(second);
  EXPECT_TRUE(uses(source));
  EXPECT_FALSE(uses(other));
  pass(id);
  pass(id);
  EXPECT_FALSE(uses(source));
  EXPECT_TRUE(uses(second));
  source = "bcde";
  EXPECT_EQ(changes(), Changes());
}

// Another thread may read the notice first.
TEST_F(AmendableCopiesTest, ACopyMayBePassedBeforeItsFrameIsKnownToBeSent) {
  const std::string source = "abcd";
  const uint64_t id = copies_.add(address(source), source.size());
  const auto bytes = copies_.take(id);
  pass(id);
  EXPECT_EQ(text(bytes), source) << "they may still be sent";
  copies_.sent(id);
  EXPECT_FALSE(uses(source));
}

TEST_F(AmendableCopiesTest, MemoryThatGoesIsNotReadAnyMore) {
  std::string source = "abcd", other = "abcd";
  send(source);
  const uint64_t id = send(other);
  copies_.forget(address(source), source.size());
  EXPECT_FALSE(uses(source));
  source = other = "bcde";
  EXPECT_EQ(changes(), Changes{std::to_string(id) + ":bcde"});
}

TEST_F(AmendableCopiesTest, ThereAreNotTooMany) {
  const std::string few = "a", many(AmendableCopies::kMostBytes - 1, 'a');
  const uint64_t first = send(few);
  send(many);
  EXPECT_EQ(copies_.add(address(few), 1), 0u) << "bytes";
  copies_.forget(address(many), many.size());
  for (size_t i = 1; i < AmendableCopies::kMost; ++i) send(few);
  EXPECT_EQ(copies_.add(address(few), 1), 0u) << "copies";
  pass(first);
  EXPECT_NE(copies_.add(address(few), 1), 0u);
}

}  // namespace
}  // namespace fargpu::client
