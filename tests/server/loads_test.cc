// Loads and unloads of modules: the driver takes its time for them, on helper threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/host/sha256.h"
#include "common/wire/data.h"
#include "generated/schema/internal.capnp.h"
#include "generated/schema/module.capnp.h"
#include "generated/schema/opcodes.h"
#include "tests/server/executor_fixture.h"

namespace fargpu::server {
namespace {

FakeDriver& driver() { return FakeDriver::get(); }

// An image that was brought, and the loads and unloads of it as one module.
class Loading : public ExecutorTest {
 protected:
  void put_image() {
    const std::string image = "image";
    hash_ = sha256(std::as_bytes(std::span(image)));
    alignas(8) std::byte memory[256];
    wire::SlotMessageBuilder builder(std::span<std::byte>(memory, sizeof memory));
    auto put = builder.initRoot<schema::FgImagePutParams>();
    put.setHash(key());
    put.setTotalBytes(image.size());
    put.setPieceBytes(image.size());
    expect_answer(
        send(schema::op_fgImagePut, std::span<const std::byte>(memory, builder.used_bytes()),
             wire::kWantReply, 1, std::as_bytes(std::span(image))),
        CUDA_SUCCESS);
  }
  uint32_t load(uint64_t serial = 1) {
    return send<schema::FgModuleLoadParams>(schema::op_fgModuleLoad, [&](auto p) {
      p.setHash(key());
      p.setModule(rpc::make_handle(rpc::HandleKind::kModule, serial));
    });
  }
  CUresult outcome() {
    const Answer answer = next();
    wire::SegmentReader reader(answer.body);
    return static_cast<CUresult>(reader.getRoot<schema::FgModuleLoadResults>().getOutcome());
  }
  uint32_t unload() {
    return send<schema::CuModuleUnloadParams>(schema::op_cuModuleUnload,
                                              [](auto p) { p.setHmod(kId); });
  }
  uint32_t function() {
    return send<schema::FgModuleFunctionParams>(schema::op_fgModuleFunction, [](auto p) {
      p.setModule(kId);
      p.setName("kernel");
      p.setFunction(rpc::make_handle(rpc::HandleKind::kFunction, 1));
    });
  }
  static constexpr auto kDriverLoad = "cuModuleLoadDataEx image";

 private:
  static constexpr uint64_t kId = rpc::make_handle(rpc::HandleKind::kModule, 1);
  capnp::Data::Reader key() const { return wire::as_data(hash_.data(), hash_.size()); }
  Sha256Digest hash_{};
};

TEST_F(Loading, LoadsAndUnloadsHoldUpNobody) {
  start();
  enter();
  put_image();
  driver().shut(kDriverLoad);
  const uint32_t loading = load();
  ASSERT_TRUE(eventually([] { return driver().saw(kDriverLoad); }));
  expect_answer(send(schema::op_cuCtxSynchronize), CUDA_SUCCESS);
  driver().open(kDriverLoad);
  expect_answer(loading, CUDA_SUCCESS);

  // Under an id that is in use: what was loaded goes again. (Without a daemon the image is brought
  // for each load, and is there as long as one needs it.)
  put_image();
  load();
  EXPECT_EQ(outcome(), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(driver().count("cuModuleUnload"), 1u);

  driver().shut("cuModuleUnload");
  const uint32_t unloading = unload();
  ASSERT_TRUE(eventually([] { return driver().count("cuModuleUnload") == 2; }));
  expect_silence();
  driver().open("cuModuleUnload");
  expect_answer(unloading, CUDA_SUCCESS);
  expect_answer(unload(), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(Loading, FewCompileAtATime) {
  start();
  enter();
  driver().shut(kDriverLoad);
  for (uint64_t serial = 1; serial <= Completion::kMaxCompilations + 2; ++serial) {
    put_image();
    load(serial);
  }
  const auto compiling = [] { return driver().count(kDriverLoad); };
  EXPECT_TRUE(eventually([&] { return compiling() >= Completion::kMaxCompilations; }));
  // Others do not wait for these.
  expect_answer(send(schema::op_cuCtxSynchronize), CUDA_SUCCESS);
  expect_silence();
  EXPECT_EQ(compiling(), Completion::kMaxCompilations);
  driver().open(kDriverLoad);
  for (size_t i = 0; i < Completion::kMaxCompilations + 2; ++i) EXPECT_EQ(outcome(), CUDA_SUCCESS);
}

TEST_F(Loading, CallsWithoutNumberThatWaitEndTheSession) {
  start();
  enter();
  put_image();
  load();
  ASSERT_EQ(outcome(), CUDA_SUCCESS);
  driver().shut("cuModuleUnload");
  // Each thread has one, and the last call is one too many.
  constexpr size_t kMost = 1u << 17;
  for (size_t i = 0; i < kMost + Completion::kMaxThreads + 2; ++i) unload();
  const Status status = end();
  driver().open("cuModuleUnload");
  EXPECT_EQ(status.code(), StatusCode::kProtocol);
  EXPECT_THAT(status.message(), ::testing::HasSubstr("131072 calls wait"));
}

TEST_F(Loading, NoLinkIsNoCrash) {
  const Sha256Digest hash{};
  start();
  enter();
  const uint32_t adding = send<schema::FgLinkAddParams>(schema::op_fgLinkAdd, [&](auto p) {
    p.setType(CU_JIT_INPUT_PTX);
    p.setHash(wire::as_data(hash.data(), hash.size()));
  });
  expect_answer(adding, CUDA_ERROR_INVALID_HANDLE);
  expect_answer(send<schema::FgLinkCompleteParams>(schema::op_fgLinkComplete, [](auto) {}),
                CUDA_ERROR_INVALID_HANDLE);
}

// As with a function that the driver loads only now, and cannot.
TEST_F(Loading, AnErrorOfTheFirstParameterIsNoFunctionWithoutParameters) {
  start();
  enter();
  put_image();
  load();
  ASSERT_EQ(outcome(), CUDA_SUCCESS);
  driver().fail("cuFuncGetParamInfo", CUDA_ERROR_NO_BINARY_FOR_GPU);
  expect_answer(function(), CUDA_ERROR_NO_BINARY_FOR_GPU);
  driver().fail("cuFuncGetParamInfo", CUDA_ERROR_INVALID_VALUE);
  expect_answer(function(), CUDA_SUCCESS);  // the id is still free
}

// The primary context has the same id when it is retained again.
TEST_F(Loading, WhatIsLoadedAfterItsContextEndedIsInNoOtherContext) {
  start();
  enter();
  put_image();
  driver().shut(kDriverLoad);
  load();
  ASSERT_TRUE(eventually([] { return driver().saw(kDriverLoad); }));
  expect_answer(send<schema::FgPrimaryReleaseParams>(schema::op_fgPrimaryRelease, [](auto) {}),
                CUDA_SUCCESS);
  enter();
  driver().open(kDriverLoad);
  EXPECT_EQ(outcome(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  EXPECT_FALSE(driver().saw("cuModuleUnload")) << "it went with its context";
  expect_answer(unload(), CUDA_ERROR_INVALID_HANDLE);
}

}  // namespace
}  // namespace fargpu::server
