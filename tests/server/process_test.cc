#include <fcntl.h>
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "server/daemon/runtime_folder.h"
#include "server/handover/child_process.h"
#include "server/handover/inventory.h"
#include "server/handover/session_statistics.h"
#include "tests/server/keeps_no_modes.h"
#include "tests/server/run_child.h"

namespace fargpu::server {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

ChildSetup shell(const std::string& script) { return {"/bin/sh", {"-c", script}, {}, {}}; }

TEST(ChildProcess, CollectsOutputAndStatus) {
  const auto output = run_child(shell("echo hello; exit 3"), seconds(20));
  ASSERT_TRUE(output.ok());
  EXPECT_EQ(output->text, "hello\n");
  EXPECT_EQ(describe_wait_status(output->wait_status), "exited with 3");
}

TEST(ChildProcess, IsKilledAtItsDeadline) {
  EXPECT_EQ(run_child(shell("exec sleep 60"), std::chrono::milliseconds(100)).status().code(),
            StatusCode::kTimeout);
}

TEST(ChildProcess, OutputIsLimited) {
  const auto output = run_child(shell("yes"), seconds(60));
  ASSERT_TRUE(output.ok());
  EXPECT_LE(output->text.size(), (1u << 20) + 4096);
  EXPECT_TRUE(WIFSIGNALED(output->wait_status));
}

TEST(ChildProcess, AMissingProgramIsAnErrorWithItsName) {
  const auto output = run_child({"/nonexistent/worker", {}, {}, {}}, seconds(20));
  EXPECT_THAT(output.status().message(), HasSubstr("/nonexistent/worker"));
}

// A worker must not hold another session's socket: only what is listed gets in, under the numbers
// that were asked for.
TEST(ChildProcess, InheritsExactlyTheListedDescriptors) {
  const Fd kept(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const Fd leaked(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  ChildSetup setup = shell("ls /proc/self/fd | wc -l; ls -l /proc/$$/fd");
  setup.descriptors = {{kept.get(), 5}, {kept.get(), 4}};
  const auto output = run_child(setup, seconds(20));
  ASSERT_TRUE(output.ok());
  EXPECT_THAT(output->text, HasSubstr(" 4 -> /dev/null"));
  EXPECT_THAT(output->text, HasSubstr(" 5 -> /dev/null"));
  for (int fd = 6; fd < 80; ++fd) {
    EXPECT_EQ(output->text.find(fmt::format(" {} -> /dev/null", fd)), std::string::npos) << fd;
  }
}

TEST(ChildProcess, EnvironmentIsOursWithChanges) {
  ::setenv("FARGPU_TEST_KEPT", "kept", 1);
  ::setenv("FARGPU_TEST_CHANGED", "old", 1);
  ChildSetup setup = shell("echo $FARGPU_TEST_KEPT $FARGPU_TEST_CHANGED");
  setup.environment = {{"FARGPU_TEST_CHANGED", "new"}};
  EXPECT_EQ(run_child(setup, seconds(20))->text, "kept new\n");
}

// As when a daemon is started inside a job.
TEST(ChildProcess, WhatBelongsToAClientIsNotPassedOn) {
  ::setenv("FARGPU_JOB", "id-key", 1);
  ::setenv("FARGPU_TOKEN", "secret", 1);
  EXPECT_EQ(run_child(shell("echo \"$FARGPU_JOB,$FARGPU_TOKEN\""), seconds(20))->text, ",\n");
  ::unsetenv("FARGPU_JOB");
  ::unsetenv("FARGPU_TOKEN");
}

TEST(ChildProcess, ASignalIsNamed) {
  const auto output = run_child(shell("kill -9 $$"), seconds(20));
  EXPECT_THAT(describe_wait_status(output->wait_status), HasSubstr("signal 9"));
}

TEST(Inventory, AProbeThatCrashesIsADriverError) {
  const auto inventory = probe("/bin/false", "auto", {});
  EXPECT_EQ(inventory.status().code(), StatusCode::kDriver);
  EXPECT_THAT(inventory.status().message(), HasSubstr("exited with 1"));
}

TEST(Statistics, BothSidesSeeOnePage) {
  auto daemon = StatisticsPage::create("fargpu-statistics");
  ASSERT_TRUE(daemon.ok());
  auto worker = StatisticsPage::open(Fd(::dup(daemon->descriptor())));
  ASSERT_TRUE(worker.ok());
  (*worker)->calls = 42;
  EXPECT_EQ((*daemon)->calls.load(), 42u);
}

TEST(RuntimeFolder, IsPrivateAndGoesWithItsObject) {
  std::string path;
  {
    auto folder = RuntimeFolder::create(::testing::TempDir());
    ASSERT_TRUE(folder.ok());
    path = folder->path();
    EXPECT_EQ(std::filesystem::status(path).permissions(), std::filesystem::perms::owner_all);
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_FALSE(RuntimeFolder::create("/nonexistent").ok());
}

TEST(RuntimeFolder, IsNotMadeWhereNoImageCanBeKept) {
  std::string base = ::testing::TempDir() + "/fargpu-folders-XXXXXX";
  ASSERT_NE(::mkdtemp(base.data()), nullptr);
  const KeepsNoModes file_system;
  const auto folder = RuntimeFolder::create(base);
  EXPECT_EQ(folder.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(folder.status().message(), HasSubstr(base + " (--runtime-dir)"));
  EXPECT_THAT(folder.status().message(), HasSubstr("does not keep the mode 0400"));
  EXPECT_TRUE(std::filesystem::is_empty(base));
  std::filesystem::remove(base);
}

TEST(RuntimeFolder, TheNextOneRemovesWhatAKilledDaemonLeft) {
  namespace fs = std::filesystem;
  std::string base = ::testing::TempDir() + "/fargpu-folders-XXXXXX";
  ASSERT_NE(::mkdtemp(base.data()), nullptr);
  // A daemon that is killed: its folder stays, its lock does not.
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t killed = ::fork();
  if (killed == 0) {
    auto folder = RuntimeFolder::create(base);
    if (folder.ok()) std::ofstream(folder->images() + "/image") << "bytes";
    if (::write(ends[1], folder.ok() ? "y" : "n", 1) == 1) ::pause();
    ::_exit(1);
  }
  char made = 0;
  ASSERT_EQ(::read(ends[0], &made, 1), 1);
  ASSERT_EQ(made, 'y');
  const auto living = RuntimeFolder::create(base);
  ASSERT_TRUE(living.ok());
  EXPECT_EQ(std::distance(fs::directory_iterator(base), {}), 2) << "a folder in use was removed";
  EXPECT_EQ(RuntimeFolder::remove_abandoned(base), 0u);
  ::kill(killed, SIGKILL);
  ASSERT_EQ(::waitpid(killed, nullptr, 0), killed);
  ::close(ends[0]);
  ::close(ends[1]);

  // What does not look like ours, or has no lock yet, stays; so does what only points elsewhere.
  fs::create_directory(base + "/fargpud-AAAAAA");
  fs::create_directory(base + "/fargpud-somebody-else");
  std::ofstream(base + "/fargpud-somebody-else/lock") << "";
  fs::create_directory(base + "/elsewhere");
  std::ofstream(base + "/elsewhere/lock") << "";
  fs::create_directory_symlink(base + "/elsewhere", base + "/fargpud-BBBBBB");
  EXPECT_EQ(std::distance(fs::directory_iterator(base), {}), 6);
  {
    const auto next = RuntimeFolder::create(base);
    ASSERT_TRUE(next.ok());
    EXPECT_EQ(std::distance(fs::directory_iterator(base), {}), 6) << "one went, one came";
    EXPECT_TRUE(fs::exists(living->images()));
    EXPECT_TRUE(fs::exists(base + "/elsewhere/lock"));
  }
  fs::remove_all(base);
}

}  // namespace
}  // namespace fargpu::server
