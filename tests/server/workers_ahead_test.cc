// Workers that are started ahead, with a shell script for a worker: how many there are, who gets
// them, and what becomes of those that die, fail or are out of date.
#include "server/daemon/workers_ahead.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>

#include "server/launch/child_launcher.h"
#include "server/placement/host_placement.h"
#include "tests/server/run_until.h"

namespace fargpu::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::UnorderedElementsAre;
using transport::Clock;

constexpr auto kLimit = seconds(60);
// Notes its start, says that its driver is open, and takes what it is told until the socket ends.
// Where there is a file of that name it dies at once (of this GPU), hangs, or says something more.
constexpr const char* kWorker =
    "#!/bin/sh\n"
    "exec 2>/dev/null\ncd \"${0%/*}\"\necho \"$CUDA_VISIBLE_DEVICES\" >>starts\n"
    "[ -e \"dies-$CUDA_VISIBLE_DEVICES\" ] && exit 1\n"
    "cat started >&4\n"
    "[ -e hangs ] && trap '' TERM && exec sleep 600\n"
    "cat prepared >&4\n[ -e more ] && cat more >&4\nexec cat <&4 >/dev/null\n";

std::vector<pid_t> children() {
  std::ifstream file("/proc/self/task/" + std::to_string(::getpid()) + "/children");
  return {std::istream_iterator<pid_t>(file), {}};
}

std::string name_of(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/comm");
  std::string name;
  file >> name;
  return name;
}

class WorkersAheadTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/fargpu-ahead-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    write_program();
    write("started", encode_started());
    write("prepared", encode_prepared(Status()));
  }
  void TearDown() override {
    ahead_.reset();
    for (const auto& worker : given_) worker.process->signal(SIGKILL);
    EXPECT_TRUE(eventually([this] { return ended_ == given_.size(); }));
    std::filesystem::remove_all(folder_);
  }

  void write(const std::string& name, const MessageBytes& bytes) {
    std::ofstream(folder_ + "/" + name)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
  }
  // As an update does it: another file takes the name.
  void write_program() {
    std::ofstream(folder_ + "/new") << kWorker;
    ASSERT_EQ(::chmod((folder_ + "/new").c_str(), 0755), 0);
    std::filesystem::rename(folder_ + "/new", program());
  }
  std::string program() const { return folder_ + "/worker"; }
  void start(uint32_t count, size_t gpus = 1, milliseconds limit = kLimit) {
    std::vector<Unit> units;
    for (size_t i = 0; i < gpus; ++i) units.push_back({gpu(i), "GPU", 1000, {}});
    placement_.emplace(units, PlacementLimits{});
    ahead_.emplace(loop_, launcher_,
                   WorkersAhead::Rules{count, program(), {folder_ + "/driver", {}}, {}, limit},
                   likely_grants(*placement_));
    ahead_->start();
  }
  static std::string gpu(size_t index) { return "GPU-0000000" + std::to_string(index); }
  Grant::Environment grant(const PlacementRequest& request) const {
    return placement_->preview(request)->environment;
  }
  // Runs the loop until it is so.
  bool eventually(const std::function<bool()>& condition) {
    return run_until(loop_, kLimit, condition);
  }
  void run_for(milliseconds time) {
    const auto until = Clock::now() + time;
    eventually([until] { return Clock::now() >= until; });
  }
  std::vector<std::string> starts() const {
    std::ifstream file(folder_ + "/starts");
    return {std::istream_iterator<std::string>(file), {}};
  }
  size_t starts_of(size_t index) const {
    const auto all = starts();
    return static_cast<size_t>(std::count(all.begin(), all.end(), gpu(index)));
  }
  bool has(size_t count) {
    return eventually([&] { return ahead_->size() == count && starts().size() >= count; });
  }
  // The process that got a session; -1: none.
  pid_t give(const Grant::Environment& granted) {
    const auto worker = ahead_->give(granted, WorkerOptions{}, {});
    if (!worker) return -1;
    given_.push_back(*worker);
    worker->process->on_end([this](const ProcessEnd&) { ++ended_; });
    ahead_->session_starts(session_of(worker->process->id()));
    return worker->process->id();
  }
  // A session for each worker.
  static uint64_t session_of(pid_t worker) { return static_cast<uint64_t>(worker) + 1'000'000; }
  // The same, once one has said that it knows how to be given one.
  pid_t take(const Grant::Environment& granted) {
    pid_t worker = -1;
    EXPECT_TRUE(eventually([&] { return (worker = give(granted)) > 0; }));
    return worker;
  }

  std::string folder_;
  boost::asio::io_context loop_;
  ChildLauncher launcher_;
  std::optional<HostPlacement> placement_;
  std::optional<WorkersAhead> ahead_;
  std::vector<WorkersAhead::Worker> given_;
  size_t ended_ = 0;  // of those
};

TEST_F(WorkersAheadTest, ThereAreSoManyForEachGpu) {
  start(2, 2);
  ASSERT_TRUE(has(4));
  run_for(milliseconds(300));
  EXPECT_EQ(ahead_->size(), 4u);
  EXPECT_THAT(starts(), UnorderedElementsAre(gpu(0), gpu(0), gpu(1), gpu(1)));
}

TEST_F(WorkersAheadTest, ThereAreNoneWhereNoneAreWanted) {
  start(0);
  run_for(milliseconds(200));
  EXPECT_EQ(ahead_->size(), 0u);
  EXPECT_EQ(give(grant({1, 0, {}})), -1);
  EXPECT_TRUE(starts().empty());
}

TEST_F(WorkersAheadTest, EachServesOneSession) {
  start(1);
  ASSERT_TRUE(has(1));
  const pid_t first = take(grant({1, 0, {}}));
  ASSERT_GT(first, 0);
  EXPECT_EQ(give(grant({1, 0, {}})), -1);
  ahead_->session_settled(session_of(first));
  ASSERT_TRUE(has(1));
  const pid_t second = take(grant({1, 0, {}}));
  EXPECT_GT(second, 0);
  EXPECT_NE(second, first);
}

TEST_F(WorkersAheadTest, ASessionThatStartsIsNotDisturbed) {
  start(1);
  ASSERT_TRUE(has(1));
  const pid_t first = take(grant({1, 0, {}}));
  run_for(milliseconds(300));
  EXPECT_EQ(ahead_->size(), 0u);
  ahead_->session_settled(session_of(first));
  EXPECT_EQ(ahead_->size(), 1u);
}

TEST_F(WorkersAheadTest, ASessionThatNeverSettlesHoldsTheNextUpForAWhile) {
  start(1);
  ASSERT_TRUE(has(1));
  ASSERT_GT(take(grant({1, 0, {}})), 0);
  EXPECT_TRUE(has(1));
}

TEST_F(WorkersAheadTest, TellsWhenADriverIsOpen) {
  bool told = false;
  const auto tell = [&told] { told = true; };
  write("prepared-later", encode_prepared(Status()));
  std::filesystem::remove(folder_ + "/prepared");
  ASSERT_EQ(::mkfifo((folder_ + "/prepared").c_str(), 0600), 0);
  const auto before = Clock::now();
  start(1);
  ASSERT_TRUE(has(1));
  EXPECT_FALSE(ahead_->is_opening_since(before));
  EXPECT_TRUE(ahead_->is_opening_since(Clock::now()));
  ahead_->when_open(tell);
  run_for(milliseconds(200));
  EXPECT_FALSE(told);
  std::ifstream later(folder_ + "/prepared-later");
  std::ofstream(folder_ + "/prepared") << later.rdbuf();  // its `cat` goes on
  EXPECT_TRUE(eventually([&told] { return told; }));
  EXPECT_FALSE(ahead_->is_opening_since(Clock::now()));
  told = false;
  ahead_->when_open(tell);
  EXPECT_TRUE(eventually([&told] { return told; }));
}

TEST_F(WorkersAheadTest, TellsWhenNoDriverWillBeOpen) {
  std::ofstream(folder_ + "/hangs") << "";
  bool told = false;
  start(1, 1, milliseconds(300));
  ASSERT_TRUE(has(1));
  ahead_->when_open([&told] { told = true; });
  EXPECT_TRUE(eventually([&told] { return told; }));
}

TEST_F(WorkersAheadTest, TellsOfTheOneThatOpensItsDriverNotOfTheNext) {
  std::ofstream(folder_ + "/hangs") << "";
  bool told = false;
  start(1, 4, milliseconds(300));
  ASSERT_TRUE(has(1));
  ahead_->when_open([&told] { told = true; });
  EXPECT_TRUE(eventually([&told] { return told; }));
  EXPECT_LE(starts().size(), 2u);
}

TEST_F(WorkersAheadTest, AnotherGrantGetsNone) {
  start(1, 2);
  ASSERT_TRUE(has(2));
  EXPECT_EQ(give(grant({2, 0, {}})), -1);
  EXPECT_EQ(give(grant({0, 0, {"1", "0"}})), -1);
  EXPECT_EQ(ahead_->size(), 2u);
  EXPECT_GT(take(grant({0, 0, {"1"}})), 0);
  EXPECT_EQ(give(grant({0, 0, {"1"}})), -1);
  EXPECT_GT(take(grant({0, 0, {"0"}})), 0);
}

TEST_F(WorkersAheadTest, OneThatIsStillOpeningItsDriverIsTaken) {
  write("prepared", {});  // it does not say that it is ready
  start(1);
  ASSERT_TRUE(has(1));
  EXPECT_TRUE(eventually([this] { return give(grant({1, 0, {}})) > 0; }));
}

TEST_F(WorkersAheadTest, AnOlderProgramGetsNoSession) {
  write("started", {});  // nor does it say which it is
  write("prepared", {});
  start(1);
  ASSERT_TRUE(has(1));
  run_for(milliseconds(200));
  EXPECT_EQ(give(grant({1, 0, {}})), -1);
}

TEST_F(WorkersAheadTest, OneThatHasDiedIsNotTaken) {
  const std::vector<pid_t> of_other_tests = children();
  const auto ours = [&of_other_tests] {
    std::vector<pid_t> pids = children();
    std::erase_if(pids, [&of_other_tests](pid_t pid) {
      return std::find(of_other_tests.begin(), of_other_tests.end(), pid) != of_other_tests.end();
    });
    return pids;
  };
  start(2);
  ASSERT_TRUE(has(2));
  run_for(milliseconds(100));
  const pid_t first = take(grant({1, 0, {}}));
  ahead_->session_settled(session_of(first));
  ASSERT_TRUE(has(2));
  // Their script has come to its end: none has a child which keeps the socket open.
  ASSERT_TRUE(eventually([&ours] {
    const auto pids = ours();
    return std::all_of(pids.begin(), pids.end(), [](pid_t pid) { return name_of(pid) == "cat"; });
  }));
  // Nobody has noticed it yet: the loop does not run.
  for (const pid_t pid : ours()) {
    if (pid == first) continue;
    ::kill(pid, SIGKILL);
    siginfo_t info{};
    ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT);
  }
  EXPECT_EQ(give(grant({1, 0, {}})), -1);
  EXPECT_TRUE(has(2));  // others
  EXPECT_GT(take(grant({1, 0, {}})), 0);
}

TEST_F(WorkersAheadTest, ADriverThatFailsIsTriedMoreAndMoreSeldom) {
  write("prepared", encode_prepared({StatusCode::kDriver, "cuInit: no"}));
  start(1);
  run_for(milliseconds(1200));
  // At 0, 100, 300, 700 ms and some.
  EXPECT_GE(starts().size(), 2u);
  EXPECT_LE(starts().size(), 5u);
  EXPECT_EQ(give(grant({1, 0, {}})), -1);
  write("prepared", encode_prepared(Status()));
  EXPECT_TRUE(has(1));
}

TEST_F(WorkersAheadTest, OneThatDiesAtOnceIsTriedMoreAndMoreSeldom) {
  std::ofstream(program()) << "#!/bin/sh\necho x >>\"${0%/*}/starts\"\nexit 1\n";
  start(1);
  run_for(milliseconds(1200));
  EXPECT_GE(starts().size(), 2u);
  EXPECT_LE(starts().size(), 5u);
}

TEST_F(WorkersAheadTest, AGpuWhoseWorkersDieTakesNoneFromTheOthers) {
  write("dies-" + gpu(0), {});
  start(2, 3);
  EXPECT_TRUE(eventually([this] { return starts_of(1) == 2 && starts_of(2) == 2; }));
  run_for(milliseconds(1200));
  EXPECT_EQ(ahead_->size(), 4u);
  // At 0, 100, 300, 700 ms and some.
  EXPECT_GE(starts_of(0), 2u);
  EXPECT_LE(starts_of(0), 5u);
  // Nor does it have the others wait: its own pause is about a second by now.
  const pid_t taken = take(grant({0, 0, {"1"}}));
  const auto before = Clock::now();
  ahead_->session_settled(session_of(taken));
  EXPECT_TRUE(eventually([this] { return starts_of(1) == 3; }));
  EXPECT_LT(Clock::now() - before, milliseconds(700));
}

TEST_F(WorkersAheadTest, OneThatHangsIsKilledAndDoesNotStopTheOthers) {
  write("hangs", {});
  start(1, 2, milliseconds(200));
  EXPECT_TRUE(eventually([this] { return starts_of(0) >= 1 && starts_of(1) >= 1; }));
  // Each is one more death.
  run_for(milliseconds(2000));
  EXPECT_GE(starts().size(), 3u);
  EXPECT_LE(starts().size(), 8u);
  EXPECT_LE(ahead_->size(), 1u);
  std::filesystem::remove(folder_ + "/hangs");
  EXPECT_TRUE(has(2));
  ahead_->stop();
  EXPECT_TRUE(eventually([] { return ::waitpid(-1, nullptr, WNOHANG) < 0; }));  // no child is left
}

TEST_F(WorkersAheadTest, OneThatHangsEndsWhenItIsNotWantedAnyMore) {
  write("hangs", {});
  start(1);
  ASSERT_TRUE(has(1));
  run_for(milliseconds(100));
  ahead_->stop();
  EXPECT_TRUE(eventually([] { return ::waitpid(-1, nullptr, WNOHANG) < 0; }));  // no child is left
}

TEST_F(WorkersAheadTest, OneThatBreaksTheProtocolIsNoneAtOnce) {
  write("more", MessageBytes(64, std::byte{0xff}));
  start(1);
  ASSERT_EQ(ahead_->size(), 1u);
  EXPECT_TRUE(eventually([this] { return ahead_->size() == 0; }));
  std::filesystem::remove(folder_ + "/more");
  EXPECT_TRUE(has(1));
  EXPECT_GT(take(grant({1, 0, {}})), 0);
}

TEST_F(WorkersAheadTest, OfAProgramThatWasReplacedNoneIsTaken) {
  start(2);
  ASSERT_TRUE(has(2));
  write_program();
  EXPECT_EQ(give(grant({1, 0, {}})), -1);
  EXPECT_EQ(ahead_->size(), 0u);
  ahead_->look_at_files();
  ASSERT_TRUE(has(2));
  EXPECT_GT(take(grant({1, 0, {}})), 0);
}

TEST_F(WorkersAheadTest, ADriverThatWasReplacedMakesNewOnes) {
  start(1);
  ASSERT_TRUE(has(1));
  run_for(milliseconds(100));
  write("driver", encode_started());
  ahead_->look_at_files();
  EXPECT_TRUE(eventually([this] { return starts().size() == 2; }));
  EXPECT_EQ(ahead_->size(), 1u);
}

TEST_F(WorkersAheadTest, TheyEndWhenTheyAreNotWantedAnyMore) {
  start(2);
  ASSERT_TRUE(has(2));
  ahead_->stop();
  EXPECT_EQ(ahead_->size(), 0u);
  EXPECT_TRUE(eventually([] { return ::waitpid(-1, nullptr, WNOHANG) < 0; }));  // no child is left
  run_for(milliseconds(200));
  EXPECT_EQ(starts().size(), 2u);
}

}  // namespace
}  // namespace fargpu::server
