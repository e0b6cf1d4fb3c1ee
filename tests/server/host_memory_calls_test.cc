// The client's host memory in the worker: calls about it whose contexts end meanwhile.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "generated/schema/context.capnp.h"
#include "generated/schema/internal.capnp.h"
#include "generated/schema/opcodes.h"
#include "generated/schema/stream.capnp.h"
#include "tests/server/executor_fixture.h"
#include "tests/transport/forwarding_transport.h"

namespace fargpu::server {
namespace {

constexpr size_t kPage = 4096;
constexpr uint16_t kCreated = 300;
constexpr uint64_t kStream = rpc::make_handle(rpc::HandleKind::kStream, 1);

FakeDriver& driver() { return FakeDriver::get(); }

class HostMemoryCalls : public ExecutorTest {
 protected:
  void begin() {
    wrap_ = [this](std::unique_ptr<transport::Transport> inner) {
      return std::make_unique<test::TransportThatPasses>(std::move(inner), passed_);
    };
    start();
    enter();
    driver().fail("cuMemHostRegister", CUDA_SUCCESS);
    // A hole in the address space.
    void* const hole = ::mmap(nullptr, kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ::munmap(hole, kPage);
    address_ = reinterpret_cast<uint64_t>(hole);
  }
  uint32_t share(uint64_t number) {
    Fd file(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    EXPECT_EQ(::ftruncate(file.get(), kPage), 0);
    EXPECT_EQ(::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
    EXPECT_TRUE(passed_.send(number, file.get()).ok());
    return send<schema::FgHostShareParams>(schema::op_fgHostShare, [&](auto p) {
      p.setAddress(address_);
      p.setBytes(kPage);
      p.setNumber(number);
    });
  }
  uint32_t unshare() {
    return send<schema::FgHostUnshareParams>(schema::op_fgHostUnshare,
                                             [&](auto p) { p.setAddress(address_); });
  }
  void release_primary() {
    expect_answer(send<schema::FgPrimaryReleaseParams>(schema::op_fgPrimaryRelease, [](auto) {}),
                  CUDA_SUCCESS);
  }
  bool is_mapped() const {
    return ::msync(reinterpret_cast<void*>(address_), kPage, MS_ASYNC) == 0;
  }

  test::PassedDescriptors passed_;
  uint64_t address_ = 0;
};

// The primary context has the same id when it is retained again.
TEST_F(HostMemoryCalls, WhatIsSharedAfterItsContextEndedIsNotKnown) {
  begin();
  driver().shut("cuMemHostRegister");
  const uint32_t sharing = share(1);
  ASSERT_TRUE(eventually([] { return driver().saw("cuMemHostRegister waits"); }));
  release_primary();
  enter();
  driver().open("cuMemHostRegister");
  expect_answer(sharing, CUDA_ERROR_CONTEXT_IS_DESTROYED);
  EXPECT_EQ(driver().count("cuMemHostUnregister"), 1u)
      << "the driver may have the next life's context under the same handle";
  expect_answer(unshare(), CUDA_ERROR_NOT_MAPPED);
  EXPECT_TRUE(eventually([this] { return !is_mapped(); }));
  // In the context that there is now.
  expect_answer(share(2), CUDA_SUCCESS);
  expect_answer(unshare(), CUDA_SUCCESS);
}

TEST_F(HostMemoryCalls, WhatIsSharedAfterItsContextEndedForGoodIsNotKnown) {
  begin();
  driver().shut("cuMemHostRegister");
  const uint32_t sharing = share(1);
  ASSERT_TRUE(eventually([] { return driver().saw("cuMemHostRegister waits"); }));
  release_primary();
  driver().open("cuMemHostRegister");
  expect_answer(sharing, CUDA_ERROR_CONTEXT_IS_DESTROYED);
  EXPECT_FALSE(driver().saw("cuMemHostUnregister")) << "it went with its context";
  EXPECT_TRUE(eventually([this] { return !is_mapped(); }));
}

// The request's context ends while the call waits for another one.
TEST_F(HostMemoryCalls, AMappingEndsInItsOwnContext) {
  begin();
  expect_answer(
      send<schema::FgContextCreateParams>(
          schema::op_fgContextCreate, [](auto p) { p.setContext(kCreated); }, wire::kWantReply, 0),
      CUDA_SUCCESS);
  expect_answer(send<schema::CuStreamCreateParams>(
                    schema::op_cuStreamCreate, [](auto p) { p.setPhStream(kStream); },
                    wire::kWantReply, kCreated),
                CUDA_SUCCESS);
  expect_answer(send<schema::FgHostMapParams>(
                    schema::op_fgHostMap,
                    [&](auto p) {
                      p.setAddress(address_);
                      p.setBytes(kPage);
                    },
                    wire::kWantReply, kCreated),
                CUDA_SUCCESS);
  driver().shut("created stream");
  const uint32_t unmapping = send<schema::FgHostUnmapParams>(
      schema::op_fgHostUnmap, [&](auto p) { p.setAddress(address_); });
  release_primary();
  driver().open("created stream");
  expect_answer(unmapping, CUDA_SUCCESS);
  EXPECT_EQ(driver().count("cuMemHostUnregister"), 1u);
}

}  // namespace
}  // namespace fargpu::server
