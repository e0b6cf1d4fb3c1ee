// A worker's connection and its session are lost apart: what is asked when the connection is lost,
// what stays if another one takes its place, and what ends the session at once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/wire/control.h"
#include "generated/schema/memory.capnp.h"
#include "generated/schema/opcodes.h"
#include "generated/schema/stream.capnp.h"
#include "tests/server/executor_fixture.h"
#include "tests/transport/switched_transport.h"

namespace fargpu::server {
namespace {

FakeDriver& driver() { return FakeDriver::get(); }

class ConnectionLossTest : public ExecutorTest {
 protected:
  void SetUp() override {
    wrap_ = [this](std::unique_ptr<transport::Transport> first) {
      auto made = std::make_unique<test::SwitchedTransport>(std::move(first));
      switched_ = made.get();
      return made;
    };
  }
  // The client's connection ends; another one is there.
  void lose_connection() {
    auto [client, server] = transport::make_loopback_pair();
    switched_->add(std::move(server));
    hang_up();
    EXPECT_TRUE(eventually([this] { return switched_->losses() > 0; }));
    use(std::move(client));
  }
  void allocate(uint64_t bytes) {
    expect_answer(send<schema::CuMemAllocV2Params>(schema::op_cuMemAlloc_v2,
                                                   [&](auto p) { p.setBytesize(bytes); }),
                  CUDA_SUCCESS);
  }
  uint32_t wait_for_stream() {
    return send<schema::CuStreamSynchronizeParams>(schema::op_cuStreamSynchronize, [](auto) {});
  }

  test::SwitchedTransport* switched_ = nullptr;
};

TEST_F(ConnectionLossTest, WhatASessionHasOutlivesItsConnection) {
  start(false, 1000);
  enter();
  allocate(600);
  lose_connection();
  // Contexts, and what is charged to the job.
  expect_answer(send<schema::CuMemAllocV2Params>(schema::op_cuMemAlloc_v2,
                                                 [](auto p) { p.setBytesize(600); }),
                CUDA_ERROR_OUT_OF_MEMORY);
  allocate(300);
  EXPECT_EQ(switched_->losses(), 1);
  EXPECT_EQ(driver().count("cuMemAlloc 600"), 1u);
  for (const std::string& call : driver().calls())
    EXPECT_EQ(call.find("Destroy"), std::string::npos) << call;
}

TEST_F(ConnectionLossTest, AnAnswerThatTheGpuOwesComesOverTheNextConnection) {
  start();
  enter();
  driver().shut("event");
  const uint32_t waits = wait_for_stream();
  ASSERT_TRUE(eventually([] { return driver().saw("cuEventRecord 1"); }));
  lose_connection();
  driver().open("event");
  expect_answer(waits, CUDA_SUCCESS);
}

TEST_F(ConnectionLossTest, WithoutAnotherConnectionTheSessionEndsWithIt) {
  start();
  enter();
  hang_up();
  EXPECT_EQ(end().code(), StatusCode::kLost);
  EXPECT_EQ(switched_->losses(), 1);
}

TEST_F(ConnectionLossTest, AClientThatBreaksTheRulesEndsTheSessionAndNobodyIsAsked) {
  start();
  enter();
  switched_->add(transport::make_loopback_pair().second);
  send(wire::kHello);
  EXPECT_EQ(end().code(), StatusCode::kProtocol);
  EXPECT_EQ(switched_->losses(), 0);
}

TEST_F(ConnectionLossTest, AByeEndsTheSessionAndNobodyIsAsked) {
  start();
  enter();
  switched_->add(transport::make_loopback_pair().second);
  send(wire::kBye, {}, 0);
  EXPECT_TRUE(end().ok());
  EXPECT_EQ(switched_->losses(), 0);
}

}  // namespace
}  // namespace fargpu::server
