// A channel with a scripted server at the other end, over any kind of transport.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "common/rpc/channel.h"
#include "tests/transport/frames.h"
#include "tests/transport/scripted_server.h"
#include "tests/transport/transport_pairs.h"

namespace fargpu::test {

// Opcodes of the usual script.
enum : uint16_t {
  kEcho = 100,    // reply: the request's body and bulk
  kCount = 101,   // async: adds the body's first word to a sum
  kFail = 102,    // CUresult from the body's first word
  kForget = 103,  // no reply, ever
  kNotify = 104,  // first a notice (opcode kOutput) with the request's bulk, then a reply
  kSum = 105,     // reply: the sum of kCount so far, as result
};

struct AsyncError {
  uint16_t opcode;
  uint32_t sequence;
  uint16_t context;
  int32_t result;
};

class RecordingSink final : public rpc::NoticeSink {
 public:
  Status on_notice(const wire::FrameHeader& header, rpc::Bytes body, rpc::Bytes bulk) override {
    std::lock_guard lock(mutex);
    notices.emplace_back(bulk.begin(), bulk.end());
    notice_opcodes.push_back(header.opcode);
    return Status();
  }
  void on_async_error(uint16_t opcode, uint32_t sequence, uint16_t context,
                      int32_t result) override {
    std::lock_guard lock(mutex);
    errors.push_back({opcode, sequence, context, result});
  }
  bool awaits_notices() const override { return awaits; }
  void on_lost(const Status& why) override {
    std::lock_guard lock(mutex);
    ++losses;
    lost_why = why;
  }
  template <typename T>
  T get(T RecordingSink::*member) {
    std::lock_guard lock(mutex);
    return this->*member;
  }

  std::mutex mutex;
  std::vector<std::vector<std::byte>> notices;
  std::vector<uint16_t> notice_opcodes;
  std::vector<AsyncError> errors;
  int losses = 0;
  Status lost_why;
  std::atomic<bool> awaits{false};
};

// Polls `condition` for up to 20 s.
template <typename Condition>
bool eventually(Condition condition) {
  const auto deadline = transport::Clock::now() + std::chrono::seconds(20);
  while (!condition()) {
    if (transport::Clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return true;
}

// The usual script; `sum` collects kCount.
ScriptedServer::Script usual_script(std::shared_ptr<std::atomic<int64_t>> sum);

struct ChannelFixture {
  explicit ChannelFixture(const TransportKind& kind, rpc::ChannelOptions options = {},
                          const transport::StreamOptions& stream = {});
  ChannelFixture(TransportPair pair, rpc::ChannelOptions options, ScriptedServer::Script script);

  std::shared_ptr<std::atomic<int64_t>> sum = std::make_shared<std::atomic<int64_t>>(0);
  RecordingSink sink;
  std::unique_ptr<ScriptedServer> server;
  std::unique_ptr<rpc::Channel> channel;
};

// One call whose body is a struct with one 64-bit field.
Status call_with(rpc::Channel& channel, uint16_t opcode, uint64_t value, rpc::Reply& reply,
                 std::span<const rpc::Bytes> bulk = {}, std::span<std::byte> bulk_out = {});
Status send_with(rpc::Channel& channel, uint16_t opcode, uint64_t value, int32_t* result = nullptr,
                 std::span<const rpc::Bytes> bulk = {});
uint64_t value_of(rpc::Reply& reply);

}  // namespace fargpu::test
