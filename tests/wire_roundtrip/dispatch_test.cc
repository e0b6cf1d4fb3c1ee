// Generated dispatch: whole requests are executed and answered, truncated ones end the session,
// refusals of the worker are replies.
#include "generated/server/dispatch.h"

#include <gtest/gtest.h>

#include "generated/schema/memory.capnp.h"
#include "generated/schema/opcodes.h"
#include "tests/wire_roundtrip/fake_worker.h"
#include "tests/wire_roundtrip/roundtrip.h"

namespace fargpu::wiretest {
namespace {

Status run(FakeWorker& worker, uint16_t opcode, std::span<const std::byte> body,
           uint16_t flags = wire::kWantReply) {
  wire::FrameHeader header;
  header.opcode = opcode;
  header.flags = flags;
  header.context = 1;
  header.sequence = 7;
  header.body_bytes = static_cast<uint32_t>(body.size());
  const server::DispatchEntry* entry = server::find_dispatch(opcode);
  if (entry == nullptr || entry->handler == nullptr)
    return Status(StatusCode::kProtocol, "no handler");
  return entry->handler(worker, server::Request{header, body, {}});
}

TEST(Dispatch, WholeRequestsAreAnswered) {
  const auto cases = dispatch_cases();
  EXPECT_GT(cases.size(), 50u);
  for (const DispatchCase& c : cases) {
    FakeWorker worker;
    const Status status = run(worker, c.opcode, c.body);
    EXPECT_TRUE(status.ok()) << c.name << ": " << status.message();
    EXPECT_EQ(worker.transport.frames, 1) << c.name;
    EXPECT_EQ(worker.transport.last.result, CUDA_SUCCESS) << c.name;
    EXPECT_EQ(worker.transport.last.sequence, 7u) << c.name;
  }
}

// A call with one stream orders its work where a closed gate keeps it, and nowhere else.
TEST(Dispatch, CallsThatSubmitAreThoseThatAGateKeeps) {
  size_t submitting = 0;
  for (const DispatchCase& c : dispatch_cases()) {
    FakeWorker worker;
    EXPECT_TRUE(run(worker, c.opcode, c.body).ok()) << c.name;
    const bool one_stream = c.opcode != schema::op_cuCtxWaitEvent;
    const bool submits = server::find_dispatch(c.opcode)->submits;
    EXPECT_EQ(worker.submitted, submits && one_stream ? 1 : 0) << c.name;
    submitting += submits;
  }
  EXPECT_GE(submitting, 10u);
  for (const uint16_t asks :
       {schema::op_cuStreamGetFlags, schema::op_cuStreamGetPriority, schema::op_cuStreamGetId,
        schema::op_cuStreamQuery, schema::op_cuStreamGetAttribute, schema::op_cuStreamSynchronize})
    EXPECT_FALSE(server::find_dispatch(asks)->submits);
  for (const uint16_t works :
       {schema::op_fgLaunch, schema::op_fgLaunchMultiDevice, schema::op_fgGraphLaunch,
        schema::op_fgCopy, schema::op_fgCopyWait, schema::op_fgHostCall, schema::op_cuCtxWaitEvent})
    EXPECT_TRUE(server::find_dispatch(works)->submits);
}

TEST(Dispatch, TruncatedRequestsEndTheSession) {
  for (const DispatchCase& c : dispatch_cases()) {
    for (size_t bytes = 0; bytes < c.body.size(); bytes += 8) {
      FakeWorker worker;
      const std::vector<std::byte> part(c.body.begin(),
                                        c.body.begin() + static_cast<std::ptrdiff_t>(bytes));
      const Status status = run(worker, c.opcode, part);
      EXPECT_EQ(status.code(), StatusCode::kProtocol) << c.name << " truncated to " << bytes;
      EXPECT_EQ(worker.transport.frames, 0) << c.name << " truncated to " << bytes;
    }
  }
}

TEST(Dispatch, WrongDataSizesEndTheSession) {
  for (const DispatchCase& c : dispatch_cases()) {
    // Whatever one flipped bit of a pointer word does, it is an answer or a broken protocol, never
    // a crash.
    for (size_t bit = 0; bit < c.body.size() * 8; ++bit) {
      std::vector<std::byte> damaged = c.body;
      damaged[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
      FakeWorker worker;
      const Status status = run(worker, c.opcode, damaged);
      EXPECT_TRUE(status.ok() || status.code() == StatusCode::kProtocol)
          << c.name << " bit " << bit;
    }
  }
}

TEST(Dispatch, UnknownHandlesAreReplies) {
  FakeWorker worker;
  worker.find_result = CUDA_ERROR_INVALID_HANDLE;
  for (const DispatchCase& c : dispatch_cases()) {
    if (c.opcode != schema::op_cuEventRecord) continue;
    EXPECT_TRUE(run(worker, c.opcode, c.body).ok());
    EXPECT_EQ(worker.transport.last.result, CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(worker.transport.last.flags, wire::kReply);
    EXPECT_TRUE(run(worker, c.opcode, c.body, 0).ok());
    EXPECT_EQ(worker.transport.last.flags, wire::kReply | wire::kAsyncError);
    EXPECT_EQ(worker.transport.frames, 2);
  }
}

std::vector<std::byte> alloc_body(uint64_t bytes) {
  return build<schema::CuMemAllocV2Params>(0, [&](auto m) { m.setBytesize(bytes); });
}

TEST(Dispatch, AllocationsAreChargedAndRefunded) {
  FakeWorker worker;
  EXPECT_TRUE(run(worker, schema::op_cuMemAlloc_v2, alloc_body(1000)).ok());
  EXPECT_EQ(worker.charged, 1000u);
  EXPECT_EQ(worker.remembered, 1);

  worker.table.cuMemAlloc_v2 = [](CUdeviceptr*, size_t) { return CUDA_ERROR_OUT_OF_MEMORY; };
  EXPECT_TRUE(run(worker, schema::op_cuMemAlloc_v2, alloc_body(500)).ok());
  EXPECT_EQ(worker.transport.last.result, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(worker.charged, 1000u);
  EXPECT_EQ(worker.remembered, 1);

  static int driver_calls;
  driver_calls = 0;
  worker.table.cuMemAlloc_v2 = [](CUdeviceptr*, size_t) { return ++driver_calls, CUDA_SUCCESS; };
  worker.charge_result = CUDA_ERROR_OUT_OF_MEMORY;
  EXPECT_TRUE(run(worker, schema::op_cuMemAlloc_v2, alloc_body(500)).ok());
  EXPECT_EQ(worker.transport.last.result, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(driver_calls, 0);
}

TEST(Dispatch, MissingDriverFunctionIsNotSupported) {
  FakeWorker worker;
  worker.table.cuMemAlloc_v2 = nullptr;
  EXPECT_TRUE(run(worker, schema::op_cuMemAlloc_v2, alloc_body(8)).ok());
  EXPECT_EQ(worker.transport.last.result, CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(server::missing_opcodes(worker.table), std::vector<uint16_t>{schema::op_cuMemAlloc_v2});
}

TEST(Dispatch, CreatedObjectUnderAUsedIdEndsTheSession) {
  FakeWorker worker;
  worker.add_result = CUDA_ERROR_INVALID_VALUE;
  for (const DispatchCase& c : dispatch_cases()) {
    if (c.opcode == schema::op_cuStreamCreate) {
      EXPECT_EQ(run(worker, c.opcode, c.body).code(), StatusCode::kProtocol);
    }
  }
}

TEST(Dispatch, CreatedObjectThatFindsTheTableFullIsAnAnswer) {
  FakeWorker worker;
  worker.add_result = CUDA_ERROR_OUT_OF_MEMORY;
  for (const DispatchCase& c : dispatch_cases()) {
    if (c.opcode == schema::op_cuStreamCreate) {
      EXPECT_TRUE(run(worker, c.opcode, c.body).ok());
      EXPECT_EQ(worker.transport.last.result, CUDA_ERROR_OUT_OF_MEMORY);
    }
  }
}

TEST(Dispatch, TableKnowsTheRegistryOnly) {
  EXPECT_EQ(server::find_dispatch(0), nullptr);
  EXPECT_EQ(server::find_dispatch(schema::kFirstOpcode - 1), nullptr);
  EXPECT_EQ(server::find_dispatch(schema::kOpcodeEnd), nullptr);
  const server::DispatchEntry* local = server::find_dispatch(schema::op_cuDeviceGetCount);
  ASSERT_NE(local, nullptr);
  EXPECT_EQ(local->handler, nullptr);
  EXPECT_STREQ(server::find_dispatch(schema::op_cuMemAlloc_v2)->name, "cuMemAlloc_v2");
  EXPECT_STREQ(schema::opcode_name(schema::op_cuMemAlloc_v2), "cuMemAlloc_v2");
  EXPECT_STREQ(schema::opcode_name(1), "?");
}

}  // namespace
}  // namespace fargpu::wiretest
