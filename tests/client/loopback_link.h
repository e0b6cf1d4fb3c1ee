// A link over the loopback transport to a worker that answers by a script: for parts of the client
// that send without a session.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include "client/link/link.h"
#include "common/bootstrap/agreement.h"
#include "common/transport/loopback/loopback.h"
#include "tests/transport/scripted_server.h"

namespace fargpu::client {

class LoopbackLink final : public Link, public rpc::NoticeSink {
 public:
  // `known`: what the worker has messages for.
  explicit LoopbackLink(test::ScriptedServer::Script script,
                        const wire::OpcodeSet& known = bootstrap::known_opcodes())
      : Link({"of a test", known}, true) {
    auto [client, server] = transport::make_loopback_pair();
    set_channel(std::make_unique<rpc::Channel>(std::move(client), *this, rpc::ChannelOptions{}));
    server_ = std::make_unique<test::ScriptedServer>(
        std::move(server), [this, script = std::move(script)](rpc::Responder& responder,
                                                              const test::ReceivedFrame& request) {
          script_thread_ = std::this_thread::get_id();
          return script(responder, request);
        });
  }
  ~LoopbackLink() override {
    set_channel(nullptr);
    server_.reset();
  }
  // Until the worker has taken what was sent by now; not in its script.
  void settle() {
    if (std::this_thread::get_id() == script_thread_.load()) return;
    EXPECT_TRUE(channel().ping(transport::Clock::now() + std::chrono::seconds(20)).ok());
  }
  // The worker ends, and the link with it.
  void stop() { server_->stop(); }

  Status on_notice(const wire::FrameHeader&, rpc::Bytes, rpc::Bytes) override { return {}; }
  void on_async_error(uint16_t, uint32_t, uint16_t, int32_t) override {}
  void on_lost(const Status&) override {}

 private:
  std::unique_ptr<test::ScriptedServer> server_;
  std::atomic<std::thread::id> script_thread_{};
};

}  // namespace fargpu::client
