// What ends with what in the client, and what comes too late for it. Calls are made through the
// exported functions, or as generated code makes them.
#include <cuda.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "client/entry/object_ends.h"
#include "client/entry/to_wire.h"
#include "client/object/context_storage.h"
#include "client/object/image_records.h"
#include "generated/schema/opcodes.h"
#include "tests/client/two_sessions.h"

namespace fargpu::client {
namespace {

TEST(Ends, WhatWasMadeFromALibraryEndsWithIt) {
  in_process([](Program&) {
    using Kind = rpc::HandleKind;
    Session& session = *Process::get().session(0);
    const uint64_t library = made(session, Kind::kLibrary);
    const uint64_t module = made(session, Kind::kModule, library);
    const uint64_t function = made(session, Kind::kFunction, module);
    const uint64_t kernel = made(session, Kind::kKernel, library);
    const uint64_t other = made(session, Kind::kKernel, made(session, Kind::kLibrary));
    ASSERT_TRUE(lives(session, function) && lives(session, kernel));
    ASSERT_EQ(cuLibraryUnload(reinterpret_cast<CUlibrary>(library)), CUDA_SUCCESS);
    for (const uint64_t gone : {library, module, function, kernel})
      EXPECT_FALSE(lives(session, gone)) << std::hex << gone;
    EXPECT_TRUE(lives(session, other));
  });
}

TEST(Ends, AContextTakesWhatLivesInItAndNothingElse) {
  in_process([](Program& program) {
    using Kind = rpc::HandleKind;
    Session& session = *Process::get().session(0);
    const uint64_t module = made(session, Kind::kModule);
    const uint64_t link = made(session, Kind::kLinkState);
    const uint64_t library = made(session, Kind::kLibrary);
    static_cast<LinkRecord*>(session.find(Kind::kLinkState, link))->image.resize(64);
    auto* const record = static_cast<LinkRecord*>(session.find(Kind::kLinkState, link));
    ASSERT_EQ(cuDevicePrimaryCtxReset(0), CUDA_SUCCESS);
    EXPECT_FALSE(lives(session, module));
    EXPECT_FALSE(lives(session, link));
    EXPECT_TRUE(record->image.empty()) << "the record stays for a while, its image does not";
    EXPECT_TRUE(lives(session, library));
    ASSERT_EQ(cuCtxSetCurrent(program.contexts[1]), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamSynchronize(program.streams[1]), CUDA_SUCCESS) << "another context";
  });
}

CUstream used_by_destructor = nullptr;
std::vector<CUresult> destroyed;

// What NVIDIA's runtime attaches to a context uses it once more before it ends.
TEST(Ends, AttachedValuesGoWhileTheirContextWorks) {
  in_process([](Program& program) {
    const auto attach = [](CUcontext handle) {
      interop::ContextStorage::get_instance().put(
          Process::get().tables()->contexts.find(handle), &used_by_destructor, nullptr,
          [](CUcontext, void*, void*) {
            destroyed.push_back(cuStreamSynchronize(used_by_destructor));
          });
    };
    used_by_destructor = program.streams[0];
    attach(program.contexts[0]);
    EXPECT_EQ(cuDevicePrimaryCtxReset(0), CUDA_SUCCESS);
    EXPECT_EQ(destroyed, std::vector{CUDA_SUCCESS});

    CUcontext created = nullptr;
    ASSERT_EQ(cuCtxCreate(&created, nullptr, 0, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamCreate(&used_by_destructor, CU_STREAM_DEFAULT), CUDA_SUCCESS);
    attach(created);
    EXPECT_EQ(cuCtxDestroy(created), CUDA_SUCCESS);
    EXPECT_EQ(destroyed, (std::vector{CUDA_SUCCESS, CUDA_SUCCESS}));

    ASSERT_EQ(cuCtxSetCurrent(program.contexts[1]), CUDA_SUCCESS);
    used_by_destructor = program.streams[1];
    attach(program.contexts[1]);
    ASSERT_EQ(cuDevicePrimaryCtxRetain(&program.contexts[1], 1), CUDA_SUCCESS);
    EXPECT_EQ(cuDevicePrimaryCtxRelease(1), CUDA_SUCCESS);
    EXPECT_EQ(destroyed.size(), 2u) << "it is still retained";
    EXPECT_EQ(cuDevicePrimaryCtxRelease(1), CUDA_SUCCESS);
    EXPECT_EQ(destroyed, (std::vector{CUDA_SUCCESS, CUDA_SUCCESS, CUDA_SUCCESS}));
    // Only once.
    ASSERT_EQ(cuDevicePrimaryCtxRetain(&program.contexts[1], 1), CUDA_SUCCESS);
    EXPECT_EQ(cuDevicePrimaryCtxReset(1), CUDA_SUCCESS);
    EXPECT_EQ(destroyed.size(), 3u);
  });
}

// A load takes its time, and another thread may end the context, or the library, meanwhile.
TEST(Ends, WhatIsMadeForSomethingThatHasEndedHasEnded) {
  in_process([](Program& program) {
    using Kind = rpc::HandleKind;
    Session& session = *Process::get().session(0);
    NewHandle module(session, Kind::kModule);
    ASSERT_EQ(cuDevicePrimaryCtxReset(0), CUDA_SUCCESS);
    CUcontext again = nullptr;
    ASSERT_EQ(cuDevicePrimaryCtxRetain(&again, 0), CUDA_SUCCESS);
    EXPECT_EQ(again, program.contexts[0]) << "the same record";
    module.created();
    EXPECT_FALSE(lives(session, module.id()));

    const uint64_t library = made(session, Kind::kLibrary);
    NewHandle kernel(session, Kind::kKernel);
    ASSERT_EQ(cuLibraryUnload(reinterpret_cast<CUlibrary>(library)), CUDA_SUCCESS);
    kernel.created(library);
    EXPECT_FALSE(lives(session, kernel.id()));
  });
}

// A call of `thread_call` whose answer comes when its context has been reset. The context is there
// again afterwards, and current. What the call returned.
CUresult answered_after_reset(Program& program, uint16_t opcode,
                              const std::function<CUresult()>& thread_call) {
  program.a->silent_opcode = opcode;
  CUresult result = CUDA_SUCCESS;
  std::thread thread([&] {
    EXPECT_EQ(cuCtxSetCurrent(program.contexts[0]), CUDA_SUCCESS);
    result = thread_call();
  });
  EXPECT_TRUE(soon([&] { return !program.a->contexts_of(opcode).empty(); }));
  program.a->silent_opcode = 0;
  EXPECT_EQ(cuDevicePrimaryCtxReset(0), CUDA_SUCCESS);
  CUcontext again = nullptr;
  EXPECT_EQ(cuDevicePrimaryCtxRetain(&again, 0), CUDA_SUCCESS);
  EXPECT_EQ(again, program.contexts[0]) << "the same record";
  program.a->answer_the_silent();
  thread.join();
  return result;
}

TEST(Ends, MemoryThatIsSharedWhenItsContextHasEndedIsNotShared) {
  Program::same_host = true;
  in_process([](Program& program) {
    void* late = nullptr;
    EXPECT_EQ(answered_after_reset(program, schema::op_fgHostShare,
                                   [&] { return cuMemHostAlloc(&late, 64, 0); }),
              CUDA_ERROR_CONTEXT_IS_DESTROYED);
    EXPECT_EQ(late, nullptr);
    // Nothing is left of it to give memory from.
    void* memory = nullptr;
    ASSERT_EQ(cuMemHostAlloc(&memory, 64, 0), CUDA_SUCCESS);
    EXPECT_EQ(program.a->contexts_of(schema::op_fgHostShare), (std::vector<uint16_t>{1, 1}));
    EXPECT_EQ(cuMemFreeHost(memory), CUDA_SUCCESS);
  });
  Program::same_host = false;
}

TEST(Ends, AMirrorThatIsMadeWhenItsContextHasEndedIsNone) {
  in_process([](Program& program) {
    int word = 0;
    CUdeviceptr seen = 0;
    ASSERT_EQ(cuMemHostRegister(&word, sizeof word, 0), CUDA_SUCCESS);
    EXPECT_EQ(answered_after_reset(program, schema::op_fgHostMap,
                                   [&] { return cuMemHostGetDevicePointer(&seen, &word, 0); }),
              CUDA_ERROR_CONTEXT_IS_DESTROYED);
    EXPECT_FALSE(Process::get().session(0)->observers.any(Observers::kMirrors));
    EXPECT_EQ(cuMemHostGetDevicePointer(&seen, &word, 0), CUDA_ERROR_INVALID_VALUE)
        << "nobody has registered it since";
    ASSERT_EQ(cuMemHostRegister(&word, sizeof word, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuMemHostGetDevicePointer(&seen, &word, 0), CUDA_SUCCESS);
    EXPECT_EQ(program.a->contexts_of(schema::op_fgHostMap), (std::vector<uint16_t>{1, 1}));
  });
}

TEST(Ends, SlotsOfAContextThatHasEndedAreNotThoseOfItsNextLife) {
  Program::same_host = true;
  in_process([](Program& program) {
    Session& session = *Process::get().session(0);
    Context& context = *Process::get().tables()->contexts.primary(0);
    ASSERT_EQ(cuDevicePrimaryCtxReset(0), CUDA_SUCCESS);
    EXPECT_EQ(session.staging_rings.get(context), nullptr);
    CUcontext again = nullptr;
    ASSERT_EQ(cuDevicePrimaryCtxRetain(&again, 0), CUDA_SUCCESS);
    EXPECT_NE(session.staging_rings.get(context), nullptr);
    EXPECT_EQ(program.a->contexts_of(schema::op_fgHostShare), std::vector<uint16_t>{1});
  });
  Program::same_host = false;
}

}  // namespace
}  // namespace fargpu::client
