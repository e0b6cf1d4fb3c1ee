// What daemon and worker say to each other, also across releases, and what is no message.
#include "server/handover/worker_messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "common/wire/slot_message.h"
#include "generated/schema/worker.capnp.h"

namespace fargpu::server {
namespace {

using transport::Clock;

// As it comes over the sockets.
Result<ReceivedMessage> sent(const MessageBytes& bytes) {
  auto sockets = make_control_sockets();
  EXPECT_TRUE(sockets.ok());
  EXPECT_TRUE(send_message(sockets->first.get(), bytes, Clock::now()).ok());
  return receive_message(sockets->second.get(), Clock::now());
}

ReceivedMessage received(const MessageBytes& bytes) {
  auto message = sent(bytes);
  EXPECT_TRUE(message.ok()) << message.status().message();
  return message.ok() ? *message : ReceivedMessage{};
}

TEST(WorkerMessages, AStartReadsBack) {
  WorkerOptions options;
  options.session = 17;
  options.job = 18;
  options.job_slot = 3;
  options.job_slots = 256;
  options.driver = "/usr/lib/libcuda.so.1";
  options.memory_bytes = 1 << 30;
  options.image_folder = "/tmp/images";
  options.image_cache_bytes = 5;
  options.limits = {1 << 20, 2 << 20};
  options.client_limits = {3 << 20, uint64_t{5} << 40};
  options.hello_sequence = 9;
  options.priorities = {{0, -5}, {1, -2}};
  options.client = "host:1 program";
  options.transports = {bootstrap::Upgrade::kRdma, bootstrap::Upgrade::kShm};
  options.allowed = {bootstrap::Upgrade::kShm};
  options.same_host = true;
  options.encrypted_peer = "10.0.0.1:5";
  options.connections = 4;
  options.client_control = 5;
  options.daemon = 19;
  options.client_pid = 4711;
  options.host_limits = {512, 300, true};
  const ReceivedMessage message = received(encode_start(options));
  EXPECT_EQ(kind_of(message), WorkerMessage::kStart);
  const auto read = parse_start(message.body());
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->session, 17u);
  EXPECT_EQ(read->job, 18u);
  EXPECT_EQ(read->job_slot, 3u);
  EXPECT_EQ(read->job_slots, 256u);
  EXPECT_EQ(read->driver, options.driver);
  EXPECT_EQ(read->memory_bytes, options.memory_bytes);
  EXPECT_EQ(read->image_folder, options.image_folder);
  EXPECT_EQ(read->image_cache_bytes, 5u);
  EXPECT_EQ(read->limits.max_body_bytes, options.limits.max_body_bytes);
  EXPECT_EQ(read->client_limits.max_bulk_bytes, options.client_limits.max_bulk_bytes);
  EXPECT_EQ(read->hello_sequence, 9u);
  ASSERT_EQ(read->priorities.size(), 2u);
  EXPECT_EQ(read->priorities[0].greatest, -5);
  EXPECT_EQ(read->priorities[1].least, 1);
  EXPECT_EQ(read->client, options.client);
  EXPECT_EQ(read->transports, options.transports);
  EXPECT_EQ(read->allowed, options.allowed);
  EXPECT_TRUE(read->same_host);
  EXPECT_EQ(read->encrypted_peer, options.encrypted_peer);
  EXPECT_EQ(read->client_pid, options.client_pid);
  EXPECT_EQ(read->connections, 4);
  EXPECT_EQ(read->client_control, 5u);
  EXPECT_EQ(read->daemon, 19u);
  EXPECT_EQ(read->host_limits.open_files, 512u);
  EXPECT_EQ(read->host_limits.oom_score, 300u);
  EXPECT_TRUE(read->host_limits.core_dumps);
}

TEST(WorkerMessages, APrepareAndItsAnswerReadBack) {
  const ReceivedMessage message =
      received(encode_prepare({"/usr/lib/libcuda.so.1", {512, 300, true}}));
  EXPECT_EQ(kind_of(message), WorkerMessage::kPrepare);
  const auto read = parse_prepare(message.body());
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->driver, "/usr/lib/libcuda.so.1");
  EXPECT_EQ(read->host_limits.open_files, 512u);
  EXPECT_EQ(read->host_limits.oom_score, 300u);
  EXPECT_TRUE(read->host_limits.core_dumps);

  const ReceivedMessage done = received(encode_prepared(Status()));
  EXPECT_TRUE(done.is_reply());
  EXPECT_TRUE(parse_prepared(done.body()).ok());
  const Status failed = parse_prepared(
      received(encode_prepared({StatusCode::kInvalidArgument, "no \"GPU\"\n"})).body());
  EXPECT_EQ(failed.code(), StatusCode::kDriver);
  EXPECT_EQ(failed.message(), "no 'GPU'\\x0a");
}

TEST(WorkerMessages, DescriptorsComeInTheirOrder) {
  auto sockets = make_control_sockets();
  ASSERT_TRUE(sockets.ok());
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const Fd reading(ends[0]), writing(ends[1]);
  const std::vector<int> sent = {writing.get(), reading.get(), sockets->first.get()};
  ASSERT_TRUE(send_message(sockets->first.get(), encode_start({}), sent, Clock::now()).ok());
  std::vector<Fd> got;
  const auto message = receive_message(sockets->second.get(), Clock::now(), &got);
  ASSERT_TRUE(message.ok()) << message.status().message();
  ASSERT_EQ(got.size(), 3u);
  ASSERT_EQ(::write(got[0].get(), "x", 1), 1);
  char byte = 0;
  EXPECT_EQ(::read(got[1].get(), &byte, 1), 1);
  EXPECT_EQ(byte, 'x');
  // Who wants one closes the others.
  ASSERT_TRUE(send_message(sockets->first.get(), encode_start({}), sent, Clock::now()).ok());
  Fd first;
  ASSERT_TRUE(receive_message(sockets->second.get(), Clock::now(), &first).ok());
  EXPECT_TRUE(first.valid());
}

TEST(WorkerMessages, AnInventoryReadsBack) {
  const Inventory inventory{
      "/usr/lib/libcuda.so.1",
      13000,
      {{"GPU-1", "NVIDIA H200 NVL", 150, {0, -5}, 7}, {"GPU-2", "Other", 20, {}}}};
  const auto read = parse_inventory(received(encode_inventory(inventory)).body());
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->driver_path, inventory.driver_path);
  EXPECT_EQ(read->driver_version, 13000);
  ASSERT_EQ(read->units.size(), 2u);
  EXPECT_EQ(read->units[0].name, "NVIDIA H200 NVL");
  EXPECT_EQ(read->units[0].total_bytes, 150u);
  EXPECT_EQ(read->units[0].priorities.greatest, -5);
  EXPECT_EQ(read->units[0].context_bytes, 7u);
  EXPECT_EQ(read->units[1].context_bytes, 0u);
}

TEST(WorkerMessages, AnInventoryOfManyGpusWithLongNamesFits) {
  Inventory inventory{std::string(5000, 'd'), 1, {}};
  for (int i = 0; i < 200; ++i)
    inventory.units.push_back({std::string(100, 'u'), std::string(1000, 'n'), 1, {}});
  const auto read = parse_inventory(received(encode_inventory(inventory)).body());
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->units.size(), 128u);
}

TEST(WorkerMessages, WhatAProbeCouldNotDoComesThrough) {
  const Status why(StatusCode::kDriver, "no driver \"here\"\n");
  const auto failed = parse_inventory(received(encode_inventory(why)).body());
  EXPECT_EQ(failed.status().code(), StatusCode::kDriver);
  EXPECT_EQ(failed.status().message(), "no driver 'here'\\x0a");
  const auto none = parse_inventory(received(encode_inventory(Inventory{"/x", 1, {}})).body());
  EXPECT_EQ(none.status().code(), StatusCode::kNotFound);
  for (const Inventory& nonsense :
       {Inventory{"", 1, {{"GPU-1", "name", 1, {}}}}, Inventory{"/x", 1, {{"", "name", 1, {}}}},
        Inventory{"/x", 1, {{"GPU-1", "", 1, {}}}}}) {
    const auto read = parse_inventory(received(encode_inventory(nonsense)).body());
    EXPECT_EQ(read.status().code(), StatusCode::kProtocol);
  }
}

TEST(WorkerMessages, CommandsAndReportsReadBack) {
  const ReceivedMessage drain = received(encode_drain(7, std::chrono::milliseconds(1500)));
  EXPECT_EQ(kind_of(drain), WorkerMessage::kDrain);
  EXPECT_EQ(parse_drain(drain.body())->count(), 1500);
  const ReceivedMessage stop = received(encode_command(WorkerMessage::kStop, 8));
  const ReceivedMessage reply = received(encode_report(stop.header, {.calls = 5,
                                                                     .memory_bytes = {1, 2},
                                                                     .contexts = 3,
                                                                     .streams = 4,
                                                                     .stopped = true,
                                                                     .idle = true,
                                                                     .waits = 6,
                                                                     .helper_calls = 7,
                                                                     .host_functions = 8,
                                                                     .stuck = true,
                                                                     .call = 99,
                                                                     .client_gone = true,
                                                                     .client_seen = true}));
  EXPECT_TRUE(reply.is_reply());
  EXPECT_EQ(reply.header.sequence, 8u);
  const auto report = parse_report(reply);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->calls, 5u);
  EXPECT_EQ(report->memory_bytes, (std::vector<uint64_t>{1, 2}));
  EXPECT_EQ(report->contexts, 3u);
  EXPECT_EQ(report->streams, 4u);
  EXPECT_TRUE(report->stopped && report->idle && report->stuck && report->client_gone &&
              report->client_seen);
  EXPECT_EQ(report->waits, 6u);
  EXPECT_EQ(report->helper_calls, 7u);
  EXPECT_EQ(report->host_functions, 8u);
  EXPECT_EQ(report->call, 99);
  EXPECT_EQ(parse_report(received(encode_unknown(stop.header))).status().code(),
            StatusCode::kUnsupported);
}

TEST(WorkerMessages, LastWordsArePrintableAndShort) {
  const auto words = parse_last_words(
      received(encode_last_words({"a\nb\"" + std::string(10000, 'c'), "l\n"})).body());
  ASSERT_TRUE(words.ok());
  EXPECT_TRUE(words->reason.starts_with("a\\x0ab'ccc"));
  EXPECT_EQ(words->reason.size(), 2048u);
  EXPECT_EQ(words->limit, "l\\x0a");
}

// A body of one struct without pointers: its words after the root pointer.
std::vector<std::byte> body_of(std::vector<uint64_t> data) {
  data.insert(data.begin(), uint64_t{data.size()} << 32);
  const auto bytes = std::as_bytes(std::span(data));
  return {bytes.begin(), bytes.end()};
}

TEST(WorkerMessages, AReleaseWithMoreOrFewerFieldsIsUnderstood) {
  alignas(8) std::byte memory[64];
  const auto aligned = [&memory](const std::vector<std::byte>& body) {
    std::memcpy(memory, body.data(), body.size());
    return std::span<const std::byte>(memory, body.size());
  };
  // Drain of a release that has two more words, and of one that has no field at all.
  EXPECT_EQ(parse_drain(aligned(body_of({250, 7, 8})))->count(), 250);
  EXPECT_EQ(parse_drain(aligned(body_of({})))->count(), 0);
  // A version that is newer than ours, one that is too old, and none.
  const auto started = [&](uint64_t version) {
    ReceivedMessage message;
    message.header.opcode = static_cast<uint16_t>(WorkerMessage::kStarted);
    message.body_words = {uint64_t{1} << 32, version};
    message.header.body_bytes = 16;
    return check_started(message).status().code();
  };
  EXPECT_EQ(started(kWorkerProtocol + 5), StatusCode::kOk);
  EXPECT_EQ(started(kOldestWorkerProtocol - 1), StatusCode::kVersion);
}

TEST(WorkerMessages, WhatIsMalformedIsRefused) {
  ReceivedMessage other = received(encode_command(WorkerMessage::kStop, 1));
  EXPECT_EQ(check_started(other).status().code(), StatusCode::kProtocol);
  EXPECT_EQ(parse_report(other).status().code(), StatusCode::kProtocol);
  EXPECT_EQ(parse_start(other.body()).status().code(), StatusCode::kProtocol);
  // A pointer that leaves the message.
  other.body_words = {(uint64_t{1} << 48) | (uint64_t{500} << 2)};
  EXPECT_EQ(parse_start(other.body()).status().code(), StatusCode::kProtocol);
  EXPECT_EQ(parse_inventory(other.body()).status().code(), StatusCode::kProtocol);
  EXPECT_EQ(parse_last_words(other.body()).status().code(), StatusCode::kProtocol);
}

TEST(ControlSocket, WhatIsNoMessageIsRefused) {
  const MessageBytes whole = encode_command(WorkerMessage::kReport, 1);
  const auto changed = [&whole](size_t at, std::byte value) {
    MessageBytes bytes = whole;
    bytes[at] = value;
    return bytes;
  };
  MessageBytes longer = whole;
  longer.resize(whole.size() + 8);
  for (const MessageBytes& bytes :
       {MessageBytes(whole.begin(), whole.begin() + 24), MessageBytes(7), longer,
        changed(0, std::byte{0}), changed(4, std::byte{0x80}), changed(12, std::byte{8}),
        changed(16, std::byte{1}), MessageBytes(kMostMessageBytes + 8)}) {
    EXPECT_EQ(sent(bytes).status().code(), StatusCode::kProtocol) << bytes.size();
  }
}

TEST(WorkerMessages, ImagesReadBackAndTheirHashHasItsLength) {
  const Sha256Digest hash{1, 2, 3};
  const ReceivedMessage find = received(encode_image_name(WorkerMessage::kFindImage, 3, hash));
  EXPECT_EQ(kind_of(find), WorkerMessage::kFindImage);
  EXPECT_EQ(find.header.sequence, 3u);
  EXPECT_EQ(*parse_image_hash(find.body()), hash);
  EXPECT_EQ(*parse_image_bytes(received(encode_begin_image(4, uint64_t{5} << 40)).body()),
            uint64_t{5} << 40);
  EXPECT_EQ(received(encode_end_image(6)).header.sequence, 6u);
  const ReceivedMessage yes = received(encode_image_answer(find.header, true));
  EXPECT_TRUE(yes.is_reply());
  EXPECT_EQ(yes.header.result, 0);
  EXPECT_EQ(received(encode_image_answer(find.header, false)).header.result, kNoImage);
  // Another message's body has no hash; a body may also be cut.
  EXPECT_EQ(parse_image_hash(received(encode_begin_image(4, 1)).body()).status().code(),
            StatusCode::kProtocol);
  for (size_t bytes = 0; bytes < find.body().size(); bytes += 8)
    EXPECT_FALSE(parse_image_hash(find.body().first(bytes)).ok()) << bytes;
}

// As when a worker dies before it has read a command: whenever that is, its last words are there.
TEST(ControlSocket, WhatAnEndSaidComesAlsoWhenItLeftSomethingUnread) {
  for (int i = 0; i < 300; ++i) {
    auto sockets = make_control_sockets();
    ASSERT_TRUE(sockets.ok());
    const MessageBytes command = encode_command(WorkerMessage::kReport, 1);
    ASSERT_TRUE(send_message(sockets->first.get(), command, Clock::now()).ok());
    std::thread worker([end = std::move(sockets->second)]() mutable {
      for (int said = 0; said < 3; ++said)
        EXPECT_TRUE(send_message(end.get(), encode_last_words({"bye"}), Clock::now()).ok());
      end.reset();
    });
    for (int said = 0; said < 3; ++said) {
      const auto message =
          receive_message(sockets->first.get(), Clock::now() + std::chrono::seconds(60));
      EXPECT_TRUE(message.ok()) << i << ": " << message.status().message();
    }
    worker.join();
  }
}

TEST(ControlSocket, NobodyWaitsForTheOtherEnd) {
  auto sockets = make_control_sockets();
  ASSERT_TRUE(sockets.ok());
  EXPECT_EQ(receive_message(sockets->first.get(), Clock::now()).status().code(),
            StatusCode::kTimeout);
  // An end that is never read from fills up.
  const MessageBytes message = encode_command(WorkerMessage::kReport, 1);
  Status status;
  for (int i = 0; i < 100000 && status.ok(); ++i)
    status = send_message(sockets->first.get(), message, Clock::now());
  EXPECT_EQ(status.code(), StatusCode::kTimeout);
  sockets->second.reset();
  EXPECT_EQ(send_message(sockets->first.get(), message, Clock::now()).code(), StatusCode::kLost);
  EXPECT_EQ(receive_message(sockets->first.get(), Clock::now()).status().code(), StatusCode::kLost);
}

}  // namespace
}  // namespace fargpu::server
