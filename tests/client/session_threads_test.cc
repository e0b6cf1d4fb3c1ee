// The threads of a session that run functions of the application and send bytes of copies, with a
// worker behind a loopback transport.
#include <cuda.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <string>
#include <string_view>

#include "common/copy/copy.h"
#include "common/wire/control.h"
#include "generated/schema/control.capnp.h"
#include "generated/schema/internal.capnp.h"
#include "generated/schema/opcodes.h"
#include "tests/client/two_sessions.h"

namespace fargpu::client {
namespace {

void say_due(rpc::Responder& responder, uint64_t id) {
  rpc::Responder::Frame frame(responder, wire::kHostCall, 64);
  frame.init<schema::HostCall>().setId(id);
  EXPECT_TRUE(frame.send(0).ok());
}

TEST(SessionThreads, AFunctionRunsWhenItIsDueAndTheWorkerHearsOfItsEnd) {
  in_process([](Program& program) {
    std::atomic<uint64_t> put{0}, ended{0};
    program.a->on(schema::op_fgHostCall, [&](rpc::Responder& responder, const auto& request) {
      wire::SegmentReader body(request.body);
      put = body.getRoot<schema::FgHostCallParams>().getId();
      say_due(responder, put);
    });
    program.a->on(wire::kHostCallDone, [&](rpc::Responder&, const auto& request) {
      wire::SegmentReader body(request.body);
      ended = body.getRoot<schema::HostCallDone>().getId();
    });
    static std::atomic<CUresult> in_function{CUDA_SUCCESS};
    const auto function = [](void*) { in_function = cuCtxSynchronize(); };
    ASSERT_EQ(cuLaunchHostFunc(program.streams[0], function, nullptr), CUDA_SUCCESS);
    const Session& session = *Process::get().session(0);
    EXPECT_TRUE(soon([&] { return put != 0 && ended == put; }));
    EXPECT_TRUE(soon([&] { return !session.host_calls.outstanding(); }));
    EXPECT_EQ(in_function, CUDA_ERROR_NOT_PERMITTED);
  });
}

TEST(SessionThreads, BytesOfCopiesThatFollowTheirStreamGoWhenTheWorkerAsks) {
  in_process([](Program& program) {
    constexpr size_t kBytes = 100'000;  // more than may be amended
    static constexpr std::string_view kWritten = "by the function", kDelivered = "by the device";
    void* memory = nullptr;
    CUdeviceptr device = 0;
    ASSERT_EQ(cuMemAllocHost(&memory, kBytes), CUDA_SUCCESS);
    ASSERT_EQ(cuMemAlloc(&device, kBytes), CUDA_SUCCESS);

    std::mutex mutex;
    uint64_t function = 0, copy = 0;
    std::string fetched;
    program.a->on(schema::op_fgHostCall, [&](rpc::Responder&, const auto& request) {
      wire::SegmentReader body(request.body);
      const std::lock_guard lock(mutex);
      function = body.getRoot<schema::FgHostCallParams>().getId();
    });
    // The stream comes to the function when the copy is behind it.
    program.a->on(schema::op_fgCopy, [&](rpc::Responder& responder, const auto& request) {
      wire::SegmentReader body(request.body);
      const auto words = body.getRoot<schema::FgCopyParams>().getCopy();
      const std::lock_guard lock(mutex);
      std::memcpy(&copy, words.begin() + 5 * sizeof(uint64_t), sizeof copy);
      if (words[1] == static_cast<uint8_t>(copy::Location::Kind::kDevice))
        return say_due(responder, function);
      rpc::Responder::Frame frame(responder, wire::kDelivery, 128);
      frame.init<schema::Delivery>().setCopy(copy);
      std::string bytes(kDelivered);
      bytes.resize(kBytes);
      const std::span<const std::byte> bulk[] = {std::as_bytes(std::span(bytes))};
      EXPECT_TRUE(frame.send(0, bulk).ok());
    });
    program.a->on(wire::kHostCallDone, [&](rpc::Responder& responder, const auto&) {
      const std::lock_guard lock(mutex);
      rpc::Responder::Frame frame(responder, wire::kFetch, 128);
      auto fetch = frame.init<schema::Fetch>();
      fetch.setCopy(copy);
      fetch.setBytes(kBytes);
      EXPECT_TRUE(frame.send(0).ok());
    });
    program.a->on(schema::op_fgFetched, [&](rpc::Responder&, const auto& request) {
      const std::lock_guard lock(mutex);
      fetched.assign(reinterpret_cast<const char*>(request.bulk.data()), request.bulk.size());
    });

    static constexpr auto kWrite = [](void* to) {
      std::memcpy(to, kWritten.data(), kWritten.size());
    };
    ASSERT_EQ(cuLaunchHostFunc(program.streams[0], kWrite, memory), CUDA_SUCCESS);
    ASSERT_EQ(cuMemcpyHtoDAsync(device, memory, kBytes, program.streams[0]), CUDA_SUCCESS);
    const Session& session = *Process::get().session(0);
    EXPECT_TRUE(soon([&] { return !session.observers.any(Observers::kCopies); }));
    EXPECT_TRUE(soon([&] {
      const std::lock_guard lock(mutex);
      return fetched.size() == kBytes;
    }));
    EXPECT_TRUE(fetched.starts_with(kWritten)) << fetched;
    ASSERT_EQ(cuMemcpyDtoHAsync(memory, device, kBytes, program.streams[0]), CUDA_SUCCESS);
    EXPECT_TRUE(soon([&] { return !session.observers.any(Observers::kCopies); }));
    EXPECT_EQ(std::string_view(static_cast<char*>(memory), kDelivered.size()), kDelivered);
    EXPECT_FALSE(session.host_calls.outstanding());
  });
}

}  // namespace
}  // namespace fargpu::client
