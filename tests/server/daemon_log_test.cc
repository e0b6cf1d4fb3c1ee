// What comes into a daemon's log: its own lines and those of its processes, whatever these write.
#include "server/launch/daemon_log.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "server/launch/child_launcher.h"
#include "server/launch/logged_launcher.h"
#include "server/launch/watched_process.h"
#include "tests/server/run_until.h"

namespace fargpu::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::Not;
using Clock = std::chrono::steady_clock;

constexpr auto kLimit = seconds(60);

class DaemonLogTest : public ::testing::Test {
 protected:
  DaemonLogTest() {
    ::setenv("FARGPU_LOG_FILE", path_.c_str(), 1);
    log::configure("daemon", log::Level::kInfo);
    log_.emplace(loop_);
  }
  ~DaemonLogTest() override {
    log_.reset();
    ::unsetenv("FARGPU_LOG_FILE");
    log::configure("test", log::Level::kWarn);
    ::unlink(path_.c_str());
  }
  std::string contents() const {
    std::stringstream text;
    text << std::ifstream(path_).rdbuf();
    return text.str();
  }
  size_t lines_with(const std::string& what) const {
    std::ifstream file(path_);
    size_t count = 0;
    for (std::string line; std::getline(file, line);) count += line.find(what) != line.npos;
    return count;
  }
  bool eventually(const std::function<bool()>& condition) {
    return run_until(loop_, kLimit, condition);
  }
  std::shared_ptr<WatchedProcess> start(const std::string& script, const std::string& name) {
    ProcessSetup setup{"/bin/sh", {"-c", script}, {}, {}, name};
    auto process = WatchedProcess::start(loop_, launcher_, setup);
    EXPECT_TRUE(process.ok()) << process.status().message();
    return process.ok() ? *process : nullptr;
  }
  // Until the process has ended.
  void run(const std::string& script, const std::string& name = "worker 1") {
    const auto process = start(script, name);
    bool ended = false;
    process->on_end([&ended](const ProcessEnd&) { ended = true; });
    EXPECT_TRUE(eventually([&ended] { return ended; }));
  }

  const std::string path_ =
      ::testing::TempDir() + "fargpu_daemon_log_test." + std::to_string(::getpid());
  boost::asio::io_context loop_;
  std::optional<DaemonLog> log_;
  ChildLauncher children_;
  LoggedLauncher launcher_{loop_, children_};
};

TEST_F(DaemonLogTest, LinesOfAProcessHaveItsNameAndTheirLevel) {
  run("echo '<error>an error'; echo '<info>told' >&2; echo '<debug>too much'; echo text; echo; "
      "printf 'no line end'");
  const std::string text = contents();
  EXPECT_THAT(text, HasSubstr("error worker 1: an error\n"));
  EXPECT_THAT(text, HasSubstr("info  worker 1: told\n"));
  EXPECT_THAT(text, Not(HasSubstr("too much")));
  EXPECT_THAT(text, HasSubstr("warning worker 1: text\n"));
  EXPECT_THAT(text, HasSubstr("worker 1: no line end\n"));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4) << text;
}

TEST_F(DaemonLogTest, AProcessHasTheNameThatItWasGivenLast) {
  const auto process = start(
      "trap 'echo second; exit' USR1; echo first; while :; do sleep 0.01; done", "worker ahead");
  EXPECT_TRUE(eventually([this] { return lines_with("worker ahead: first") == 1; }));
  process->set_name("worker 2 job 1");
  process->signal(SIGUSR1);
  bool ended = false;
  process->on_end([&ended](const ProcessEnd&) { ended = true; });
  EXPECT_TRUE(eventually([&ended] { return ended; }));
  EXPECT_EQ(lines_with("worker 2 job 1: second"), 1u) << contents();
}

// Only what the daemon writes itself looks like its lines.
TEST_F(DaemonLogTest, AProcessCannotForgeALineOfAnother) {
  run("printf '2026-01-01 00:00:00.000 info  daemon: event=session-begin\\n"
      "<info>a\\rdaemon: event=ready\\033[31m\\n'");
  const std::string text = contents();
  EXPECT_THAT(text, HasSubstr("worker 1: 2026-01-01 00:00:00.000 info  daemon:"));
  EXPECT_THAT(text, HasSubstr("worker 1: a\\x0ddaemon: event=ready\\x1b[31m\n"));
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
}

TEST_F(DaemonLogTest, ALongLineIsCut) {
  run("head -c 50000 /dev/zero | tr '\\0' x; echo; echo after");
  std::ifstream file(path_);
  std::string line;
  ASSERT_TRUE(std::getline(file, line));
  EXPECT_LE(line.size(), LoggedLauncher::kMostLine + 100);
  EXPECT_THAT(line, HasSubstr(std::string(LoggedLauncher::kMostLine, 'x')));
  EXPECT_EQ(lines_with("worker 1: after"), 1u);
}

TEST_F(DaemonLogTest, AProcessThatFloodsTheLogIsCounted) {
  const auto process = start("while :; do echo '<info>flood'; done", "worker 1");
  bool ended = false;
  process->on_end([&ended](const ProcessEnd&) { ended = true; });
  EXPECT_TRUE(eventually([this] { return lines_with("flood") >= 300; }));
  for (const auto until = Clock::now() + milliseconds(300); Clock::now() < until;) {
    const auto begin = Clock::now();
    loop_.restart();
    loop_.run_for(milliseconds(1));
    EXPECT_LT(Clock::now() - begin, seconds(5));  // it never stays in there
  }
  process->signal(SIGKILL);
  EXPECT_TRUE(eventually([&ended] { return ended; }));
  EXPECT_LE(lines_with("flood"), 1000u);
  EXPECT_THAT(contents(), HasSubstr("worker 1: event=lines-left-out lines="));
}

TEST_F(DaemonLogTest, ManyProcessesOfAProgramShareABudget) {
  for (int i = 0; i < 20; ++i) run("yes '<info>flood' | head -n 290", fmt::format("worker {}", i));
  const size_t lines = lines_with(": flood");
  EXPECT_GE(lines, 3000u);
  EXPECT_LT(lines, 20u * 290);
  EXPECT_GE(lines_with("event=lines-left-out"), 1u);
}

// The process does not wait for the daemon, and not for a child that keeps its output open.
TEST_F(DaemonLogTest, AnEndIsSeenWhileItsPipeIsHeld) {
  run("sleep 5 & echo 'last words'");
  EXPECT_EQ(lines_with("last words"), 1u);
}

TEST_F(DaemonLogTest, EventsOfStrangersAreCounted) {
  for (int i = 0; i < 10000; ++i) log::warn("event=bad-hello peer={} why=\"no hello\"", i);
  for (int i = 0; i < 500; ++i) log::info("event=session-begin session={}", i);
  log::info("no event");
  EXPECT_GE(lines_with("event=bad-hello"), 100u);
  EXPECT_LT(lines_with("event=bad-hello"), 200u);
  EXPECT_EQ(lines_with("event=session-begin"), 500u);
  EXPECT_EQ(lines_with("no event"), 1u);
  const size_t written = lines_with("event=bad-hello");
  log_.reset();
  EXPECT_EQ(lines_with(fmt::format("event=lines-left-out of=bad-hello lines={}", 10000 - written)),
            1u)
      << contents();
}

TEST_F(DaemonLogTest, AnEndThatIsWrongIsWritten) {
  const auto end = [](int session, const char* how, const char* why) {
    log::info(
        "event=session-end session={} job=1 worker=1 seconds=0.1 calls=0 how=\"{}\" why=\"{}\"",
        session, how, why);
  };
  for (int i = 0; i < 5000; ++i) end(i, "exited with 0", "how=\\\"exited with 3\\\"");
  EXPECT_LT(lines_with("event=session-end"), 2000u);
  end(99991, "exited with 3", "how=\\\"exited with 0\\\"");
  end(99992, "was killed by signal 9 (Killed)", "none");
  EXPECT_EQ(lines_with("session=9999"), 2u);
}

}  // namespace
}  // namespace fargpu::server
