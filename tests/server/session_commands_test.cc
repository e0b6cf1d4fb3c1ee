// A session is stopped, drained, asked and resumed by its daemon while a client works.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ctime>

#include "common/host/sha256.h"
#include "common/wire/control.h"
#include "common/wire/data.h"
#include "generated/schema/internal.capnp.h"
#include "generated/schema/memory.capnp.h"
#include "generated/schema/module.capnp.h"
#include "generated/schema/opcodes.h"
#include "generated/schema/stream.capnp.h"
#include "tests/server/executor_fixture.h"

namespace fargpu::server {
namespace {

using std::chrono::milliseconds;
using transport::Clock;

FakeDriver& driver() { return FakeDriver::get(); }

class SessionCommandsTest : public ExecutorTest {
 protected:
  void SetUp() override {
    // First: it must have no socket of the test.
    client_ = ::fork();
    if (client_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::pause();
      ::_exit(0);
    }
    auto sockets = make_control_sockets();
    ASSERT_TRUE(sockets.ok());
    daemon_end_ = std::move(sockets->first);
    worker_end_ = std::move(sockets->second);
    int ends[2];
    ASSERT_NO_FATAL_FAILURE(connect(ends));
    clients_end_.reset(ends[0]);
    peer_end_.reset(ends[1]);
    process_.reset(static_cast<int>(::syscall(SYS_pidfd_open, client_, 0)));
    ASSERT_TRUE(process_.valid());
    daemon_ = {worker_end_.get(), &orders_,        nullptr,
               kWorkerProtocol,   peer_end_.get(), knows_process() ? process_.get() : -1};
    peer_ = peer_end_.get();
    start();
    enter();
    EXPECT_EQ(kind_of(answer()), WorkerMessage::kSettled);
  }
  void TearDown() override {
    orders_.set(Gate::kOpen);
    ExecutorTest::TearDown();
    end_client();
  }
  // The connection of the client.
  virtual void connect(int* ends) { ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0); }
  virtual bool knows_process() { return true; }
  void end_client() {
    if (client_ < 0) return;
    ::kill(client_, SIGKILL);
    EXPECT_EQ(::waitpid(client_, nullptr, 0), client_);
    client_ = -1;
  }

  void tell(const MessageBytes& message) {
    ASSERT_TRUE(send_message(daemon_end_.get(), message, Clock::now()).ok());
  }
  ReceivedMessage answer() {
    auto message = receive_message(daemon_end_.get(), Clock::now() + std::chrono::seconds(60));
    EXPECT_TRUE(message.ok()) << message.status().message();
    return message.ok() ? *message : ReceivedMessage{};
  }
  WorkerReport reported(uint32_t sequence) {
    const ReceivedMessage reply = answer();
    EXPECT_EQ(reply.header.sequence, sequence);
    const auto report = parse_report(reply);
    EXPECT_TRUE(report.ok()) << report.status().message();
    return report.ok() ? *report : WorkerReport{};
  }
  WorkerReport ask(WorkerMessage command) {
    tell(encode_command(command, ++sequence_));
    return reported(sequence_);
  }
  WorkerReport stop() {
    orders_.set(Gate::kClosed);
    return ask(WorkerMessage::kStop);
  }
  WorkerReport resume() {
    orders_.set(Gate::kOpen);
    return ask(WorkerMessage::kResume);
  }
  WorkerReport drain(milliseconds limit) {
    tell(encode_drain(++sequence_, limit));
    return reported(sequence_);
  }
  uint32_t set(uint8_t value, uint16_t flags) {
    return send<schema::CuMemsetD8AsyncParams>(
        schema::op_cuMemsetD8Async,
        [&](auto p) {
          p.setDstDevice(0x7000);
          p.setUc(value);
          p.setN(1);
        },
        flags);
  }
  uint32_t synchronise_stream() {
    return send<schema::CuStreamSynchronizeParams>(schema::op_cuStreamSynchronize, [](auto) {});
  }
  uint32_t allocate(uint64_t bytes) {
    return send<schema::CuMemAllocV2Params>(schema::op_cuMemAlloc_v2,
                                            [&](auto p) { p.setBytesize(bytes); });
  }

  SessionOrders orders_;
  Fd daemon_end_, worker_end_, clients_end_, peer_end_, process_;
  pid_t client_ = -1;
  uint32_t sequence_ = 0;
};

TEST_F(SessionCommandsTest, AStoppedSessionTakesNothingAndLosesNothing) {
  EXPECT_TRUE(stop().stopped);
  for (uint8_t i = 0; i < 100; ++i) set(i, 0);
  const uint32_t last = set(100, wire::kWantReply);
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_FALSE(driver().saw("cuMemsetD8Async 0"));
  const WorkerReport standing = ask(WorkerMessage::kReport);
  EXPECT_TRUE(standing.stopped);
  EXPECT_TRUE(standing.idle);
  EXPECT_EQ(standing.contexts, 1u);
  EXPECT_FALSE(resume().stopped);
  EXPECT_EQ(result(last), CUDA_SUCCESS);
  for (int i = 0; i <= 100; ++i)
    EXPECT_EQ(driver().count("cuMemsetD8Async " + std::to_string(i)), 1u) << i;
}

TEST_F(SessionCommandsTest, WhetherTheClientIsThereIsSaidAtOnce) {
  EXPECT_FALSE(ask(WorkerMessage::kClient).client_gone);
  clients_end_.reset();
  EXPECT_TRUE(ask(WorkerMessage::kClient).client_gone);
  // The watch has noticed the end of the client by now, and yet it answers.
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_TRUE(ask(WorkerMessage::kClient).client_gone);
}

// The process has ended, and the end of its connection has not arrived.
TEST_F(SessionCommandsTest, AClientThatCanBeWaitedForIsGone) {
  EXPECT_FALSE(ask(WorkerMessage::kClient).client_gone);
  end_client();
  EXPECT_TRUE(ask(WorkerMessage::kClient).client_gone);
}

class RemoteClientTest : public SessionCommandsTest {
 protected:
  void connect(int* ends) override {
    const Fd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof address;
    auto* const place = reinterpret_cast<sockaddr*>(&address);
    ASSERT_EQ(::bind(listener.get(), place, bytes), 0);
    ASSERT_EQ(::listen(listener.get(), 1), 0);
    ASSERT_EQ(::getsockname(listener.get(), place, &bytes), 0);
    ends[0] = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ASSERT_EQ(::connect(ends[0], place, bytes), 0);
    ends[1] = ::accept(listener.get(), nullptr, nullptr);
    ASSERT_GE(ends[1], 0);
  }
  bool knows_process() override { return false; }
};

class LocalClientTest : public SessionCommandsTest {
 protected:
  bool knows_process() override { return false; }
};

TEST_F(SessionCommandsTest, TheEndOfAKnownProcessIsSeenAtOnce) {
  EXPECT_TRUE(ask(WorkerMessage::kClient).client_seen);
}
TEST_F(LocalClientTest, TheEndOfAUnixSocketIsSeenAtOnce) {
  EXPECT_TRUE(ask(WorkerMessage::kClient).client_seen);
}
TEST_F(RemoteClientTest, TheEndOfANetworkConnectionMayBeSeenLate) {
  const WorkerReport report = ask(WorkerMessage::kClient);
  EXPECT_FALSE(report.client_gone);
  EXPECT_FALSE(report.client_seen);
}

TEST_F(SessionCommandsTest, FreeMemoryWaitsForOthersThatHaveEnded) {
  const auto ask_for_memory = [this] {
    return send<schema::CuMemGetInfoV2Params>(schema::op_cuMemGetInfo_v2, [](auto) {});
  };
  EXPECT_EQ(result(ask_for_memory()), CUDA_SUCCESS);  // alone on the GPU: nobody is asked
  orders_.neighbours = 1;
  const uint32_t first = ask_for_memory();
  const ReceivedMessage asked = answer();
  EXPECT_EQ(kind_of(asked), WorkerMessage::kAwaitEnded);
  const size_t before = driver().count("cuMemGetInfo");
  // What comes while the daemon is asked is asked for again: others may have ended since.
  const uint32_t second = ask_for_memory();
  EXPECT_EQ(result(set(1, wire::kWantReply)), CUDA_SUCCESS);
  EXPECT_EQ(driver().count("cuMemGetInfo"), before);
  tell(encode_await_ended_answer(asked.header.sequence));
  EXPECT_EQ(result(first), CUDA_SUCCESS);
  const ReceivedMessage again = answer();
  EXPECT_NE(again.header.sequence, asked.header.sequence);
  tell(encode_await_ended_answer(again.header.sequence));
  EXPECT_EQ(result(second), CUDA_SUCCESS);
}

TEST_F(SessionCommandsTest, AnAllocationThatFindsNoMemoryIsMadeAgain) {
  orders_.neighbours = 1;
  driver().fail("cuMemAlloc 4096", CUDA_ERROR_OUT_OF_MEMORY);
  const uint32_t first = allocate(4096);
  const ReceivedMessage asked = answer();
  EXPECT_EQ(kind_of(asked), WorkerMessage::kAwaitEnded);
  driver().fail("cuMemAlloc 4096", CUDA_SUCCESS);
  tell(encode_await_ended_answer(asked.header.sequence));
  EXPECT_EQ(result(first), CUDA_SUCCESS);
  // Once, and then it is said.
  driver().fail("cuMemAlloc 4096", CUDA_ERROR_OUT_OF_MEMORY);
  const uint32_t second = allocate(4096);
  tell(encode_await_ended_answer(answer().header.sequence));
  EXPECT_EQ(result(second), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_F(SessionCommandsTest, WhatWasTakenBeforeGoesOnAndADrainWaitsForIt) {
  driver().shut("event");
  driver().shut("cuCtxSynchronize");
  const uint32_t waiting = synchronise_stream();
  EXPECT_EQ(result(set(1, wire::kWantReply)), CUDA_SUCCESS);
  const WorkerReport stopped = stop();
  EXPECT_TRUE(stopped.stopped);
  EXPECT_FALSE(stopped.idle);
  EXPECT_EQ(stopped.waits, 1u);
  std::thread gpu([] {
    std::this_thread::sleep_for(milliseconds(60));
    driver().open("event");
    std::this_thread::sleep_for(milliseconds(60));
    driver().open("cuCtxSynchronize");
  });
  const auto began = Clock::now();
  const WorkerReport drained = drain(std::chrono::seconds(60));
  EXPECT_TRUE(drained.idle);
  EXPECT_GE(Clock::now() - began, milliseconds(100));
  gpu.join();
  EXPECT_EQ(result(waiting), CUDA_SUCCESS);  // the reply left while the session stood still
  resume();
  EXPECT_EQ(result(set(2, wire::kWantReply)), CUDA_SUCCESS);
}

class SessionWithBulkConnection : public SessionCommandsTest {
 protected:
  SessionWithBulkConnection() { with_bulk_connection_ = true; }
};

TEST_F(SessionWithBulkConnection, AStoppedSessionSleepsAlsoWhenThatConnectionHasEnded) {
  EXPECT_TRUE(stop().stopped);
  beside_->close();
  std::this_thread::sleep_for(BulkReceiver::kLastFrames + milliseconds(200));
  const std::clock_t before = std::clock();
  std::this_thread::sleep_for(milliseconds(500));
  EXPECT_LT(std::clock() - before, CLOCKS_PER_SEC / 4) << "it does not sleep";
  orders_.set(Gate::kOpen);
  tell(encode_command(WorkerMessage::kResume, ++sequence_));
  EXPECT_EQ(end().code(), StatusCode::kLost);
}

TEST_F(SessionCommandsTest, ADrainEndsAlsoWhenTheWorkDoesNot) {
  driver().shut("cuCtxSynchronize");
  EXPECT_FALSE(drain(milliseconds(30)).idle);
  // Without a stop the session goes on meanwhile.
  tell(encode_drain(++sequence_, std::chrono::seconds(60)));
  EXPECT_EQ(result(set(1, wire::kWantReply)), CUDA_SUCCESS);
  driver().open("cuCtxSynchronize");
  EXPECT_TRUE(reported(sequence_).idle);
}

TEST_F(SessionCommandsTest, AReportSaysWhatTheSessionHolds) {
  allocate(500);
  EXPECT_EQ(next().header.result, CUDA_SUCCESS);
  EXPECT_EQ(result(send<schema::CuStreamCreateParams>(
                schema::op_cuStreamCreate,
                [](auto p) { p.setPhStream(rpc::make_handle(rpc::HandleKind::kStream, 8)); })),
            CUDA_SUCCESS);
  const WorkerReport report = ask(WorkerMessage::kReport);
  EXPECT_EQ(report.calls, 3u);
  EXPECT_EQ(report.memory_bytes, std::vector<uint64_t>{500});
  EXPECT_EQ(report.contexts, 1u);
  EXPECT_EQ(report.streams, 1u);
  EXPECT_TRUE(report.idle);
  EXPECT_FALSE(report.stopped || report.stuck);
}

TEST_F(SessionCommandsTest, AnExecutorInTheDriverIsReportedByTheWatch) {
  driver().shut("cuMemAlloc 100");
  allocate(100);
  ASSERT_TRUE(eventually([] { return driver().saw("cuMemAlloc 100"); }));
  const WorkerReport report = ask(WorkerMessage::kReport);
  EXPECT_TRUE(report.stuck);
  EXPECT_FALSE(report.idle);
  EXPECT_EQ(report.call, schema::op_cuMemAlloc_v2);
  driver().open("cuMemAlloc 100");
  EXPECT_EQ(next().header.result, CUDA_SUCCESS);
  EXPECT_FALSE(ask(WorkerMessage::kReport).stuck);  // the first one was answered once
}

TEST_F(SessionCommandsTest, StopsAndResumesInQuickSuccessionAreAllAnswered) {
  for (int i = 0; i < 50; ++i) {
    orders_.set(Gate::kClosed);
    tell(encode_command(WorkerMessage::kStop, ++sequence_));
    orders_.set(Gate::kOpen);
    tell(encode_command(WorkerMessage::kResume, ++sequence_));
    answer();
    answer();
  }
  EXPECT_EQ(result(set(1, wire::kWantReply)), CUDA_SUCCESS);
}

TEST_F(SessionCommandsTest, AClientThatGoesWhileItsSessionIsStoppedIsLost) {
  stop();
  clients_end_.reset();
  EXPECT_EQ(end().code(), StatusCode::kLost);
}

TEST_F(SessionCommandsTest, ACommandOfALaterReleaseIsAnsweredAsUnknown) {
  tell(encode_command(static_cast<WorkerMessage>(77), 5));
  EXPECT_EQ(answer().header.result, kUnknownMessage);
  tell(encode_command(WorkerMessage::kDrain, 6));  // without its body
  EXPECT_EQ(answer().header.result, kUnknownMessage);
  EXPECT_FALSE(ask(WorkerMessage::kReport).stuck);
}

TEST_F(SessionCommandsTest, ADaemonThatIsGoneSaysNothingMore) {
  daemon_end_.reset();
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_EQ(result(set(1, wire::kWantReply)), CUDA_SUCCESS);
}

// --- images, of which the session asks its daemon

class ImagesOfTheDaemon : public SessionCommandsTest {
 protected:
  uint32_t load() {
    return send<schema::FgModuleLoadParams>(schema::op_fgModuleLoad, [&](auto p) {
      p.setHash(key());
      p.setModule(rpc::make_handle(rpc::HandleKind::kModule, ++modules_));
    });
  }
  uint32_t put() {
    alignas(8) std::byte memory[256];
    wire::SlotMessageBuilder builder(std::span<std::byte>(memory, sizeof memory));
    auto params = builder.initRoot<schema::FgImagePutParams>();
    params.setHash(key());
    params.setTotalBytes(image_.size());
    params.setPieceBytes(image_.size());
    params.setUpload(++uploads_);
    return send(schema::op_fgImagePut, std::span<const std::byte>(memory, builder.used_bytes()),
                wire::kWantReply, 1, std::as_bytes(std::span(image_)));
  }
  uint32_t ask_for_upload() {
    return send<schema::FgImageUploadedParams>(schema::op_fgImageUploaded,
                                               [&](auto p) { p.setUpload(uploads_); });
  }
  // The next message of the worker, which must be this.
  wire::FrameHeader asked(WorkerMessage kind) {
    const ReceivedMessage message = answer();
    EXPECT_EQ(kind_of(message), kind);
    return message.header;
  }
  void reply(const wire::FrameHeader& question, const Fd& descriptor) {
    ASSERT_TRUE(send_message(daemon_end_.get(), encode_image_answer(question, descriptor.valid()),
                             descriptor.get(), Clock::now())
                    .ok());
  }
  static Fd memory(std::string_view contents) {
    Fd made(::memfd_create("image", MFD_CLOEXEC));
    EXPECT_EQ(::write(made.get(), contents.data(), contents.size()),
              static_cast<ssize_t>(contents.size()));
    return made;
  }
  capnp::Data::Reader key() const { return wire::as_data(hash_.data(), hash_.size()); }

  const std::string image_ = "image";
  const Sha256Digest hash_ = sha256(std::as_bytes(std::span(image_)));
  uint64_t modules_ = 0, uploads_ = 0;
};

TEST_F(ImagesOfTheDaemon, ALoadAsksOnceAndOtherCommandsAreAnsweredMeanwhile) {
  const uint32_t loading = load();
  const ReceivedMessage question = answer();
  EXPECT_EQ(kind_of(question), WorkerMessage::kFindImage);
  EXPECT_EQ(*parse_image_hash(question.body()), hash_);
  tell(encode_command(WorkerMessage::kReport, 77));
  reply(question.header, memory(image_));
  expect_answer(loading, CUDA_SUCCESS);
  EXPECT_TRUE(driver().saw("cuModuleLoadDataEx image"));
  EXPECT_FALSE(reported(77).stuck);
}

TEST_F(ImagesOfTheDaemon, AnUploadIsInMemoryOfTheDaemonsUntilItIsKept) {
  const uint32_t loading = load();
  reply(asked(WorkerMessage::kFindImage), Fd());
  expect_answer(loading, CUDA_ERROR_NOT_FOUND);
  const uint32_t putting = put();
  const ReceivedMessage begin = answer();
  EXPECT_EQ(kind_of(begin), WorkerMessage::kBeginImage);
  EXPECT_EQ(*parse_image_bytes(begin.body()), image_.size());
  const Fd given = memory("-----");
  reply(begin.header, given);
  expect_answer(putting, CUDA_SUCCESS);
  const wire::FrameHeader keep = asked(WorkerMessage::kKeepImage);
  EXPECT_EQ(keep.sequence, begin.header.sequence);
  std::string contents(image_.size(), '\0');
  EXPECT_EQ(::pread(given.get(), contents.data(), contents.size(), 0), 5);
  EXPECT_EQ(contents, image_);
  expect_answer(load(), CUDA_SUCCESS);
  tell(encode_image_answer(keep, true));
  // A load that is about to end has the memory still.
  for (bool asks = false; !asks;) {
    const uint32_t again = load();
    const auto question = receive_message(daemon_end_.get(), Clock::now() + milliseconds(100));
    asks = question.ok();
    if (asks) reply(question->header, memory(image_));
    expect_answer(again, CUDA_SUCCESS);
  }
}

TEST_F(ImagesOfTheDaemon, WhatIsNotKeptIsLoadedOnceAndEnds) {
  const uint32_t putting = put();
  const wire::FrameHeader begin = asked(WorkerMessage::kBeginImage);
  reply(begin, memory("-----"));
  expect_answer(putting, CUDA_SUCCESS);
  tell(encode_image_answer(asked(WorkerMessage::kKeepImage), false));
  expect_answer(load(), CUDA_SUCCESS);
  EXPECT_EQ(asked(WorkerMessage::kEndImage).sequence, begin.sequence);
}

TEST_F(ImagesOfTheDaemon, AnUploadThatIsRefusedOrTakenBackHasFailed) {
  uint32_t putting = put();
  reply(asked(WorkerMessage::kBeginImage), Fd());
  expect_answer(putting, CUDA_SUCCESS);
  expect_answer(ask_for_upload(), CUDA_ERROR_OUT_OF_MEMORY);
  putting = put();
  const wire::FrameHeader begin = asked(WorkerMessage::kBeginImage);
  reply(begin, memory("-----"));
  expect_answer(putting, CUDA_SUCCESS);
  asked(WorkerMessage::kKeepImage);
  tell(encode_end_image(begin.sequence));
  (void)ask(WorkerMessage::kReport);
  const uint32_t loading = load();
  reply(asked(WorkerMessage::kFindImage), Fd());
  expect_answer(loading, CUDA_ERROR_NOT_FOUND);
}

}  // namespace
}  // namespace fargpu::server
