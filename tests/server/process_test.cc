#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "server/daemon/runtime_folder.h"
#include "server/handover/inventory.h"
#include "server/handover/session_statistics.h"
#include "server/launch/child_launcher.h"

namespace fargpu::server {
namespace {

using ::testing::HasSubstr;

TEST(Inventory, AProbeThatCrashesIsADriverError) {
  ChildLauncher launcher;
  const auto inventory = probe(launcher, "/bin/false", "auto", {});
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
