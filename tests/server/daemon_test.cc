// The daemon as a process, with a shell script for a worker: what strangers and dying workers can
// do to it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "common/bootstrap/agreement.h"
#include "common/transport/frame_io.h"
#include "common/transport/tcp/tcp.h"
#include "common/wire/control.h"
#include "common/wire/data.h"
#include "common/wire/slot_message.h"
#include "generated/schema/control.capnp.h"
#include "server/handover/worker_messages.h"
#include "server/launch/child_launcher.h"
#include "tests/server/run_process.h"

namespace fargpu::server {
namespace {

using ::testing::HasSubstr;
using transport::Clock;

constexpr auto kLimit = std::chrono::seconds(30);
// A worker that holds the connection until the client closes it; a probe has no connection.
constexpr const char* kWorker =
    "#!/bin/sh\n"
    "cat \"$0.started\" >&4\n"
    "if ! { true >&3; } 2>/dev/null; then cat \"$0.inventory\" >&4; exit 0; fi\n"
    "echo \"$CUDA_VISIBLE_DEVICES\" >&3\nexec cat <&3 >/dev/null\n";

bool eventually(const std::function<bool()>& condition) {
  for (const auto end = Clock::now() + kLimit; Clock::now() < end;
       std::this_thread::sleep_for(std::chrono::milliseconds(5))) {
    if (condition()) return true;
  }
  return condition();
}

class DaemonTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/fargpud-test-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    std::ofstream(folder_ + "/worker") << kWorker;
    write("/worker.started", encode_started());
    write("/worker.inventory",
          encode_inventory(Inventory{"/fake/libcuda.so.1",
                                     13000,
                                     {{"GPU-11111111", "Fake GPU", 1000000, {}},
                                      {"GPU-22222222", "Fake GPU", 1000000, {}}}}));
    ::chmod((folder_ + "/worker").c_str(), 0755);
  }
  void TearDown() override {
    if (daemon_ != nullptr) {
      daemon_->signal(SIGKILL);
      await_end(*daemon_, transport::kNoDeadline);
    }
    std::filesystem::remove_all(folder_);
  }

  void write(const char* file, const MessageBytes& bytes) {
    std::ofstream(folder_ + file)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
  }

  void start(std::vector<std::string> more = {}) {
    ProcessSetup setup{FARGPU_DAEMON,
                       {"--worker", folder_ + "/worker", "--listen", "127.0.0.1:0", "--port-file",
                        folder_ + "/port", "--runtime-dir", folder_,
                        // the script serves only sessions that it is started with
                        "--workers-ahead", "0"},
                       {{"FARGPU_LOG", "error"}},
                       {}};
    setup.arguments.insert(setup.arguments.end(), more.begin(), more.end());
    auto started = launcher_.start(setup);
    ASSERT_TRUE(started.ok());
    daemon_ = std::move(*started);
    bool ended = false;
    ASSERT_TRUE(eventually([&] {
      ended = daemon_->end().has_value();
      return ended || static_cast<bool>(std::ifstream(folder_ + "/port") >> port_);
    }));
    ASSERT_FALSE(ended) << "the daemon ended before it listened";
  }
  // The exit code; a signal that has killed it is negative.
  int wait_for_exit() {
    const auto end = await_end(*daemon_, Clock::now() + kLimit);
    EXPECT_TRUE(end.has_value());
    if (!end) return -1;
    daemon_.reset();
    return end->signal == 0 ? end->code : -end->signal;
  }

  Fd connect() {
    return std::move(*transport::tcp_connect({"127.0.0.1", port_}, Clock::now() + kLimit));
  }

  static capnp::Data::Reader known() {
    static const auto bytes = bootstrap::known_opcodes().bytes();
    return capnp::Data::Reader(reinterpret_cast<const kj::byte*>(bytes.data()), bytes.size());
  }

  static void send_hello(const Fd& socket,
                         const std::function<void(schema::Hello::Builder)>& change = {},
                         uint16_t opcode = wire::kHello) {
    std::vector<uint64_t> words(12000);
    wire::SlotMessageBuilder builder(std::as_writable_bytes(std::span(words)));
    auto hello = builder.initRoot<schema::Hello>();
    hello.setProtocolVersion(wire::kProtocolVersion);
    hello.setKnows(known());
    hello.setClientName("test");
    hello.setMaxBodyBytes(1u << 20);
    hello.setMaxBulkBytes(1u << 20);
    if (change) change(hello);
    wire::FrameHeader header;
    header.opcode = opcode;
    header.flags = wire::kWantReply;
    header.sequence = 1;
    const auto body = std::as_bytes(std::span(words)).first(builder.used_bytes());
    ASSERT_TRUE(
        transport::write_one_frame(socket.get(), header, body, {}, Clock::now() + kLimit).ok());
  }
  static Result<transport::OwnedFrame> answer(const Fd& socket) {
    return transport::read_one_frame(socket.get(), {}, Clock::now() + kLimit);
  }
  static void expect_refusal(const Fd& socket, schema::Refusal::Reason reason) {
    const auto frame = answer(socket);
    ASSERT_TRUE(frame.ok()) << frame.status().message();
    EXPECT_NE(frame->header.result, 0);
    wire::SegmentReader reader(frame->body());
    const auto refusal = reader.getRoot<schema::Refusal>();
    EXPECT_EQ(refusal.getReason(), reason) << refusal.getMessage().cStr();
    EXPECT_GT(refusal.getMessage().size(), 0u);
  }
  // Whether the other end has closed, or does within the limit.
  static bool closed(const Fd& socket) {
    return eventually([&] {
      char byte;
      const ssize_t got = ::recv(socket.get(), &byte, 1, MSG_DONTWAIT);
      return got == 0 || (got < 0 && errno != EAGAIN);
    });
  }
  // The first line that the script sends over its session's connection.
  static std::string first_line(const Fd& socket) {
    std::string line;
    eventually([&] {
      char byte;
      while (::recv(socket.get(), &byte, 1, MSG_DONTWAIT) == 1) {
        if (byte == '\n') return true;
        line += byte;
      }
      return false;
    });
    return line;
  }
  static void send_open_job(const Fd& socket,
                            const std::function<void(schema::OpenJob::Builder)>& change = {}) {
    std::vector<uint64_t> words(12000);
    wire::SlotMessageBuilder builder(std::as_writable_bytes(std::span(words)));
    auto job = builder.initRoot<schema::OpenJob>();
    job.setProtocolVersion(wire::kProtocolVersion);
    job.setKnows(known());
    job.setClientName("test");
    if (change) change(job);
    wire::FrameHeader header;
    header.opcode = wire::kOpenJob;
    header.flags = wire::kWantReply;
    header.sequence = 1;
    const auto body = std::as_bytes(std::span(words)).first(builder.used_bytes());
    ASSERT_TRUE(
        transport::write_one_frame(socket.get(), header, body, {}, Clock::now() + kLimit).ok());
  }
  struct OpenedJob {
    uint64_t id = 0;
    std::string key;
    std::vector<std::string> gpus;
  };
  static OpenedJob opened(const Fd& socket) {
    const auto frame = answer(socket);
    OpenedJob job;
    EXPECT_TRUE(frame.ok() && frame->header.result == 0);
    if (!frame.ok() || frame->header.result != 0) return job;
    wire::SegmentReader reader(frame->body());
    const auto root = reader.getRoot<schema::JobOpened>();
    job.id = root.getJobId();
    const auto key = root.getJobKey();
    job.key.assign(reinterpret_cast<const char*>(key.begin()), key.size());
    EXPECT_EQ(job.key.size(), 16u);
    for (const auto gpu : root.getGpus()) job.gpus.emplace_back(gpu.cStr());
    return job;
  }
  static void show(schema::Hello::Builder hello, uint64_t id, const std::string& key) {
    hello.setJobId(id);
    hello.setJobKey(wire::as_data(key.data(), key.size()));
  }
  struct Seen {
    size_t jobs = 0;
    size_t sessions = 0;
    std::vector<uint32_t> per_gpu;
    pid_t worker = 0;
    uint64_t session = 0;  // the first one
  };
  Seen status(const std::string& token = "") {
    const Fd socket = connect();
    send_hello(
        socket, [&](schema::Hello::Builder h) { h.setToken(token); }, wire::kStatus);
    const auto frame = answer(socket);
    Seen seen;
    EXPECT_TRUE(frame.ok() && frame->header.result == 0);
    if (!frame.ok() || frame->header.result != 0) return seen;
    wire::SegmentReader reader(frame->body());
    const auto root = reader.getRoot<schema::Status>();
    EXPECT_EQ(root.getDriverName(), "/fake/libcuda.so.1");
    seen.jobs = root.getJobs().size();
    seen.sessions = root.getSessions().size();
    for (const auto gpu : root.getGpus()) seen.per_gpu.push_back(gpu.getSessions());
    if (seen.sessions > 0) {
      seen.worker = root.getSessions()[0].getWorkerPid();
      seen.session = root.getSessions()[0].getId();
    }
    return seen;
  }
  using State = schema::SessionEnd::State;
  std::pair<State, std::string> end_of(uint64_t session, const std::string& token) {
    const Fd socket = connect();
    send_hello(
        socket,
        [&](schema::Hello::Builder hello) {
          hello.setToken(token);
          hello.setEndedSession(session);
        },
        wire::kSessionEnd);
    const auto frame = answer(socket);
    EXPECT_TRUE(frame.ok() && frame->header.result == 0);
    if (!frame.ok() || frame->header.result != 0) return {};
    EXPECT_TRUE(closed(socket));
    wire::SegmentReader reader(frame->body());
    const auto end = reader.getRoot<schema::SessionEnd>();
    return {end.getState(), end.getWhy()};
  }

  std::string folder_;
  ChildLauncher launcher_;
  std::unique_ptr<LaunchedProcess> daemon_;
  uint16_t port_ = 0;
};

TEST_F(DaemonTest, SurvivesWhatStrangersSend) {
  ASSERT_NO_FATAL_FAILURE(start({"--hello-deadline", "300ms"}));
  const auto raw = [&](const std::vector<uint8_t>& bytes) {
    Fd socket = connect();
    EXPECT_EQ(::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
    return socket;
  };
  expect_refusal(raw(std::vector<uint8_t>(32, 'x')), schema::Refusal::Reason::BAD_REQUEST);
  { const Fd half = raw({0x46, 0x47, 1, 0}); }   // half a header, then gone
  EXPECT_TRUE(closed(raw({0x46, 0x47, 1, 0})));  // half a header, then silence: the deadline
  EXPECT_TRUE(closed(connect()));                // nothing at all
  wire::FrameHeader huge;
  huge.opcode = wire::kHello;
  huge.body_bytes = 0x7ffffff8;
  std::vector<uint8_t> bytes(sizeof huge);
  std::memcpy(bytes.data(), &huge, sizeof huge);
  expect_refusal(raw(bytes), schema::Refusal::Reason::BAD_REQUEST);
  huge.body_bytes = 64;  // a body that never comes
  std::memcpy(bytes.data(), &huge, sizeof huge);
  EXPECT_TRUE(closed(raw(bytes)));
  const Fd other = connect();
  send_hello(other, {}, wire::kPing);  // a frame that is no beginning
  expect_refusal(other, schema::Refusal::Reason::BAD_REQUEST);
  EXPECT_EQ(status().sessions, 0u);
}

TEST_F(DaemonTest, RefusesWithTheReason) {
  const std::string token = folder_ + "/token";
  std::ofstream(token) << "a-secret\n";
  ::chmod(token.c_str(), 0600);
  ASSERT_NO_FATAL_FAILURE(start({"--token-file", token}));
  const auto refused = [&](const std::function<void(schema::Hello::Builder)>& change,
                           schema::Refusal::Reason reason) {
    const Fd socket = connect();
    send_hello(socket, [&](schema::Hello::Builder h) {
      h.setToken("a-secret");
      change(h);
    });
    expect_refusal(socket, reason);
    EXPECT_TRUE(closed(socket));
  };
  refused([](schema::Hello::Builder h) { h.setProtocolVersion(77); },
          schema::Refusal::Reason::VERSION);
  refused([](schema::Hello::Builder h) { h.initKnows(0); }, schema::Refusal::Reason::VERSION);
  refused([](schema::Hello::Builder h) { h.initKnows(wire::OpcodeSet::kMaxBytes + 1); },
          schema::Refusal::Reason::BAD_REQUEST);
  refused([](schema::Hello::Builder h) { h.setToken("guess"); }, schema::Refusal::Reason::TOKEN);
  refused([](schema::Hello::Builder h) { h.setGpus(3); }, schema::Refusal::Reason::BAD_REQUEST);
  refused([](schema::Hello::Builder h) { h.initDevices(1).set(0, "GPU-99999999"); },
          schema::Refusal::Reason::BAD_REQUEST);
  const Fd nosy = connect();
  send_hello(nosy, {}, wire::kStatus);
  expect_refusal(nosy, schema::Refusal::Reason::TOKEN);
  const Fd newer = connect();
  send_hello(newer, {}, 63);
  expect_refusal(newer, schema::Refusal::Reason::VERSION);
  EXPECT_EQ(status("a-secret").sessions, 0u);

  std::ofstream(token) << "another-secret\n";
  daemon_->signal(SIGHUP);
  EXPECT_TRUE(eventually([&] {
    const Fd socket = connect();
    send_hello(
        socket, [](schema::Hello::Builder h) { h.setToken("another-secret"); }, wire::kStatus);
    const auto frame = answer(socket);
    return frame.ok() && frame->header.result == 0;
  }));
}

TEST_F(DaemonTest, PlacesSessionsAndFreesTheirGpus) {
  ASSERT_NO_FATAL_FAILURE(start({"--max-sessions", "2"}));
  Fd first = connect(), second = connect(), third = connect();
  send_hello(first);
  EXPECT_EQ(first_line(first), "GPU-11111111");
  send_hello(second, [](schema::Hello::Builder h) { h.setMemoryBytes(900000); });
  EXPECT_EQ(first_line(second), "GPU-22222222");
  EXPECT_EQ(status().per_gpu, (std::vector<uint32_t>{1, 1}));
  send_hello(third);
  expect_refusal(third, schema::Refusal::Reason::NO_CAPACITY);
  second.reset();
  EXPECT_TRUE(eventually([&] { return status().sessions == 1; }));
  Fd fourth = connect();
  send_hello(fourth, [](schema::Hello::Builder h) { h.initDevices(1).set(0, "1"); });
  EXPECT_EQ(first_line(fourth), "GPU-22222222");
}

TEST_F(DaemonTest, SaysWhyASessionEndedToWhoeverHasTheToken) {
  const std::string token = folder_ + "/token";
  std::ofstream(token) << "a-secret\n";
  ::chmod(token.c_str(), 0600);
  ASSERT_NO_FATAL_FAILURE(start({"--token-file", token}));
  const Fd session = connect();
  send_hello(session, [](schema::Hello::Builder h) { h.setToken("a-secret"); });
  EXPECT_EQ(first_line(session), "GPU-11111111");
  const Seen seen = status("a-secret");
  ASSERT_EQ(seen.sessions, 1u);
  EXPECT_EQ(end_of(seen.session, "a-secret"), std::pair(State::LIVES, std::string()));
  EXPECT_EQ(end_of(seen.session + 1000, "a-secret"), std::pair(State::UNKNOWN, std::string()));
  ASSERT_EQ(::kill(seen.worker, SIGKILL), 0);
  std::pair<State, std::string> end;
  EXPECT_TRUE(eventually([&] {
    end = end_of(seen.session, "a-secret");
    return end.first == State::ENDED;
  }));
  EXPECT_THAT(end.second, HasSubstr("was killed by signal 9 (Killed)"));
  const Fd nosy = connect();
  send_hello(
      nosy, [&](schema::Hello::Builder h) { h.setEndedSession(seen.session); }, wire::kSessionEnd);
  expect_refusal(nosy, schema::Refusal::Reason::TOKEN);
}

TEST_F(DaemonTest, AJobIsHeldByItsConnectionAndItsSessionsHaveItsGpus) {
  ASSERT_NO_FATAL_FAILURE(start({"--max-sessions-per-gpu", "1"}));
  Fd holder = connect();
  send_open_job(holder, [](schema::OpenJob::Builder job) {
    auto devices = job.initDevices(2);
    devices.set(0, "1");
    devices.set(1, "0");
  });
  const OpenedJob job = opened(holder);
  ASSERT_NE(job.id, 0u);
  EXPECT_EQ(job.gpus, (std::vector<std::string>{"GPU-22222222", "GPU-11111111"}));
  const Fd stranger = connect();
  send_hello(stranger);
  expect_refusal(stranger, schema::Refusal::Reason::NO_CAPACITY);
  Fd first = connect(), second = connect();
  for (const Fd* session : {&first, &second}) {
    send_hello(*session, [&](schema::Hello::Builder h) { show(h, job.id, job.key); });
    EXPECT_EQ(first_line(*session), "GPU-22222222,GPU-11111111");
  }
  EXPECT_EQ(status().per_gpu, (std::vector<uint32_t>{2, 2}));
  EXPECT_EQ(status().jobs, 1u);
  holder.reset();
  first.reset();
  EXPECT_TRUE(eventually([&] { return status().sessions == 1; }));
  EXPECT_EQ(status().jobs, 1u);
  second.reset();
  EXPECT_TRUE(eventually([&] { return status().jobs == 0; }));
  const Fd late = connect();
  send_hello(late, [&](schema::Hello::Builder h) { show(h, job.id, job.key); });
  expect_refusal(late, schema::Refusal::Reason::JOB);
}

TEST_F(DaemonTest, AJobsKeyOpensNothingElse) {
  const std::string token = folder_ + "/token";
  std::ofstream(token) << "a-secret\n";
  ::chmod(token.c_str(), 0600);
  ASSERT_NO_FATAL_FAILURE(start({"--token-file", token}));
  const auto refused_job = [&](const std::function<void(schema::OpenJob::Builder)>& change,
                               schema::Refusal::Reason reason) {
    const Fd socket = connect();
    send_open_job(socket, change);
    expect_refusal(socket, reason);
    EXPECT_TRUE(closed(socket));
  };
  const std::string huge(60000, 'x');
  refused_job({}, schema::Refusal::Reason::TOKEN);
  refused_job([](auto job) { job.setProtocolVersion(77); }, schema::Refusal::Reason::VERSION);
  refused_job(
      [](auto job) {
        job.setToken("a-secret");
        job.initKnows(0);
      },
      schema::Refusal::Reason::VERSION);
  refused_job([&](auto job) { job.setToken(huge); }, schema::Refusal::Reason::BAD_REQUEST);
  refused_job([&](auto job) { job.setClientName(huge); }, schema::Refusal::Reason::BAD_REQUEST);
  refused_job([](auto job) { job.initDevices(5000); }, schema::Refusal::Reason::BAD_REQUEST);
  refused_job(
      [](auto job) {
        job.setToken("a-secret");
        job.setGpus(3);
      },
      schema::Refusal::Reason::BAD_REQUEST);

  const Fd holder = connect();
  send_open_job(holder, [](schema::OpenJob::Builder job) { job.setToken("a-secret"); });
  const OpenedJob job = opened(holder);
  ASSERT_NE(job.id, 0u);
  const auto refused = [&](const std::function<void(schema::Hello::Builder)>& change,
                           schema::Refusal::Reason reason, uint16_t opcode = wire::kHello) {
    const Fd socket = connect();
    send_hello(socket, change, opcode);
    expect_refusal(socket, reason);
    EXPECT_TRUE(closed(socket));
  };
  // Neither a session nor a look at the server without the token.
  refused([&](auto h) { show(h, job.id, job.key); }, schema::Refusal::Reason::TOKEN);
  refused([&](auto h) { show(h, job.id, job.key); }, schema::Refusal::Reason::TOKEN, wire::kStatus);
  std::string wrong = job.key;
  wrong[15] = static_cast<char>(wrong[15] ^ 1);
  for (const auto& [id, key] : std::vector<std::pair<uint64_t, std::string>>{
           {job.id, wrong}, {job.id, std::string(16, '\0')}, {job.id + 1, job.key}}) {
    refused(
        [&, id = id, key = key](auto h) {
          h.setToken("a-secret");
          show(h, id, key);
        },
        schema::Refusal::Reason::JOB);
  }
  for (const std::string& key : {std::string(), job.key.substr(1), job.key + "x", huge}) {
    refused(
        [&](auto h) {
          h.setToken("a-secret");
          show(h, job.id, key);
        },
        schema::Refusal::Reason::BAD_REQUEST);
  }
  EXPECT_EQ(status("a-secret").sessions, 0u);
  EXPECT_EQ(status("a-secret").jobs, 1u);
}

TEST_F(DaemonTest, AHolderThatSpeaksOrGoesEndsItsJobAlone) {
  ASSERT_NO_FATAL_FAILURE(start());
  std::vector<Fd> holders;
  for (int i = 0; i < 3; ++i) {
    holders.push_back(connect());
    send_open_job(holders.back());
    EXPECT_NE(opened(holders.back()).id, 0u);
  }
  EXPECT_EQ(status().jobs, 3u);
  const std::string noise(4096, 'x');
  EXPECT_GT(::send(holders[0].get(), noise.data(), noise.size(), MSG_NOSIGNAL), 0);
  EXPECT_TRUE(closed(holders[0]));
  ::shutdown(holders[1].get(), SHUT_WR);
  EXPECT_TRUE(eventually([&] { return status().jobs == 1; }));
  {
    const Fd hasty = connect();
    send_open_job(hasty);
  }  // gone before its answer
  EXPECT_TRUE(eventually([&] { return status().jobs == 1; }));
  daemon_->signal(SIGTERM);  // a job without sessions keeps no daemon
  EXPECT_EQ(wait_for_exit(), 0);
}

TEST_F(DaemonTest, AJobOfTheClientsOwnLivesForItsGraceTime) {
  ASSERT_NO_FATAL_FAILURE(start({"--job-grace", "2s"}));
  const std::string key(16, 'k');
  const auto session = [&] {
    Fd socket = connect();
    send_hello(socket, [&](schema::Hello::Builder h) { show(h, 0, key); });
    EXPECT_NE(first_line(socket), "");
    return socket;
  };
  session().reset();
  EXPECT_TRUE(eventually([&] { return status().sessions == 0; }));
  EXPECT_EQ(status().jobs, 1u);
  session().reset();  // the same job
  EXPECT_EQ(status().jobs, 1u);
  EXPECT_TRUE(eventually([&] { return status().jobs == 0; }));
}

TEST_F(DaemonTest, AProgramInAJobMayStartSessionsDuringTheDrain) {
  ASSERT_NO_FATAL_FAILURE(start());
  const Fd holder = connect();
  send_open_job(holder);
  const OpenedJob job = opened(holder);
  Fd first = connect();
  send_hello(first, [&](schema::Hello::Builder h) { show(h, job.id, job.key); });
  ASSERT_EQ(first_line(first), "GPU-11111111");
  daemon_->signal(SIGTERM);
  EXPECT_TRUE(eventually([&] {
    const Fd other = connect();
    send_open_job(other, [](auto request) { request.setGpus(1000); });
    const auto frame = answer(other);
    if (!frame.ok() || frame->header.result == 0) return false;
    wire::SegmentReader reader(frame->body());
    return reader.getRoot<schema::Refusal>().getReason() == schema::Refusal::Reason::DRAINING;
  }));
  Fd second = connect();
  send_hello(second, [&](schema::Hello::Builder h) { show(h, job.id, job.key); });
  EXPECT_EQ(first_line(second), "GPU-11111111");
  first.reset();
  second.reset();
  EXPECT_EQ(wait_for_exit(), 0);
}

TEST_F(DaemonTest, AWorkerThatDiesEndsItsSessionAndNothingElse) {
  ASSERT_NO_FATAL_FAILURE(start());
  const Fd one = connect();
  send_hello(one);
  EXPECT_EQ(first_line(one), "GPU-11111111");
  const pid_t worker = status().worker;
  ASSERT_GT(worker, 1);
  const Fd two = connect();
  send_hello(two);
  EXPECT_EQ(first_line(two), "GPU-22222222");
  ::kill(worker, SIGKILL);
  EXPECT_TRUE(closed(one));
  EXPECT_TRUE(eventually([&] { return status().sessions == 1; }));
  EXPECT_EQ(status().per_gpu, (std::vector<uint32_t>{0, 1}));
  char byte;
  EXPECT_EQ(::recv(two.get(), &byte, 1, MSG_DONTWAIT), -1);
  EXPECT_EQ(errno, EAGAIN);
}

TEST_F(DaemonTest, AWorkerThatTalksNonsenseIsEndedAndTheDaemonGoesOn) {
  std::string script = kWorker;
  script.insert(script.find("echo"), "[ -e \"$0.hostile\" ] && printf 'nonsense' >&4\n");
  std::ofstream(folder_ + "/worker") << script;
  ASSERT_NO_FATAL_FAILURE(start());
  const Fd honest = connect();
  send_hello(honest);
  EXPECT_EQ(first_line(honest), "GPU-11111111");
  std::ofstream(folder_ + "/worker.hostile") << "";
  const Fd hostile = connect();
  send_hello(hostile);
  EXPECT_TRUE(closed(hostile));
  EXPECT_TRUE(eventually([&] { return status().sessions == 1; }));
  std::filesystem::remove(folder_ + "/worker.hostile");
  const Fd next = connect();
  send_hello(next);
  EXPECT_EQ(first_line(next), "GPU-22222222");
}

TEST_F(DaemonTest, SigtermWaitsForSessionsAndRefusesNewOnes) {
  ASSERT_NO_FATAL_FAILURE(start());
  Fd session = connect();
  send_hello(session);
  EXPECT_EQ(first_line(session), "GPU-11111111");
  daemon_->signal(SIGTERM);
  // Asks for more than there is, so that it is refused also before the daemon has seen the signal.
  EXPECT_TRUE(eventually([&] {
    const Fd early = connect();
    send_hello(early, [](schema::Hello::Builder h) { h.setGpus(1000); });
    const auto frame = answer(early);
    if (!frame.ok() || frame->header.result == 0) return false;
    wire::SegmentReader reader(frame->body());
    return reader.getRoot<schema::Refusal>().getReason() == schema::Refusal::Reason::DRAINING;
  }));
  const Fd late = connect();
  send_hello(late);
  expect_refusal(late, schema::Refusal::Reason::DRAINING);
  EXPECT_FALSE(daemon_->end());
  session.reset();
  const int status = wait_for_exit();
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST_F(DaemonTest, TheDrainEndsSessionsThatStay) {
  ASSERT_NO_FATAL_FAILURE(start({"--drain", "0s"}));
  const Fd session = connect();
  send_hello(session);
  EXPECT_EQ(first_line(session), "GPU-11111111");
  daemon_->signal(SIGTERM);
  EXPECT_TRUE(closed(session));
  EXPECT_EQ(wait_for_exit(), 0);
}

TEST_F(DaemonTest, ConnectionsAtTheirHelloAreLimited) {
  ASSERT_NO_FATAL_FAILURE(start({"--max-handshakes", "2", "--hello-deadline", "20s"}));
  const Fd first = connect(), second = connect(), third = connect();
  EXPECT_TRUE(closed(first)) << "silent longest";
  for (const Fd* later : {&second, &third}) {
    send_hello(*later, {}, wire::kStatus);
    EXPECT_TRUE(answer(*later).ok());
  }
}

TEST_F(DaemonTest, ListensOnAUnixSocketAndRemovesIt) {
  const std::string path = folder_ + "/socket";
  ASSERT_NO_FATAL_FAILURE(start({"--listen", path}));
  struct stat about {};
  ASSERT_EQ(::stat(path.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0700u & about.st_mode);
  daemon_->signal(SIGTERM);
  EXPECT_EQ(wait_for_exit(), 0);
  EXPECT_NE(::stat(path.c_str(), &about), 0);
}

TEST_F(DaemonTest, BadFlagsAndFilesAreOneLineAndAnExitCode) {
  std::ofstream(folder_ + "/bad.toml") << "listen = 5\n";
  const struct {
    std::vector<std::string> arguments;
    int code;
    const char* says;
  } cases[] = {
      {{"--config", folder_ + "/bad.toml"}, 2, "bad.toml:1: listen"},
      {{"--config", "/nonexistent.toml"}, 2, "/nonexistent.toml"},
      {{"--token-file", "/nonexistent"}, 2, "/nonexistent"},
      {{"--memory-per-session", "8X"}, 2, "8X"},
      {{"--listen", "127.0.0.1:99999"}, 2, "99999"},
      {{"--no-such-flag"}, 2, "no-such-flag"},
      {{"--worker", "/bin/false"}, 3, "exited with 1"},
      {{"--worker", "/nonexistent/worker"}, 1, "/nonexistent/worker"},
  };
  for (const auto& c : cases) {
    ProcessSetup setup{"/bin/sh",
                       {"-c", "exec 2>&1; exec \"$@\"", "sh", FARGPU_DAEMON, "--worker",
                        folder_ + "/worker", "--listen", "127.0.0.1:0"},
                       {},
                       {}};
    setup.environment = {{"FARGPU_LOG", "error"}};
    if (c.arguments[0] == "--worker") setup.arguments.resize(4);
    if (c.arguments[0] == "--listen") setup.arguments.resize(6);
    setup.arguments.insert(setup.arguments.end(), c.arguments.begin(), c.arguments.end());
    const auto output = run_process(launcher_, setup, kLimit);
    ASSERT_TRUE(output.ok());
    EXPECT_EQ(output->end.code, c.code) << output->text;
    EXPECT_THAT(output->text, HasSubstr(c.says));
  }
}

}  // namespace
}  // namespace fargpu::server
