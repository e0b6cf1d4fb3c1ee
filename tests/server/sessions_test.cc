// A session with its real worker, on the simulated driver, under the commands of its daemon:
// stopped in the middle of a program's work, drained, asked, resumed; and the program ends right.
#include "server/daemon/sessions.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>

#include "common/transport/frame_io.h"
#include "common/wire/control.h"
#include "server/daemon/listeners.h"
#include "server/job/job_keeper.h"
#include "server/launch/child_launcher.h"
#include "server/placement/host_placement.h"
#include "tests/server/distant_launcher.h"
#include "tests/server/run_until.h"

namespace fargpu::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using transport::Clock;

constexpr auto kLimit = seconds(120);

// Kills have no effect, as on a process that sits in the kernel; they are counted.
class UnkillableLauncher final : public Launcher {
 public:
  explicit UnkillableLauncher(std::unique_ptr<Launcher> launcher)
      : launcher_(std::move(launcher)) {}
  Result<std::unique_ptr<LaunchedProcess>> start(const ProcessSetup& setup) override {
    FARGPU_ASSIGN_OR_RETURN(auto process, launcher_->start(setup));
    return std::unique_ptr<LaunchedProcess>(
        std::make_unique<Unkillable>(*this, std::move(process)));
  }
  int kills = 0;
  bool effect = false;  // from now on they have one

 private:
  struct Unkillable final : LaunchedProcess {
    Unkillable(UnkillableLauncher& from, std::unique_ptr<LaunchedProcess> which)
        : launcher(from), process(std::move(which)) {}
    int id() const override { return process->id(); }
    void signal(int number) override {
      if (number == SIGKILL) ++launcher.kills;
      if (launcher.effect) process->signal(number);
    }
    int end_descriptor() const override { return process->end_descriptor(); }
    std::optional<ProcessEnd> end() override { return process->end(); }
    UnkillableLauncher& launcher;
    std::unique_ptr<LaunchedProcess> process;
  };
  const std::unique_ptr<Launcher> launcher_;
};

// A daemon without its face: admits whoever connects. Its workers are children, or those of another
// process.
class SessionsTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(FARGPU_PROGRAM)) GTEST_SKIP() << FARGPU_PROGRAM << " is not built";
    if (GetParam()) {
      launcher_ = std::make_unique<DistantLauncher>();
    } else {
      launcher_ = std::make_unique<ChildLauncher>();
    }
    std::string pattern = ::testing::TempDir() + "/fargpu-sessions-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_path_ = pattern;
    config_.driver = "sim";
    config_.sim_gpus = 2;
    auto inventory = probe(*launcher_, worker_, config_.driver, driver_environment(config_));
    ASSERT_TRUE(inventory.ok()) << inventory.status().message();
    inventory_ = std::move(*inventory);
    auto folder = RuntimeFolder::create(folder_path_);
    ASSERT_TRUE(folder.ok());
    folder_.emplace(std::move(*folder));
    placement_.emplace(inventory_.units, config_.placement);
    keeper_.emplace(loop_, *placement_, ids_,
                    Jobs::Rules{config_.placement.max_sessions, config_.job_grace});
    begin(nullptr);
    listeners_.emplace(
        loop_, [this](Fd socket, const std::string& peer) { admit(std::move(socket)); },
        [] { return false; });
    ASSERT_TRUE(listeners_->add(folder_path_ + "/socket").ok());
  }
  void begin(WorkersAhead* ahead) {
    sessions_.emplace(
        Sessions::Host{config_, worker_, *folder_, inventory_, loop_, *launcher_, images_, ahead,
                       [this](size_t unit, int hanging) { troubles_.emplace_back(unit, hanging); }},
        ids_, [this](const SessionRecord& record) { keeper_->leave(record.seat); });
  }
  void TearDown() override {
    if (program_ != nullptr) {
      program_->signal(SIGKILL);
      await_end(*program_, transport::kNoDeadline);
    }
    if (sessions_) {
      sessions_->kill_all("the test is over");
      EXPECT_TRUE(eventually([this] { return sessions_->all().empty(); }));
    }
    if (!folder_path_.empty()) std::filesystem::remove_all(folder_path_);
  }

  void admit(Fd socket) {
    ::fcntl(socket.get(), F_SETFL, ::fcntl(socket.get(), F_GETFL) & ~O_NONBLOCK);
    const auto frame = transport::read_one_frame(socket.get(), {}, Clock::now() + kLimit);
    ASSERT_TRUE(frame.ok()) << frame.status().message();
    if (frame->header.opcode == wire::kSessionEnd) return;  // nobody answers
    const auto hello = parse_hello(frame->body());
    ASSERT_TRUE(hello.ok()) << hello.status().message();
    const auto seat = keeper_->enter(*hello, "unix", TenantId{});
    ASSERT_TRUE(seat.ok()) << seat.status().message();
    const Status started = sessions_->start({*keeper_->find(seat->job), *seat, *hello, socket.get(),
                                             "unix", false, frame->header.sequence});
    ASSERT_TRUE(started.ok()) << started.message();
  }

  // Runs the loop until it is so.
  bool eventually(const std::function<bool()>& condition) {
    return run_until(loop_, kLimit, condition);
  }
  void start_program(const std::vector<std::string>& options = {}) {
    int ends[2];
    ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    const Fd reading(ends[0]);
    goes_on_.reset(ends[1]);
    constexpr const char* kDescriptor = "5";
    std::vector<std::string> words = {"run", "--no-check", "--server", folder_path_ + "/socket"};
    words.insert(words.end(), options.begin(), options.end());
    words.insert(words.end(), {"--", FARGPU_PROGRAM, kDescriptor});
    auto program = programs_.start({FARGPU_CLI, words, {}, {{reading.get(), 5}}});
    ASSERT_TRUE(program.ok());
    program_ = std::move(*program);
    ASSERT_TRUE(eventually([this] { return !sessions_->all().empty(); }));
    session_ = sessions_->all().begin()->second.id;
  }
  void end_program_rightly() {
    goes_on_.reset();
    std::optional<ProcessEnd> end;
    ASSERT_TRUE(eventually([&] { return (end = program_->end()).has_value(); }));
    program_.reset();
    EXPECT_EQ(end->describe(), "exited with 0");
  }
  // Runs the loop until the answer is there.
  template <typename Ask>
  WorkerReport answer(const Ask& ask) {
    std::optional<Result<WorkerReport>> answer;
    ask([&answer](const Result<WorkerReport>& report) { answer = report; });
    EXPECT_TRUE(eventually([&] { return answer.has_value(); }));
    EXPECT_TRUE(answer->ok()) << answer->status().message();
    return answer->ok() ? **answer : WorkerReport{};
  }
  WorkerReport report() {
    return answer([this](auto done) { sessions_->report(session_, done); });
  }
  WorkerReport after(milliseconds time) {
    const auto until = Clock::now() + time;
    eventually([&] { return Clock::now() >= until; });
    return report();
  }

  const std::string worker_ = FARGPU_WORKER;
  std::string folder_path_;
  std::unique_ptr<Launcher> launcher_;
  boost::asio::io_context loop_;
  DaemonConfig config_;
  Inventory inventory_;
  IdSequence ids_;
  std::optional<RuntimeFolder> folder_;
  std::optional<HostPlacement> placement_;
  ImageBroker images_{loop_, {}};
  std::optional<JobKeeper> keeper_;
  std::optional<Sessions> sessions_;
  std::optional<Listeners> listeners_;
  Fd goes_on_;
  ChildLauncher programs_;
  std::unique_ptr<LaunchedProcess> program_;
  uint64_t session_ = 0;
  std::vector<std::pair<size_t, int>> troubles_;  // as Host::on_trouble has told them
};

TEST_P(SessionsTest, IsStoppedInTheMiddleOfItsWorkAndGoesOnLater) {
  ASSERT_NO_FATAL_FAILURE(start_program());
  ASSERT_TRUE(eventually([this] { return report().calls > 200; }));
  for (int i = 0; i < 5; ++i) {
    const WorkerReport stopped =
        answer([this](auto done) { sessions_->stop(session_, milliseconds(kLimit), done); });
    EXPECT_TRUE(stopped.stopped && stopped.idle);
    EXPECT_EQ(stopped.contexts, 1u);
    EXPECT_EQ(stopped.streams, 1u);
    EXPECT_EQ(stopped.memory_bytes, std::vector<uint64_t>{2 * 16 * 1024 * 4});
    const WorkerReport standing = after(milliseconds(50));
    EXPECT_TRUE(standing.stopped && standing.idle);
    EXPECT_LE(standing.calls, stopped.calls + 1) << "the program's wait may pass, and nothing else";
    EXPECT_EQ(after(milliseconds(50)).calls, standing.calls);
    EXPECT_FALSE(answer([this](auto done) { sessions_->resume(session_, done); }).stopped);
    ASSERT_TRUE(eventually([&] { return report().calls > standing.calls + 100; }));
  }
  end_program_rightly();
}

TEST_P(SessionsTest, FinishesWhatTheGpuDoesAndEnds) {
  ASSERT_NO_FATAL_FAILURE(start_program());
  ASSERT_TRUE(eventually([this] { return report().calls > 200; }));
  sessions_->finish_all(milliseconds(kLimit));
  EXPECT_TRUE(eventually([this] { return sessions_->all().empty(); }));
}

TEST_P(SessionsTest, AStoppedSessionEndsWithItsClient) {
  ASSERT_NO_FATAL_FAILURE(start_program());
  ASSERT_TRUE(eventually([this] { return report().calls > 200; }));
  EXPECT_TRUE(
      answer([this](auto done) { sessions_->stop(session_, milliseconds(kLimit), done); }).stopped);
  program_->signal(SIGKILL);
  EXPECT_TRUE(eventually([this] { return sessions_->all().empty(); }));
}

TEST_P(SessionsTest, AStrangersIdIsNotFound) {
  std::optional<Result<WorkerReport>> answer;
  sessions_->report(4711, [&answer](const Result<WorkerReport>& report) { answer = report; });
  ASSERT_TRUE(eventually([&] { return answer.has_value(); }));
  EXPECT_EQ(answer->status().code(), StatusCode::kNotFound);
}

// Its driver keeps the memory of sessions that end meanwhile.
TEST_P(SessionsTest, AWorkerThatOpensItsDriverIsANeighbourWhereASessionHasEnded) {
  const std::string hangs = folder_path_ + "/hangs";
  std::ofstream(hangs) << "#!/bin/sh\nexec sleep 600\n";
  ASSERT_EQ(::chmod(hangs.c_str(), 0755), 0);
  WorkersAhead ahead(loop_, *launcher_, {1, hangs, {"sim", {}}, {}}, likely_grants(*placement_));
  begin(&ahead);
  ahead.start();
  std::vector<std::unique_ptr<LaunchedProcess>> programs;
  std::vector<uint64_t> sessions;
  std::vector<Fd> going_on;
  for (const std::string gpu : {"0", "0", "1"}) {
    ASSERT_NO_FATAL_FAILURE(start_program({"--device", gpu}));
    ASSERT_TRUE(eventually([&] { return sessions_->all().size() == programs.size() + 1; }));
    sessions.push_back(sessions_->all().rbegin()->first);
    programs.push_back(std::move(program_));
    going_on.push_back(std::move(goes_on_));
  }
  const auto neighbours = [&](size_t session) {
    return sessions_->all().at(sessions[session]).orders->neighbours.load();
  };
  EXPECT_EQ(neighbours(1), 1u);
  EXPECT_EQ(neighbours(2), 0u);
  sessions_->all().at(sessions[0]).worker->signal(SIGKILL);
  ASSERT_TRUE(eventually([&] { return sessions_->all().size() == 2; }));
  EXPECT_EQ(neighbours(1), 1u);
  EXPECT_EQ(neighbours(2), 0u);
  ahead.stop();
  EXPECT_TRUE(eventually([&] { return neighbours(1) == 0; }));
  for (const auto& program : programs) program->signal(SIGKILL);
  for (const auto& program : programs) await_end(*program, transport::kNoDeadline);
  EXPECT_TRUE(eventually([this] { return sessions_->all().empty(); }));
  sessions_.reset();
}

// A worker that is no child of its daemon, in a driver's cuInit that does not return.
TEST(Worker, EndsWithItsDaemonsSocketWhateverItsDriverDoes) {
  std::string folder = ::testing::TempDir() + "/fargpu-worker-XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  std::ofstream(folder + "/hold") << "";
  DistantLauncher launcher;
  auto control = make_control_sockets();
  ASSERT_TRUE(control.ok());
  ASSERT_TRUE(
      send_message(control->first.get(), encode_prepare({FARGPU_SLOW_DRIVER, {}}), Clock::now())
          .ok());
  ProcessSetup setup{FARGPU_WORKER, {kAheadArgument}, {{"FARGPU_TEST_DRIVER_FOLDER", folder}}, {}};
  setup.descriptors = {{control->second.get(), kControlFd}};
  const auto worker = launcher.start(setup);
  ASSERT_TRUE(worker.ok());
  control->second.reset();
  const std::string called = folder + "/" + std::to_string((*worker)->id());
  const auto limit = Clock::now() + kLimit;
  while (!std::filesystem::exists(called) && !(*worker)->end() && Clock::now() < limit)
    ::usleep(1000);
  EXPECT_FALSE((*worker)->end()) << "it ended although its daemon lives";
  control->first.reset();
  EXPECT_TRUE(await_end(**worker, Clock::now() + seconds(2)));
  (*worker)->signal(SIGKILL);
  std::filesystem::remove_all(folder);
}

// It must not keep a place of the server.
TEST_P(SessionsTest, AWorkerWhoseDriverHangsGoesAfterItsClient) {
  if (GetParam()) GTEST_SKIP() << "the other process has its environment from before";
  auto unkillable = std::make_unique<UnkillableLauncher>(std::move(launcher_));
  UnkillableLauncher& launcher = *unkillable;
  launcher_ = std::move(unkillable);
  begin(nullptr);
  ::setenv("FARGPU_SIM_INIT", "600000", 1);
  start_program();
  ::unsetenv("FARGPU_SIM_INIT");
  const auto until = Clock::now() + seconds(7);
  eventually([until] { return Clock::now() >= until; });
  EXPECT_FALSE(sessions_->all().empty()) << "its client still waits";
  program_->signal(SIGKILL);
  EXPECT_TRUE(eventually([&launcher] { return launcher.kills > 0; }));
  EXPECT_TRUE(troubles_.empty()) << "its client may have been impatient";
  EXPECT_TRUE(eventually([this] { return !troubles_.empty(); }));
  const auto& session = sessions_->all().begin()->second;
  EXPECT_THAT(troubles_, ::testing::ElementsAre(std::pair(size_t{0}, session.worker->id())));
  EXPECT_TRUE(session.hangs);
  EXPECT_EQ(launcher.kills, 1) << "it is killed once";
  launcher.effect = true;
  sessions_->kill_all("the test is over");
  EXPECT_TRUE(eventually([this] { return sessions_->all().empty(); }));
}

// It keeps no place of the server's, also while its client waits for it.
TEST_P(SessionsTest, AWorkerThatIsStoppedGoes) {
  config_.silent_worker = milliseconds(1600);
  begin(nullptr);
  start_program();
  ASSERT_TRUE(eventually([this] {
    const auto& session = sessions_->all().begin()->second;
    return session.statistics->transport_bytes.load() != 0;
  }));
  const auto until = Clock::now() + seconds(4);
  eventually([until] { return Clock::now() >= until; });
  ASSERT_EQ(sessions_->all().size(), 1u) << "it answers";
  sessions_->all().begin()->second.worker->signal(SIGSTOP);
  EXPECT_TRUE(eventually([this] { return sessions_->all().empty(); }));
}

INSTANTIATE_TEST_SUITE_P(Launchers, SessionsTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Distant" : "Children"; });

}  // namespace
}  // namespace fargpu::server
