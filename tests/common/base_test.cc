// Status, Result, descriptors, logging, checks.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <sstream>
#include <thread>
#include <vector>

#include "common/base/check.h"
#include "common/base/fd.h"
#include "common/base/late_thread_local.h"
#include "common/base/log.h"
#include "common/base/printable.h"
#include "common/base/status.h"
#include "common/host/map_exactly.h"
#include "common/host/quick_mutex.h"
#include "common/host/signals_blocked.h"
#include "common/host/try_lock.h"

namespace fargpu {
namespace {

Result<int> half(int value) {
  if (value % 2 != 0) return Status(StatusCode::kInvalidArgument, "odd");
  return value / 2;
}

Result<int> quarter(int value) {
  FARGPU_ASSIGN_OR_RETURN(const int halved, half(value));
  return half(halved);
}

Status check_quarter(int value) {
  FARGPU_RETURN_IF_ERROR(quarter(value).status());
  return Status();
}

TEST(Status, CarriesCodeAndText) {
  EXPECT_TRUE(Status().ok());
  const Status lost(StatusCode::kLost, "gone");
  EXPECT_FALSE(lost.ok());
  EXPECT_EQ(lost.code(), StatusCode::kLost);
  EXPECT_EQ(lost.message(), "gone");
  EXPECT_STREQ(to_string(StatusCode::kNoCapacity), "no capacity");
}

TEST(Status, CopiesShareTheTextAndOutliveEachOther) {
  Status kept;
  {
    Status lost(StatusCode::kLost, "the peer of this session is gone");
    kept = lost;
    EXPECT_EQ(&kept.message(), &lost.message());
    lost = Status(StatusCode::kTimeout, "late");
    EXPECT_EQ(lost.message(), "late");
  }
  EXPECT_EQ(kept.message(), "the peer of this session is gone");
  const Status moved = std::move(kept);
  EXPECT_EQ(moved.code(), StatusCode::kLost);
  EXPECT_TRUE(Status(StatusCode::kOk, "dropped").ok());
  EXPECT_EQ(Status().message(), "");
}

TEST(Status, CopiesInManyThreads) {
  const Status shared(StatusCode::kLost, "the peer of this session is gone");
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([copy = shared] {
      for (int round = 0; round < 1000; ++round) {
        // NOLINTNEXTLINE(performance-unnecessary-copy-initialization): copies are made and end
        const Status again = copy;
        EXPECT_EQ(again.code(), StatusCode::kLost);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(shared.message(), "the peer of this session is gone");
}

TEST(Status, SystemErrorsNameTheCause) {
  const Status status = system_error("cannot open /x", ENOENT);
  EXPECT_EQ(status.code(), StatusCode::kSystem);
  EXPECT_EQ(status.message(), "cannot open /x: No such file or directory");
}

TEST(Result, PropagatesThroughTheMacros) {
  EXPECT_EQ(quarter(12).value(), 3);
  EXPECT_EQ(quarter(6).status().message(), "odd");
  EXPECT_TRUE(check_quarter(8).ok());
  EXPECT_EQ(check_quarter(7).code(), StatusCode::kInvalidArgument);
}

bool is_open(int descriptor) { return ::fcntl(descriptor, F_GETFD) >= 0; }

TEST(Fd, ClosesWhatItOwnsOnce) {
  int number;
  {
    Fd first(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    number = first.get();
    ASSERT_TRUE(is_open(number));
    Fd second(std::move(first));
    EXPECT_FALSE(first.valid());  // NOLINT(bugprone-use-after-move): that is the test
    EXPECT_EQ(second.get(), number);
    Fd third;
    third = std::move(second);
    EXPECT_TRUE(is_open(number));
  }
  EXPECT_FALSE(is_open(number));
  Fd kept(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  number = kept.release();
  EXPECT_FALSE(kept.valid());
  EXPECT_TRUE(is_open(number));
  ::close(number);
}

TEST(EventFd, PollsReadableUntilDrained) {
  auto event = EventFd::create();
  ASSERT_TRUE(event.ok());
  pollfd entry{event->get(), POLLIN, 0};
  EXPECT_EQ(::poll(&entry, 1, 0), 0);
  EXPECT_FALSE(event->drain());
  event->signal();
  event->signal();
  EXPECT_EQ(::poll(&entry, 1, 0), 1);
  EXPECT_TRUE(event->drain());
  EXPECT_EQ(::poll(&entry, 1, 0), 0);
}

TEST(Printable, WhatATerminalActsOnIsShownAsNumbers) {
  EXPECT_EQ(printable_line("a\nb\x1b[31m\"c\"\x7f", 100), "a\\x0ab\\x1b[31m\"c\"\\x7f");
  EXPECT_EQ(printable("say \"a\"", 100), "say 'a'");
  EXPECT_EQ(printable("Gr\u00fc\u00dfe \u20ac \U0001F600", 100),
            "Gr\u00fc\u00dfe \u20ac \U0001F600");
  // C1 controls, and marks that turn the direction of writing.
  EXPECT_EQ(printable("\u0085\u009b", 100), "\\xc2\\x85\\xc2\\x9b");
  EXPECT_EQ(printable("\u202e\u2066", 100), "\\xe2\\x80\\xae\\xe2\\x81\\xa6");
  EXPECT_EQ(printable("\u200f\u2028\ufeff", 100), "\\xe2\\x80\\x8f\\xe2\\x80\\xa8\\xef\\xbb\\xbf");
}

TEST(Printable, WhatIsNoUtf8IsShownByteByByte) {
  for (const auto& [text, shown] : std::vector<std::pair<std::string, std::string>>{
           {"\xff", "\\xff"},                                // no lead byte
           {"\x80z", "\\x80z"},                              // nothing to continue
           {"\xc3", "\\xc3"},                                // ends early
           {"\xc3(", "\\xc3("},                              // is not continued
           {"\xc0\x8a", "\\xc0\\x8a"},                       // a line end in two bytes
           {"\xe0\x80\x8a", "\\xe0\\x80\\x8a"},              // and in three
           {"\xed\xa0\x80", "\\xed\\xa0\\x80"},              // a surrogate
           {"\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"}}) {  // beyond Unicode
    EXPECT_EQ(printable(text, 100), shown);
  }
}

TEST(Printable, ALimitCutsBetweenCharacters) {
  EXPECT_EQ(printable("abcdef", 3), "abc");
  EXPECT_EQ(printable("ab\u20ac", 4), "ab");
  EXPECT_EQ(printable("ab\n", 5), "ab");
  EXPECT_EQ(printable("ab\n", 6), "ab\\x0a");
  EXPECT_EQ(printable("", 0), "");
}

class LogTest : public ::testing::Test {
 protected:
  LogTest() {
    ::setenv("FARGPU_LOG_FILE", path_.c_str(), 1);
    ::unsetenv("FARGPU_LOG");
  }
  ~LogTest() override {
    ::unsetenv("FARGPU_LOG_FILE");
    ::unsetenv("FARGPU_LOG");
    log::configure("test", log::Level::kWarn);
    ::unlink(path_.c_str());
  }
  std::string contents() {
    std::stringstream text;
    text << std::ifstream(path_).rdbuf();
    return text.str();
  }
  std::string path_ = ::testing::TempDir() + "fargpu_log_test." + std::to_string(::getpid());
};

TEST_F(LogTest, WritesOneLineWithLevelAndComponent) {
  log::configure("worker 17", log::Level::kInfo);
  log::info("{} GPUs", 2);
  log::debug("not this");
  log::error("a {} with {{}} in it", "text");
  const std::string text = contents();
  EXPECT_NE(text.find("info  worker 17: 2 GPUs\n"), std::string::npos) << text;
  EXPECT_NE(text.find("error worker 17: a text with {} in it\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("not this"), std::string::npos);
}

TEST_F(LogTest, ATextMakesNoLinesOfItsOwn) {
  log::configure("test", log::Level::kInfo);
  log::info("{}", "first\n2026-01-01 00:00:00.000 info  daemon: event=ready\x1b[31m");
  log::write_as("worker 1", log::Level::kInfo, "second\rthird");
  const std::string text = contents();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
  EXPECT_NE(text.find("test: first\\x0a2026-01-01"), std::string::npos) << text;
  EXPECT_NE(text.find("event=ready\\x1b[31m\n"), std::string::npos) << text;
  EXPECT_NE(text.find("info  worker 1: second\\x0dthird\n"), std::string::npos) << text;
}

TEST_F(LogTest, AFilterLeavesLinesOut) {
  log::configure("test", log::Level::kInfo);
  const log::Filter filter = [](std::string_view text) { return text != "no"; };
  log::set_filter(&filter);
  log::info("no");
  log::info("yes");
  log::set_filter(nullptr);
  EXPECT_EQ(contents().find(": no\n"), std::string::npos);
  EXPECT_NE(contents().find(": yes\n"), std::string::npos);
}

// As a process of a daemon writes them, and as the daemon reads them.
TEST_F(LogTest, LinesForADaemonHaveALevelAndNoTime) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const Fd reading(ends[0]), writing(ends[1]);
  ::setenv(log::kForDaemonVariable, "1", 1);
  ::setenv("FARGPU_LOG_FD", std::to_string(writing.get()).c_str(), 1);
  log::configure("worker 17", log::Level::kDebug);
  log::debug("one");
  log::warn("two");
  log::error("{}", std::string(5000, 'x'));
  ::unsetenv("FARGPU_LOG_FD");
  ::unsetenv(log::kForDaemonVariable);
  std::string text(8192, 0);
  text.resize(static_cast<size_t>(::read(reading.get(), text.data(), text.size())));
  std::istringstream lines(text);
  const std::pair<log::Level, std::string> wanted[] = {
      {log::Level::kDebug, "one"},
      {log::Level::kWarn, "two"},
      {log::Level::kError, std::string(1000, 'x')}};
  for (const auto& [level, says] : wanted) {
    std::string line;
    ASSERT_TRUE(std::getline(lines, line));
    EXPECT_LE(line.size() + 1, 1024u);
    EXPECT_EQ(log::from_process(line).first, level);
    EXPECT_EQ(log::from_process(line).second, says);
  }
  EXPECT_EQ(contents(), "");  // FARGPU_LOG_FILE is the daemon's
  for (const std::string_view line : {"an assertion failed", "<none>text", "<info", "<"})
    EXPECT_EQ(log::from_process(line), std::pair(log::Level::kWarn, line));
}

TEST_F(LogTest, NobodyWaitsForWhoReadsIt) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const Fd reading(ends[0]), writing(ends[1]);
  ::unsetenv("FARGPU_LOG_FILE");
  ::setenv("FARGPU_LOG_FD", std::to_string(writing.get()).c_str(), 1);
  log::configure("test", log::Level::kInfo);
  ::unsetenv("FARGPU_LOG_FD");
  int kept = 0;
  log::never_wait([&kept] { ++kept; });
  constexpr int kLines = 1000;
  for (int i = 0; i < kLines; ++i) log::info("{:04} {}", i, std::string(1000, 'x'));
  EXPECT_GT(kept, 500);
  EXPECT_FALSE(log::flush());
  // Read now: what was kept comes in its order, then the number of the others.
  std::string text;
  for (bool whole = false; !whole;) {
    whole = log::flush();
    std::string bytes(1u << 20, 0);
    text.append(bytes, 0, static_cast<size_t>(::read(reading.get(), bytes.data(), bytes.size())));
  }
  std::istringstream lines(text);
  int next = 0;
  std::string line;
  for (; std::getline(lines, line) && line.find("event=") == std::string::npos; ++next)
    EXPECT_NE(line.find(" test: " + fmt::format("{:04}", next)), std::string::npos) << line;
  EXPECT_GT(next, 250);
  EXPECT_NE(line.find(fmt::format("event=log-lines-lost lines={}", kLines - next)),
            std::string::npos)
      << line;
}

// A terminal and a pipe say that there is room for a byte where there is none for a line.
TEST_F(LogTest, NobodyWaitsForATerminalOrALongLine) {
  ::unsetenv("FARGPU_LOG_FILE");
  const Fd master(::posix_openpt(O_RDWR | O_NOCTTY));
  ASSERT_TRUE(master.valid() && ::grantpt(master.get()) == 0 && ::unlockpt(master.get()) == 0);
  const Fd terminal(::open(::ptsname(master.get()), O_WRONLY | O_NOCTTY));
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const Fd reading(ends[0]), writing(ends[1]);
  for (const int descriptor : {terminal.get(), writing.get()}) {
    ::setenv("FARGPU_LOG_FD", std::to_string(descriptor).c_str(), 1);
    log::configure("test", log::Level::kInfo);
    ::unsetenv("FARGPU_LOG_FD");
    log::never_wait(nullptr);
    for (int i = 0; i < 100; ++i) log::info("{}", std::string(2000, '\xff'));
    EXPECT_FALSE(log::flush());
    EXPECT_EQ(::fcntl(descriptor, F_GETFL) & O_NONBLOCK, 0) << "others write to it, too";
  }
}

TEST_F(LogTest, EnvironmentSetsTheLevel) {
  ::setenv("FARGPU_LOG", "debug", 1);
  log::configure("test", log::Level::kError);
  EXPECT_TRUE(log::enabled(log::Level::kDebug));
  EXPECT_FALSE(log::enabled(log::Level::kTrace));
  ::setenv("FARGPU_LOG", "off", 1);
  log::configure("test", log::Level::kInfo);
  EXPECT_FALSE(log::enabled(log::Level::kError));
  ::setenv("FARGPU_LOG", "loud", 1);
  log::configure("test", log::Level::kInfo);
  EXPECT_NE(contents().find("FARGPU_LOG='loud' is not a level"), std::string::npos);
}

TEST_F(LogTest, LinesOfManyThreadsStayWhole) {
  log::configure("test", log::Level::kInfo);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < 200; ++i) log::info("{:0100}", 0);
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::ifstream file(path_);
  std::string line;
  int lines = 0;
  for (; std::getline(file, line); ++lines) {
    EXPECT_EQ(line.substr(line.size() - 106), "test: " + std::string(100, '0'));
  }
  EXPECT_EQ(lines, 800);
}

TEST_F(LogTest, ForkedChildCanLog) {
  log::configure("test", log::Level::kInfo);
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    while (!stop) log::info("parent");
  });
  for (int i = 0; i < 20; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(20);  // a lock inherited locked would hang
      log::info("child");
      ::_exit(0);
    }
    int status = -1;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  stop = true;
  busy.join();
}

TEST(MapExactly, TakesTheAddressOrNothing) {
  constexpr size_t kPage = 4096;
  constexpr int kAnywhere = MAP_PRIVATE | MAP_ANONYMOUS;
  auto* const hole =
      static_cast<char*>(::mmap(nullptr, 4 * kPage, PROT_READ | PROT_WRITE, kAnywhere, -1, 0));
  ASSERT_NE(hole, MAP_FAILED);
  hole[3 * kPage] = 'x';
  ASSERT_EQ(::munmap(hole, 3 * kPage), 0);
  EXPECT_FALSE(map_exactly(hole, 4 * kPage, PROT_READ, kAnywhere));
  EXPECT_EQ(errno, EEXIST);
  EXPECT_EQ(hole[3 * kPage], 'x');
  ASSERT_TRUE(map_exactly(hole, 3 * kPage, PROT_READ | PROT_WRITE, kAnywhere));
  hole[0] = 'y';
  EXPECT_FALSE(map_exactly(hole, kPage, PROT_READ, kAnywhere));
  EXPECT_EQ(hole[0], 'y');
  ::munmap(hole, 4 * kPage);
}

// Addresses that a client of another build uses: also a process that cannot have them lives on.
TEST(MapExactly, FarAddressesAreMappedOrRefused) {
  constexpr size_t kPage = 4096;
  for (const uint64_t address :
       {uint64_t{0x2c00'0000'0000}, uint64_t{1} << 40, uint64_t{0x3000'0000'0000}}) {
    auto* const memory = reinterpret_cast<char*>(address);
    if (map_exactly(memory, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS)) {
      *memory = 1;
      ::munmap(memory, kPage);
    } else {
      EXPECT_EQ(errno, EEXIST);
    }
  }
}

struct Late {
  int value = 0;
  static inline std::atomic<int> alive{0};
  Late() { ++alive; }
  ~Late() { --alive; }
};

// Used by the destructor of a thread-local object that was made first, so that it goes last.
struct UsesLateObject {
  int* seen = nullptr;
  ~UsesLateObject() {
    if (seen != nullptr) *seen = LateThreadLocal<Late>::get().value;
  }
};
thread_local UsesLateObject uses_late_object;

TEST(LateThreadLocal, OutlivesTheThreadsOtherObjects) {
  int seen = 0;
  std::thread([&seen] {
    EXPECT_EQ(LateThreadLocal<Late>::if_made(), nullptr);
    uses_late_object.seen = &seen;
    LateThreadLocal<Late>::get().value = 7;
    EXPECT_EQ(LateThreadLocal<Late>::if_made(), &LateThreadLocal<Late>::get());
  }).join();
  EXPECT_EQ(seen, 7);
  EXPECT_EQ(Late::alive, 0);
}

// A destructor of a key that comes after the object's own makes another one, which goes as well.
TEST(LateThreadLocal, MadeAnewWhenUsedAfterItsEnd) {
  std::thread([] { LateThreadLocal<Late>::get(); }).join();  // its key is older than the next
  static int runs;
  pthread_key_t key;
  ASSERT_EQ(::pthread_key_create(&key,
                                 [](void*) {
                                   ++runs;
                                   LateThreadLocal<Late>::get();
                                 }),
            0);
  std::thread([key] {
    LateThreadLocal<Late>::get();
    ::pthread_setspecific(key, &runs);
  }).join();
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(Late::alive, 0);
  ::pthread_key_delete(key);
}

bool blocked_here(int number) {
  sigset_t mask;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  return ::sigismember(&mask, number) == 1;
}

TEST(SignalsBlocked, ForTheThreadThatIsStartedMeanwhile) {
  sigset_t one;
  ::sigemptyset(&one);
  ::sigaddset(&one, SIGUSR2);
  ::pthread_sigmask(SIG_BLOCK, &one, nullptr);
  bool in_thread[2] = {};
  std::thread thread;
  {
    const SignalsBlocked blocked;
    thread = std::thread([&] {
      in_thread[0] = blocked_here(SIGTERM);
      in_thread[1] = blocked_here(SIGUSR2);
    });
  }
  thread.join();
  EXPECT_TRUE(in_thread[0] && in_thread[1]);
  EXPECT_FALSE(blocked_here(SIGTERM));
  EXPECT_TRUE(blocked_here(SIGUSR2));
  ::pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
}

TEST(QuickMutex, OneAtATime) {
  QuickMutex mutex;
  EXPECT_TRUE(mutex.try_lock());
  EXPECT_FALSE(mutex.try_lock());
  mutex.unlock();
  constexpr int kThreads = 4, kRounds = 20'000;
  int count = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kRounds; ++i) {
        const std::lock_guard lock(mutex);
        // Held for long now and then, so that the others sleep.
        if (++count % 4000 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count, kThreads * kRounds);
  EXPECT_TRUE(mutex.try_lock());
}

TEST(TryLock, OneAtATime) {
  TryLock lock;
  int counter = 0;
  std::atomic<int> skipped{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, patient = i % 2 == 0] {
      for (int round = 0; round < 10'000; ++round) {
        std::unique_lock held(lock, std::defer_lock);
        if (patient) {
          held.lock();
        } else if (!held.try_lock()) {
          ++skipped;
          continue;
        }
        ++counter;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(counter, 40'000 - skipped);
  std::unique_lock held(lock);
  EXPECT_FALSE(lock.try_lock());
}

TEST(CheckDeathTest, AbortsWithThePlace) {
  FARGPU_CHECK(1 + 1 == 2);
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(FARGPU_CHECK(1 + 1 == 3), "1 \\+ 1 == 3 does not hold at .*base_test.cc");
}

// A thread that takes the lock again at once lets pass who waits.
TEST(QuickMutex, LetsOthersPass) {
  QuickMutex mutex;
  std::atomic<int> rounds{0};
  std::atomic<bool> over{false};
  std::thread holder([&] {
    while (!over) {
      {
        const std::lock_guard lock(mutex);
        ++rounds;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      mutex.let_pass(std::chrono::seconds(30));
    }
  });
  while (rounds == 0) std::this_thread::yield();
  std::vector<int> missed;
  for (int i = 0; i < 51; ++i) {
    const int before = rounds;
    const std::lock_guard lock(mutex);
    missed.push_back(rounds - before);
  }
  std::sort(missed.begin(), missed.end());
  EXPECT_LE(missed[25], 2) << "in most rounds this thread ran at once";
  EXPECT_GT(mutex.waits(), 0u);
  over = true;
  holder.join();
}

}  // namespace
}  // namespace fargpu
