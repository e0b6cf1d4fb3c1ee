// Launchers: what a process gets, its signals, its end. Each test runs with children of this
// process and with those of another one.
#include <fcntl.h>
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <thread>

#include "common/transport/poll.h"
#include "server/launch/child_launcher.h"
#include "tests/server/distant_launcher.h"
#include "tests/server/run_process.h"

namespace fargpu::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using transport::Clock;

constexpr auto kLimit = seconds(60);

ProcessSetup shell(const std::string& script) { return {"/bin/sh", {"-c", script}, {}, {}}; }

std::vector<pid_t> children() {
  std::ifstream file("/proc/self/task/" + std::to_string(::getpid()) + "/children");
  return {std::istream_iterator<pid_t>(file), {}};
}

class LauncherTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    ::setenv("FARGPU_TEST_KEPT", "kept", 1);
    ::setenv("FARGPU_TEST_CHANGED", "old", 1);
    // As when a daemon is started inside a job.
    ::setenv("FARGPU_JOB", "id-key", 1);
    ::setenv("FARGPU_TOKEN", "secret", 1);
    ::setenv("OPERATORS_SECRET", "secret", 1);
    ::setenv("CUDA_CACHE_PATH", "/cache", 1);
    if (GetParam()) {
      launcher_ = std::make_unique<DistantLauncher>();
    } else {
      launcher_ = std::make_unique<ChildLauncher>();
    }
    before_ = children();
  }
  void TearDown() override {
    for (const char* name : {"FARGPU_TEST_KEPT", "FARGPU_TEST_CHANGED", "FARGPU_JOB",
                             "FARGPU_TOKEN", "OPERATORS_SECRET", "CUDA_CACHE_PATH"}) {
      ::unsetenv(name);
    }
  }
  std::unique_ptr<LaunchedProcess> start(const ProcessSetup& setup) {
    auto process = launcher_->start(setup);
    EXPECT_TRUE(process.ok()) << process.status().message();
    return std::move(*process);
  }
  Result<ProcessOutput> run(const ProcessSetup& setup, milliseconds limit = kLimit) {
    return run_process(*launcher_, setup, limit);
  }
  static bool readable(const LaunchedProcess& process, Clock::duration within) {
    pollfd entry{process.end_descriptor(), POLLIN, 0};
    const auto ready = transport::poll_until(std::span(&entry, 1), Clock::now() + within);
    return ready.ok() && *ready == 1;
  }
  std::string end_of(LaunchedProcess& process) {
    const auto end = await_end(process, Clock::now() + kLimit);
    return end ? end->describe() : "it has not ended";
  }

  std::unique_ptr<Launcher> launcher_;
  std::vector<pid_t> before_;
};

TEST_P(LauncherTest, OutputAndExitCodeArriveWhole) {
  const auto output = run(shell("echo hello; exit 3"));
  ASSERT_TRUE(output.ok());
  EXPECT_EQ(output->text, "hello\n");
  EXPECT_EQ(output->end.describe(), "exited with 3");
}

TEST_P(LauncherTest, AProcessThatTakesTooLongIsKilled) {
  EXPECT_EQ(run(shell("exec sleep 60"), milliseconds(100)).status().code(), StatusCode::kTimeout);
}

TEST_P(LauncherTest, AnEndlessOutputIsCut) {
  const auto output = run(shell("yes"));
  ASSERT_TRUE(output.ok());
  EXPECT_LE(output->text.size(), (1u << 20) + 4096);
  EXPECT_NE(output->end.signal, 0);
}

TEST_P(LauncherTest, AProgramThatCannotBeExecutedIsAnErrorAndLeavesNothing) {
  for (const std::string program : {"/nonexistent/worker", "/dev/null", "/tmp"}) {
    const auto process = launcher_->start({program, {}, {}, {}});
    ASSERT_FALSE(process.ok());
    EXPECT_THAT(process.status().message(), HasSubstr(program));
  }
  EXPECT_EQ(children(), before_);
}

// A worker must not hold another session's socket: only what is listed gets in, under the numbers
// that were asked for.
TEST_P(LauncherTest, TheListedDescriptorsAndNoOthersAreInherited) {
  const Fd kept(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const Fd leaked(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  ProcessSetup setup = shell("ls /proc/self/fd | wc -l; ls -l /proc/$$/fd");
  setup.descriptors = {{kept.get(), 5}, {kept.get(), 4}};
  const auto output = run(setup);
  ASSERT_TRUE(output.ok());
  EXPECT_THAT(output->text, HasSubstr(" 4 -> /dev/null"));
  EXPECT_THAT(output->text, HasSubstr(" 5 -> /dev/null"));
  for (int fd = 6; fd < 80; ++fd) {
    EXPECT_EQ(output->text.find(fmt::format(" {} -> /dev/null", fd)), std::string::npos) << fd;
  }
}

TEST_P(LauncherTest, TheEnvironmentIsShortWithChangesAndWithoutSecrets) {
  ProcessSetup setup = shell(
      "echo $FARGPU_TEST_KEPT $FARGPU_TEST_CHANGED $CUDA_CACHE_PATH "
      "\"$FARGPU_JOB,$FARGPU_TOKEN,$OPERATORS_SECRET\"");
  setup.environment = {{"FARGPU_TEST_CHANGED", "new"}};
  EXPECT_EQ(run(setup)->text, "kept new /cache ,,\n");
}

TEST_P(LauncherTest, ASignalReachesTheProcessAndIsNamedAtItsEnd) {
  const auto process = start(shell("exec sleep 60"));
  EXPECT_FALSE(readable(*process, milliseconds(50)));
  EXPECT_FALSE(process->end());
  process->signal(SIGTERM);
  EXPECT_TRUE(readable(*process, kLimit));
  EXPECT_THAT(end_of(*process), HasSubstr("was killed by signal 15 (Terminated)"));
}

TEST_P(LauncherTest, AnEndBeforeAnybodyWaitsIsKept) {
  const auto process = start(shell("exit 7"));
  EXPECT_TRUE(readable(*process, kLimit));
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_EQ(end_of(*process), "exited with 7");
  EXPECT_EQ(end_of(*process), "exited with 7");
  EXPECT_TRUE(readable(*process, seconds(0)));
}

// The id may be another process's by then.
TEST_P(LauncherTest, ASignalAfterTheEndHasNoEffect) {
  const auto process = start(shell("exit 0"));
  EXPECT_EQ(end_of(*process), "exited with 0");
  process->signal(SIGKILL);
  EXPECT_EQ(end_of(*process), "exited with 0");
}

TEST_P(LauncherTest, ManyProcessesAtOnceEndEachInItsOwnWay) {
  constexpr int kCount = 64;
  std::vector<std::unique_ptr<LaunchedProcess>> processes;
  for (int i = 0; i < kCount; ++i)
    processes.push_back(start(shell(i % 2 == 0 ? fmt::format("exit {}", i) : "exec sleep 60")));
  for (int i = kCount - 1; i >= 0; i -= 2) processes[i]->signal(i % 4 == 1 ? SIGKILL : SIGTERM);
  for (int i = 0; i < kCount; ++i) {
    const auto end = await_end(*processes[i], Clock::now() + kLimit);
    ASSERT_TRUE(end) << i;
    EXPECT_EQ(end->code, i % 2 == 0 ? i : 0) << i;
    EXPECT_EQ(end->signal, i % 2 == 0 ? 0 : i % 4 == 1 ? SIGKILL : SIGTERM) << i;
  }
  EXPECT_EQ(children(), before_) << "a process was left as a zombie";
}

TEST_P(LauncherTest, AProcessOutlivesTheObjectThatStandsForIt) {
  auto process = start(shell("exec sleep 60"));
  const pid_t id = process->id();
  process.reset();
  EXPECT_EQ(::kill(id, 0), 0);
  ::kill(id, SIGKILL);
  if (!GetParam()) ::waitpid(id, nullptr, 0);
}

INSTANTIATE_TEST_SUITE_P(Kinds, LauncherTest, ::testing::Bool(), [](const auto& info) {
  return info.param ? "OfAnotherProcess" : "Children";
});

// The system forgets how the children of a process end that ignores SIGCHLD, as some parents do.
TEST(ChildLauncher, AnIgnoredSigchldHidesNoEnd) {
  ::signal(SIGCHLD, SIG_IGN);
  ChildLauncher launcher;
  auto process = launcher.start(shell("exit 5"));
  ASSERT_TRUE(process.ok());
  const auto end = await_end(**process, Clock::now() + kLimit);
  ::signal(SIGCHLD, SIG_DFL);
  ASSERT_TRUE(end);
  EXPECT_EQ(end->describe(), "exited with 5");
}

}  // namespace
}  // namespace fargpu::server
