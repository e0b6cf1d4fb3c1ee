// The numbers of a session's descriptors in a worker that was started ahead. Each test is a child
// process, since it takes numbers that the test program uses.
#include "server/worker/session_descriptors.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <functional>

#include "server/handover/worker_options.h"

namespace fargpu::server {
namespace {

constexpr int kFirst = kSocketFd, kLast = kOrdersFd;

bool is_open(int number) { return ::fcntl(number, F_GETFD) >= 0; }

bool closes_at_exec(int number) { return (::fcntl(number, F_GETFD) & FD_CLOEXEC) != 0; }

ino_t file_of(int number) {
  struct stat about {};
  return ::fstat(number, &about) == 0 ? about.st_ino : 0;
}

bool is_nothing(int number) {
  struct stat about {
  }, nothing{};
  return ::fstat(number, &about) == 0 && ::stat("/dev/null", &nothing) == 0 &&
         about.st_rdev == nothing.st_rdev;
}

// A file of its own.
Fd some_file() { return Fd(::memfd_create("descriptor", MFD_CLOEXEC)); }

// The next open file gets the lowest free number: as few as a new process has.
void close_all_of_a_session() {
  for (int number = kFirst; number <= kLast; ++number) ::close(number);
}

size_t open_descriptors() {
  size_t count = 0;
  for (int number = 0; number < 1000; ++number) count += is_open(number);
  return count;
}

void check(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "not so: %s\n", what);
  ::_exit(1);
}

// Runs it in a child process.
void in_a_child(const std::function<void()>& test) {
  EXPECT_EXIT(
      {
        close_all_of_a_session();
        test();
        ::_exit(0);
      },
      ::testing::ExitedWithCode(0), "");
}

// kControlFd is no number of a session's.
void reserve(int control) {
  const ino_t file = file_of(control);
  check(file != 0 && control == kControlFd, "the socket to the daemon is there");
  const size_t before = open_descriptors();
  check(reserve_session_descriptors().ok(), "they are kept");
  check(open_descriptors() <= before + kSessionFds.size(), "no descriptor is left over");
  check(file_of(control) == file, "the socket to the daemon is the same");
  for (const int number : kSessionFds) {
    check(is_nothing(number), "each number of a session is kept");
    check(closes_at_exec(number), "no child inherits it");
  }
  check(some_file().get() > kLast, "what is opened next has another number");
}

TEST(SessionDescriptors, EachNumberIsKeptWhereTheFirstIsFree) {
  in_a_child([] { reserve(::fcntl(STDERR_FILENO, F_DUPFD, kControlFd)); });
}

TEST(SessionDescriptors, EachNumberIsKeptWhereTheFirstIsInherited) {
  in_a_child([] {
    check(::fcntl(STDERR_FILENO, F_DUPFD, kFirst) == kFirst, "the first is inherited");
    reserve(::fcntl(STDERR_FILENO, F_DUPFD, kControlFd));
  });
}

TEST(SessionDescriptors, WhatComesWithStartGetsItsNumber) {
  in_a_child([] {
    reserve(::fcntl(STDERR_FILENO, F_DUPFD, kControlFd));
    const size_t before = open_descriptors();
    std::vector<Fd> received(kSessionFds.size() - 1);
    std::generate(received.begin(), received.end(), some_file);
    std::vector<ino_t> files;
    for (const Fd& each : received) files.push_back(file_of(each.get()));
    check(place_session_descriptors(std::move(received), false).ok(), "they are placed");
    for (size_t i = 0; i < files.size(); ++i) {
      check(file_of(kSessionFds[i]) == files[i], "each has its number");
      check(closes_at_exec(kSessionFds[i]), "no child inherits it");
    }
    check(!is_open(kJoinFd), "the number that is not used is free again");
    check(open_descriptors() == before - 1, "no descriptor is left over");
  });
}

// As after a driver that has closed what is not its own.
TEST(SessionDescriptors, OneThatComesUnderANumberOfASessionIsNotLost) {
  for (const bool in_order : {true, false}) {
    in_a_child([in_order] {
      check(::fcntl(STDERR_FILENO, F_DUPFD, kControlFd) == kControlFd, "as in a worker");
      std::vector<Fd> received(kSessionFds.size());
      std::generate(received.begin(), received.end(), some_file);
      check(received[0].get() == kFirst && received.back().get() == kLast, "the numbers are free");
      if (!in_order) std::reverse(received.begin(), received.end());
      std::vector<ino_t> files;
      for (const Fd& each : received) files.push_back(file_of(each.get()));
      check(place_session_descriptors(std::move(received), true).ok(), "they are placed");
      for (size_t i = 0; i < files.size(); ++i)
        check(file_of(kSessionFds[i]) == files[i], "each has its number");
    });
  }
}

TEST(SessionDescriptors, AnotherNumberOfThemIsRefused) {
  std::vector<Fd> received(2);
  EXPECT_EQ(place_session_descriptors(std::move(received), false).code(), StatusCode::kProtocol);
}

}  // namespace
}  // namespace fargpu::server
