#include "client/copy/amendable_copies.h"

#include <gtest/gtest.h>

#include <future>
#include <optional>
#include <string>
#include <thread>

namespace fargpu::client {
namespace {

uint64_t address(const std::string& text) { return reinterpret_cast<uint64_t>(text.data()); }

std::string text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class AmendableCopiesTest : public testing::Test {
 protected:
  uint64_t send(const std::string& source, uint64_t last) {
    const uint64_t id = copies_.add(address(source), source.size(), last);
    EXPECT_EQ(text(copies_.take(id)), source);
    copies_.sent(id);
    return id;
  }
  // What the worker is told: "id:bytes".
  std::vector<std::string> changes(uint64_t function) {
    std::vector<std::string> found;
    for (const auto& [id, bytes] : copies_.before_return(function))
      found.push_back(std::to_string(id) + ":" + text(bytes));
    return found;
  }
  bool uses(const std::string& source) { return copies_.uses(address(source), source.size()); }

  using Changes = std::vector<std::string>;
  Observers observers_;
  HostCalls functions_{observers_};
  AmendableCopies copies_{functions_};
};

TEST_F(AmendableCopiesTest, AChangedSourceIsSentOnceMore) {
  const uint64_t function = functions_.add({});
  std::string few = "abcd", many(5000, 'a');
  const uint64_t first = send(few, function), second = send(many, function);
  EXPECT_EQ(changes(function), Changes());
  few = "bcde";
  EXPECT_EQ(changes(function), Changes{std::to_string(first) + ":bcde"});
  EXPECT_EQ(changes(function), Changes());
  many.back() = 'b';
  EXPECT_EQ(changes(function), Changes{std::to_string(second) + ":" + many});
}

TEST_F(AmendableCopiesTest, AFunctionBehindTheCopyIsNoConcernOfIt) {
  const uint64_t before = functions_.add({}), behind = functions_.add({});
  std::string source = "abcd";
  const uint64_t id = send(source, before);
  source = "bcde";
  EXPECT_EQ(changes(behind), Changes());
  EXPECT_EQ(changes(before), Changes{std::to_string(id) + ":bcde"});
}

// Whatever the function has written by then is read when the bytes are taken.
TEST_F(AmendableCopiesTest, ACopyThatHasTakenNoBytesIsNotCompared) {
  const uint64_t function = functions_.add({});
  std::string source = "abcd";
  const uint64_t id = copies_.add(address(source), source.size(), function);
  source = "bcde";
  EXPECT_EQ(changes(function), Changes());
  EXPECT_EQ(text(copies_.take(id)), "bcde");
  copies_.sent(id);
}

// What is said of a copy follows its frame.
TEST_F(AmendableCopiesTest, AFunctionWaitsForAFrameThatIsBeingSent) {
  const uint64_t function = functions_.add({});
  std::string source = "abcd";
  const uint64_t id = copies_.add(address(source), source.size(), function);
  copies_.take(id);
  source = "bcde";
  auto told = std::async(std::launch::async, [&] { return changes(function); });
  EXPECT_EQ(told.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  copies_.sent(id);
  EXPECT_EQ(told.get(), Changes{std::to_string(id) + ":bcde"});
}

TEST_F(AmendableCopiesTest, OneThatIsNotSentIsNotWaitedFor) {
  const uint64_t function = functions_.add({});
  std::string source = "abcd";
  const uint64_t id = copies_.add(address(source), source.size(), function);
  copies_.take(id);
  auto told = std::async(std::launch::async, [&] { return changes(function); });
  copies_.cancel(id);
  EXPECT_EQ(told.get(), Changes());
  EXPECT_FALSE(uses(source));
}

TEST_F(AmendableCopiesTest, EndsWithTheFunctionsBeforeIt) {
  const uint64_t first = functions_.add({}), second = functions_.add({});
  std::string source = "abcd", other = "abcd";
  send(source, second);
  functions_.cancel(second);
  copies_.returned();
  EXPECT_TRUE(uses(source));
  EXPECT_FALSE(uses(other));
  functions_.cancel(first);
  EXPECT_FALSE(uses(source));
  source = "bcde";
  EXPECT_EQ(changes(first), Changes());
}

TEST_F(AmendableCopiesTest, MemoryThatGoesIsNotReadAnyMore) {
  const uint64_t function = functions_.add({});
  std::string source = "abcd", other = "abcd";
  send(source, function);
  const uint64_t id = send(other, function);
  copies_.forget(address(source), source.size());
  EXPECT_FALSE(uses(source));
  source = other = "bcde";
  EXPECT_EQ(changes(function), Changes{std::to_string(id) + ":bcde"});
}

TEST_F(AmendableCopiesTest, ThereAreNotTooMany) {
  const uint64_t function = functions_.add({});
  const std::string few = "a", many(AmendableCopies::kMostBytes - 1, 'a');
  send(few, function);
  send(many, function);
  EXPECT_EQ(copies_.add(address(few), 1, function), 0u) << "bytes";
  copies_.forget(address(many), many.size());
  for (size_t i = 1; i < AmendableCopies::kMost; ++i) send(few, function);
  EXPECT_EQ(copies_.add(address(few), 1, function), 0u) << "copies";
  functions_.cancel(function);
  EXPECT_NE(copies_.add(address(few), 1, function), 0u);
}

}  // namespace
}  // namespace fargpu::client
