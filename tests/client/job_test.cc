#include "client/settings/job.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <thread>

namespace fargpu::client {
namespace {

using bootstrap::JobTicket;

constexpr const char* kTicket = "7f3a0c5de1b29864-000102030405060708090a0b0c0d0eff";

// In a process of its own, which has one thread: other tests here start some.
class JobTest : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
  void TearDown() override { ::unsetenv(bootstrap::kJobVariable); }
};

TEST_F(JobTest, TicketsAreReadAsTheyAreWritten) {
  const auto ticket = bootstrap::parse_ticket(kTicket);
  ASSERT_TRUE(ticket.ok());
  EXPECT_EQ(ticket->id, 0x7f3a0c5de1b29864u);
  EXPECT_EQ(ticket->key[15], std::byte{0xff});
  EXPECT_EQ(bootstrap::to_text(*ticket), kTicket);
  const auto fresh = bootstrap::make_ticket();
  ASSERT_TRUE(fresh.ok());
  EXPECT_EQ(fresh->id, 0u);
  EXPECT_EQ(*bootstrap::parse_ticket(bootstrap::to_text(*fresh)), *fresh);
}

TEST_F(JobTest, WhatIsNoTicketIsRefusedAndNotRepeated) {
  const std::string good = kTicket;
  for (const std::string& text :
       {std::string(), std::string("x"), good.substr(1), good + "0",
        std::string("-").append(good, 1), good.substr(0, 16) + "0" + good.substr(17),
        good.substr(0, 47) + "-f", good.substr(0, 48) + "g", std::string("+").append(good, 1),
        good.substr(0, 48) + " "}) {
    const auto ticket = bootstrap::parse_ticket(text);
    ASSERT_EQ(ticket.status().code(), StatusCode::kInvalidArgument) << text;
    if (text.size() > 10) {
      EXPECT_EQ(ticket.status().message().find(text), std::string::npos);
    }
  }
}

TEST_F(JobTest, TheEnvironmentNamesTheJob) {
  ::setenv(bootstrap::kJobVariable, kTicket, 1);
  const auto job = jobs_of_this_process(1);
  ASSERT_TRUE(job.ok());
  EXPECT_EQ(bootstrap::to_text(*job), kTicket);
  ::setenv(bootstrap::kJobVariable, "mine", 1);
  EXPECT_EQ(jobs_of_this_process(1).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(JobTest, EachServerHasAJob) {
  const std::string both = std::string(kTicket) + "," + std::string(kTicket).replace(0, 1, "8");
  ::setenv(bootstrap::kJobVariable, both.c_str(), 1);
  const auto jobs = jobs_of_this_process(2);
  ASSERT_TRUE(jobs.ok());
  ASSERT_EQ(jobs->size(), 2u);
  EXPECT_EQ((*jobs)[1].id, 0x8f3a0c5de1b29864u);
  EXPECT_EQ(bootstrap::to_text(*jobs), both);
  const Status wrong = jobs_of_this_process(1).status();
  EXPECT_EQ(wrong.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(wrong.message().find("for 2 servers"), std::string::npos) << wrong.message();
  ::setenv(bootstrap::kJobVariable, (both + ",").c_str(), 1);
  EXPECT_EQ(jobs_of_this_process(2).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(JobTest, AProcessWithOneThreadLeavesItsOwnTicketToItsChildren) {
  EXPECT_EXIT(
      {
        const auto own = jobs_of_this_process(2);
        if (!own.ok() || own->size() != 2 || (*own)[0].id != 0) ::_exit(1);
        const char* left = std::getenv(bootstrap::kJobVariable);
        if (left == nullptr || bootstrap::to_text(*own) != left) ::_exit(2);
        const auto again = jobs_of_this_process(2);
        ::_exit(again.ok() && *again == *own ? 0 : 3);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST_F(JobTest, AProcessWithThreadsTouchesNoEnvironment) {
  EXPECT_EXIT(
      {
        std::atomic<bool> over{false};
        std::thread other([&over] {
          while (!over) std::this_thread::yield();
        });
        const auto own = jobs_of_this_process(1);
        const bool none = own.ok() && own->empty();
        over = true;
        other.join();
        ::_exit(none && std::getenv(bootstrap::kJobVariable) == nullptr ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace fargpu::client
