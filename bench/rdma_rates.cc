// The rdma transport by itself: an empty call there and back, and bytes between registered memory.
// Both ends are threads of this process, at an address of this host that has an RDMA device.
// bench/rdma.sh compares with perftest.
//   rdma_rates ADDRESS call|read|write   prints one figure: us (median), or MB/s
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "common/rpc/channel.h"
#include "common/rpc/responder.h"
#include "common/transport/rdma/rdma.h"
#include "common/transport/remote_memory.h"

namespace {

using namespace fargpu;
using transport::Clock;
using transport::kNoDeadline;
using Bytes = std::span<const std::byte>;

template <typename T>
T require(Result<T> result, const char* what) {
  if (result.ok()) return std::move(*result);
  std::fprintf(stderr, "rdma_rates: %s: %s\n", what, result.status().message().c_str());
  std::exit(1);
}

void require(const Status& status, const char* what) {
  if (!status.ok()) (void)require(Result<int>(status), what);
}

struct Ends {
  std::unique_ptr<transport::Transport> client, server;
};

Ends connect(const std::string& host, std::chrono::microseconds spin) {
  transport::RdmaOptions options;
  options.spin = spin;
  const auto address = require(transport::SocketAddress::parse(host, 0), "address");
  auto acceptor = require(transport::RdmaAcceptor::listen(address, options), "listen");
  const auto deadline = Clock::now() + std::chrono::seconds(10);
  Ends ends;
  std::thread client([&] {
    Fd none;
    ends.client = require(
        transport::rdma_connect(address, acceptor->offer(), options, none, deadline), "connect");
  });
  Fd none;
  ends.server = require(acceptor->accept(none, deadline), "accept");
  client.join();
  return ends;
}

// Answers every frame.
// Aligned, so that it shares no cache line with the client's end: elsewhere the two are in
// different processes.
class alignas(64) Server final : public transport::FrameHandler {
 public:
  explicit Server(std::unique_ptr<transport::Transport> transport)
      : transport_(std::move(transport)), responder_(*transport_), thread_([this] { run(); }) {}
  ~Server() override {
    transport_->close();
    thread_.join();
  }
  Result<std::span<std::byte>> bulk_buffer(const wire::FrameHeader&, Bytes) override {
    return Status(StatusCode::kProtocol, "no bulk here");
  }
  Status on_frame(const wire::FrameHeader& header, Bytes, std::span<std::byte>) override {
    return responder_.reply(header, 0);
  }

 private:
  void run() {
    while (transport_->receive(*this, kNoDeadline).ok() && responder_.flush().ok()) {
    }
  }
  std::unique_ptr<transport::Transport> transport_;
  rpc::Responder responder_;
  std::thread thread_;
};

class Sink final : public rpc::NoticeSink {
 public:
  Status on_notice(const wire::FrameHeader&, Bytes, Bytes) override { return Status(); }
  void on_async_error(uint16_t, uint32_t, uint16_t, int32_t) override {}
  void on_lost(const Status&) override {}
};

double call_us(const std::string& host) {
  Ends ends = connect(host, std::chrono::milliseconds(20));
  Sink sink;
  Server server(std::move(ends.server));
  rpc::Channel channel(std::move(ends.client), sink, {});
  constexpr int kWarmUp = 500, kCalls = 5000;
  std::vector<double> times;
  times.reserve(kCalls);
  auto begin = Clock::now();
  for (int i = 0; i < kWarmUp + kCalls; ++i) {
    rpc::Reply reply;
    rpc::Channel::Call call(channel, 100, 0, 0);
    require(call.call(reply), "call");
    const auto end = Clock::now();  // once per call, as perftest does
    const std::chrono::duration<double, std::micro> took = end - std::exchange(begin, end);
    if (i >= kWarmUp) times.push_back(took.count());
  }
  std::nth_element(times.begin(), times.begin() + kCalls / 2, times.end());
  return times[kCalls / 2];
}

double bytes_mb_s(const std::string& host, bool is_read) {
  Ends ends = connect(host, std::chrono::milliseconds(20));
  constexpr size_t kBytes = 16 << 20;
  constexpr int kRounds = 6;
  std::vector<std::byte> ours(kBytes, std::byte{1}), theirs(kBytes, std::byte{2});
  auto& memory = *ends.client->remote_memory();
  auto here = require(memory.register_memory(ours, transport::RemoteAccess::kNone), "register");
  auto there = require(
      ends.server->remote_memory()->register_memory(theirs, transport::RemoteAccess::kReadWrite),
      "register");
  const auto round = [&] {
    auto ticket = is_read ? memory.read(there->key(), 0, *here, ours)
                          : memory.write(*here, ours, there->key(), 0);
    require(memory.wait(require(std::move(ticket), "transfer"), kNoDeadline), "transfer");
  };
  round();
  const auto begin = Clock::now();
  for (int i = 0; i < kRounds; ++i) round();
  const std::chrono::duration<double> took = Clock::now() - begin;
  return static_cast<double>(kBytes) * kRounds / took.count() / 1e6;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"One figure of the rdma transport: microseconds of a call, or MB/s."};
  std::string address, what;
  app.add_option("ADDRESS", address, "of an adapter of this machine")->required();
  app.add_option("WHAT", what)->required()->check(CLI::IsMember({"call", "read", "write"}));
  CLI11_PARSE(app, argc, argv);
  std::printf("%.2f\n", what == "call" ? call_us(address) : bytes_mb_s(address, what == "read"));
  return 0;
}
