// Which of two sessions a call goes to, what the other one's handles are there, and what is left
// when one is lost.
#include <cuda.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "client/entry/call_target.h"
#include "client/entry/to_wire.h"
#include "client/object/image_records.h"
#include "generated/schema/opcodes.h"
#include "tests/client/two_sessions.h"

namespace fargpu::client {
namespace {

unsigned session_in(const void* handle) {
  return rpc::handle_session(reinterpret_cast<uint64_t>(handle));
}

TEST(Sessions, DevicesOfAllAreTheProcesss) {
  in_process([](Program& program) {
    int count = 0, version = 0;
    EXPECT_EQ(cuDeviceGetCount(&count), CUDA_SUCCESS);
    EXPECT_EQ(count, 2);
    EXPECT_EQ(cuDriverGetVersion(&version), CUDA_SUCCESS);
    EXPECT_EQ(version, 12080) << "the older driver's";
    CUdevice device = -1;
    EXPECT_EQ(cuDeviceGet(&device, 2), CUDA_ERROR_INVALID_DEVICE);
    EXPECT_EQ(cuCtxSetCurrent(program.contexts[1]), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxGetDevice(&device), CUDA_SUCCESS);
    EXPECT_EQ(device, 1);
  });
}

TEST(Sessions, TheirNumberIsInTheIds) {
  in_process([](Program& program) {
    for (unsigned number : {0u, 1u}) {
      EXPECT_EQ(session_in(program.contexts[number]), number);
      EXPECT_EQ(session_in(program.streams[number]), number);
      EXPECT_EQ(session_in(program.events[number]), number);
    }
  });
}

TEST(Sessions, CallsGoWhereTheirStreamIs) {
  in_process([](Program& program) {
    ASSERT_EQ(cuEventRecord(program.events[1], program.streams[1]), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamSynchronize(program.streams[1]), CUDA_SUCCESS);
    // In the context of the stream, which has the same id on the wire as the current one.
    EXPECT_EQ(program.b->contexts_of(schema::op_cuEventRecord), std::vector<uint16_t>{1});
    EXPECT_EQ(program.b->contexts_of(schema::op_cuStreamSynchronize), std::vector<uint16_t>{1});
    EXPECT_TRUE(program.a->contexts_of(schema::op_cuEventRecord).empty());
    CUcontext current = nullptr;
    EXPECT_EQ(cuCtxGetCurrent(&current), CUDA_SUCCESS);
    EXPECT_EQ(current, program.contexts[0]) << "it is current again";
    // A default stream is the current context's.
    ASSERT_EQ(cuStreamSynchronize(nullptr), CUDA_SUCCESS);
    EXPECT_EQ(program.a->contexts_of(schema::op_cuStreamSynchronize), std::vector<uint16_t>{1});
    // Without a current context, the stream's counts.
    EXPECT_EQ(cuCtxSetCurrent(nullptr), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamSynchronize(program.streams[1]), CUDA_SUCCESS);
    EXPECT_EQ(program.b->contexts_of(schema::op_cuStreamSynchronize),
              (std::vector<uint16_t>{1, 1}));
  });
}

TEST(Sessions, HandlesOfAnotherOneAreWrongOnes) {
  in_process([](Program& program) {
    EXPECT_EQ(cuEventRecord(program.events[1], program.streams[0]), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(cuEventRecord(program.events[1], nullptr), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(cuCtxEnablePeerAccess(program.contexts[1], 0), CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
    EXPECT_EQ(cuCtxDisablePeerAccess(program.contexts[1]), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    ASSERT_EQ(cuStreamSynchronize(program.streams[0]), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamSynchronize(program.streams[1]), CUDA_SUCCESS);
    for (const FakeWorker* worker : {program.a, program.b}) {
      EXPECT_TRUE(worker->contexts_of(schema::op_cuEventRecord).empty());
      EXPECT_TRUE(worker->contexts_of(schema::op_cuStreamWaitEvent).empty());
      EXPECT_TRUE(worker->contexts_of(schema::op_cuCtxEnablePeerAccess).empty());
    }
  });
}

TEST(Sessions, DevicesOfTwoHaveNoPeerAccess) {
  in_process([](Program& program) {
    int can = -1, value = -1;
    EXPECT_EQ(cuDeviceCanAccessPeer(&can, 0, 1), CUDA_SUCCESS);
    EXPECT_EQ(can, 0);
    EXPECT_EQ(cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 1, 0),
              CUDA_SUCCESS);
    EXPECT_EQ(value, 0);
    EXPECT_EQ(cuDeviceGetP2PAttribute(&value, static_cast<CUdevice_P2PAttribute>(0), 1, 0),
              CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuDeviceCanAccessPeer(&can, 0, 2), CUDA_ERROR_INVALID_DEVICE);
    EXPECT_TRUE(program.a->contexts_of(schema::op_cuDeviceCanAccessPeer).empty());
    EXPECT_TRUE(program.b->contexts_of(schema::op_cuDeviceCanAccessPeer).empty());
  });
}

// b gives addresses that a has given out, and goes on behind them.
TEST(Sessions, MemoryAtAddressesOfAnotherServerIsMadeAgain) {
  in_process([](Program& program) {
    constexpr size_t kBytes = 4096;
    CUdeviceptr of_a = 0, of_b = 0;
    program.b->memory = kMemory[0];
    program.b->step = kBytes / 2;
    ASSERT_EQ(cuMemAlloc(&of_a, kBytes), CUDA_SUCCESS);
    ASSERT_EQ(cuCtxSetCurrent(program.contexts[1]), CUDA_SUCCESS);
    ASSERT_EQ(cuMemAlloc(&of_b, kBytes), CUDA_SUCCESS);
    EXPECT_EQ(of_b, kMemory[0] + kBytes) << "beside the memory of a, after two that overlap it";
    EXPECT_EQ(program.b->contexts_of(schema::op_cuMemFree_v2).size(), 2u);
    int device = -1;
    for (const auto& [address, owner] : {std::pair{of_a, 0}, std::pair{of_b, 1}}) {
      EXPECT_EQ(cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address),
                CUDA_SUCCESS);
      EXPECT_EQ(device, owner);
    }
  });
}

TEST(Sessions, MemoryThatAlwaysCollidesIsRefused) {
  in_process([](Program& program) {
    constexpr size_t kBytes = 4096;
    CUdeviceptr of_a = 0, of_b = 0;
    program.b->memory = kMemory[0];
    ASSERT_EQ(cuMemAlloc(&of_a, kBytes), CUDA_SUCCESS);
    ASSERT_EQ(cuCtxSetCurrent(program.contexts[1]), CUDA_SUCCESS);
    EXPECT_EQ(cuMemAlloc(&of_b, kBytes), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(cuMemAllocAsync(&of_b, kBytes, program.streams[1]), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(program.b->contexts_of(schema::op_cuMemAlloc_v2).size(), 8u);
    EXPECT_EQ(program.b->contexts_of(schema::op_cuMemFree_v2).size(), 8u);
    ASSERT_EQ(cuStreamSynchronize(program.streams[1]), CUDA_SUCCESS);
    EXPECT_EQ(program.b->contexts_of(schema::op_cuMemFreeAsync).size(), 8u);
    int device = -1;
    EXPECT_EQ(cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, of_a),
              CUDA_SUCCESS);
    EXPECT_EQ(device, 0) << "it is still a's";
    EXPECT_EQ(cuCtxSetCurrent(program.contexts[0]), CUDA_SUCCESS);
    EXPECT_EQ(cuMemFree(of_a), CUDA_SUCCESS);
    EXPECT_TRUE(program.b->contexts_of(schema::op_cuMemFree_v2).size() == 8u);
    // Now nobody else has the address.
    EXPECT_EQ(cuCtxSetCurrent(program.contexts[1]), CUDA_SUCCESS);
    EXPECT_EQ(cuMemAlloc(&of_b, kBytes), CUDA_SUCCESS);
  });
}

TEST(Sessions, MemoryIsOfItsSession) {
  in_process([](Program& program) {
    constexpr size_t kBytes = 4096;
    CUdeviceptr of_a = 0, of_b = 0;
    ASSERT_EQ(cuMemAlloc(&of_a, kBytes), CUDA_SUCCESS);
    ASSERT_EQ(cuCtxSetCurrent(program.contexts[1]), CUDA_SUCCESS);
    ASSERT_EQ(cuMemAlloc(&of_b, kBytes), CUDA_SUCCESS);
    ASSERT_EQ(cuCtxSetCurrent(program.contexts[0]), CUDA_SUCCESS);
    ASSERT_EQ(of_b, kMemory[1]);
    int device = -1;
    EXPECT_EQ(cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, of_b),
              CUDA_SUCCESS);
    EXPECT_EQ(device, 1);
    // Calls without a stream go where the memory is.
    const char bytes[16] = "some bytes";
    EXPECT_EQ(cuMemcpyHtoD(of_b, bytes, sizeof bytes), CUDA_SUCCESS);
    EXPECT_EQ(cuMemsetD8(of_b, 0, kBytes), CUDA_SUCCESS);
    // Streams of the other one are refused, and copies between the two beyond the end of memory.
    EXPECT_EQ(cuMemcpyDtoD(of_b, of_a, kBytes + 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemcpy(of_a, of_b + kBytes - 1, 2), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemsetD8Async(of_b, 0, kBytes, program.streams[0]), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuMemFree(of_b), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamSynchronize(program.streams[0]), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamSynchronize(program.streams[1]), CUDA_SUCCESS);
    for (const uint16_t opcode :
         {schema::op_fgCopy, schema::op_cuMemsetD8Async, schema::op_cuMemFree_v2}) {
      EXPECT_EQ(program.b->contexts_of(opcode), std::vector<uint16_t>{1});
      EXPECT_TRUE(program.a->contexts_of(opcode).empty());
    }
    for (const FakeWorker* worker : {program.a, program.b})
      EXPECT_TRUE(worker->contexts_of(schema::op_cuMemcpyDtoDAsync_v2).empty());
  });
}

// It belongs to no context, but a copy needs one.
TEST(Sessions, MemoryOfAPoolIsOfItsSession) {
  in_process([](Program& program) {
    constexpr size_t kBytes = 4096;
    CUdeviceptr of_b = 0;
    ASSERT_EQ(cuMemAllocAsync(&of_b, kBytes, program.streams[1]), CUDA_SUCCESS);
    const char bytes[16] = "some bytes";
    EXPECT_EQ(cuMemcpyHtoD(of_b, bytes, sizeof bytes), CUDA_SUCCESS);
    EXPECT_EQ(cuMemFreeAsync(of_b, program.streams[0]), CUDA_ERROR_INVALID_VALUE);
    int device = -1;
    EXPECT_EQ(cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, of_b),
              CUDA_SUCCESS)
        << "it is still there";
    EXPECT_EQ(device, 1);
    EXPECT_EQ(cuMemFreeAsync(of_b, program.streams[1]), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamSynchronize(program.streams[0]), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamSynchronize(program.streams[1]), CUDA_SUCCESS);
    EXPECT_TRUE(program.a->contexts_of(schema::op_cuMemFreeAsync).empty());
    for (const uint16_t opcode : {schema::op_fgCopy, schema::op_cuMemFreeAsync})
      EXPECT_EQ(program.b->contexts_of(opcode), std::vector<uint16_t>{1});
  });
}

// A pointer in host memory of b that device code sees leads to hidden memory of b.
TEST(Sessions, ASynchronisationExposesMemoryInItsOwnSession) {
  in_process([](Program& program) {
    constexpr size_t kBytes = 4096;
    void *seen = nullptr, *hidden = nullptr;
    CUdeviceptr device_pointer = 0;
    ASSERT_EQ(cuCtxSetCurrent(program.contexts[1]), CUDA_SUCCESS);
    ASSERT_EQ(cuMemHostAlloc(&seen, kBytes, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuMemHostAlloc(&hidden, kBytes, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuMemHostGetDevicePointer(&device_pointer, seen, 0), CUDA_SUCCESS);
    *static_cast<void**>(seen) = hidden;
    CUcontext of_a = nullptr;
    ASSERT_EQ(cuCtxCreate(&of_a, nullptr, 0, 0), CUDA_SUCCESS);
    (void)cuCtxSynchronize_v2(program.contexts[1]);  // the worker here has no pages to give
    EXPECT_EQ(program.b->contexts_of(schema::op_fgHostMap), (std::vector<uint16_t>{1, 1}));
    EXPECT_TRUE(program.a->contexts_of(schema::op_fgHostMap).empty());
  });
}

// The stream of a waits for a word that is written when b has answered; the caller does not wait.
TEST(Sessions, AStreamWaitsForAnEventOfAnotherServer) {
  in_process([](Program& program) {
    program.b->silent_opcode = schema::op_cuEventSynchronize;
    ASSERT_EQ(cuEventRecord(program.events[1], program.streams[1]), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamWaitEvent(program.streams[0], program.events[1], 0), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamSynchronize(program.streams[0]), CUDA_SUCCESS) << "the worker is no real one";
    EXPECT_EQ(program.a->contexts_of(schema::op_cuStreamWaitValue32_v2), std::vector<uint16_t>{1});
    ASSERT_TRUE(
        soon([&] { return !program.b->contexts_of(schema::op_cuEventSynchronize).empty(); }));
    EXPECT_EQ(program.b->contexts_of(schema::op_cuStreamWaitEvent), std::vector<uint16_t>{1});
    // One of them has made the word.
    EXPECT_EQ(program.a->contexts_of(schema::op_cuStreamWriteValue32_v2).size(), 1u);
    program.b->answer_the_silent();
    EXPECT_TRUE(soon(
        [&] { return program.a->contexts_of(schema::op_cuStreamWriteValue32_v2).size() == 2; }));
    EXPECT_EQ(cuStreamSynchronize(program.streams[0]), CUDA_SUCCESS);
  });
}

// The driver does not see them.
TEST(Sessions, FlagsOfAWaitForAnEventOfAnotherServerAreJudged) {
  in_process([](Program& program) {
    EXPECT_EQ(cuStreamWaitEvent(program.streams[0], program.events[1], 7),
              CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuStreamWaitEvent(program.streams[0], program.events[1], CU_EVENT_WAIT_EXTERNAL),
              CUDA_ERROR_ILLEGAL_STATE);
    ASSERT_EQ(cuStreamSynchronize(program.streams[0]), CUDA_SUCCESS);
    EXPECT_TRUE(program.a->contexts_of(schema::op_cuStreamWaitValue32_v2).empty());
  });
}

// Nothing stays of a wait that could not be put into the stream.
TEST(Sessions, AWaitForAnEventThatIsRefusedLeavesNothing) {
  Program::unknown = schema::op_cuStreamWaitValue32_v2;
  in_process([](Program& program) {
    EXPECT_EQ(cuStreamWaitEvent(program.streams[0], program.events[1], 0),
              CUDA_ERROR_NOT_SUPPORTED);
    ASSERT_EQ(cuStreamSynchronize(program.streams[1]), CUDA_SUCCESS);
    EXPECT_EQ(program.b->contexts_of(schema::op_cuEventDestroy_v2), std::vector<uint16_t>{1});
    EXPECT_EQ(Process::get().session(0)->observers.all(), 0u);
    EXPECT_EQ(cuDevicePrimaryCtxReset(1), CUDA_SUCCESS);
  });
  Program::unknown = 0;
}

// Its default stream is not that of the memory's context.
TEST(Sessions, AMemsetOfAnotherServersMemoryIsInTheCallersOrder) {
  in_process([](Program& program) {
    CUdeviceptr of_b = 0;
    ASSERT_EQ(cuCtxSetCurrent(program.contexts[1]), CUDA_SUCCESS);
    ASSERT_EQ(cuMemAlloc(&of_b, 4096), CUDA_SUCCESS);
    ASSERT_EQ(cuMemsetD8Async(of_b, 0, 4096, nullptr), CUDA_SUCCESS);
    EXPECT_TRUE(program.b->contexts_of(schema::op_cuStreamSynchronize).empty());
    ASSERT_EQ(cuCtxSetCurrent(program.contexts[0]), CUDA_SUCCESS);
    ASSERT_EQ(cuMemsetD8Async(of_b, 0, 4096, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(program.a->contexts_of(schema::op_cuStreamSynchronize), std::vector<uint16_t>{1});
    EXPECT_EQ(program.b->contexts_of(schema::op_cuMemsetD8Async), (std::vector<uint16_t>{1, 1}));
    EXPECT_EQ(program.b->contexts_of(schema::op_cuStreamSynchronize), std::vector<uint16_t>{1});
  });
}

// A server sees nothing of a stream of another one that waits for it.
TEST(Sessions, AContextEndsBehindWhatWaitsForIt) {
  in_process([](Program& program) {
    CUcontext created = nullptr;
    CUevent event = nullptr;
    ASSERT_EQ(cuCtxCreate(&created, nullptr, 0, 1), CUDA_SUCCESS);
    ASSERT_EQ(cuEventCreate(&event, CU_EVENT_DEFAULT), CUDA_SUCCESS);
    program.b->silent_opcode = schema::op_cuEventSynchronize;
    ASSERT_EQ(cuStreamWaitEvent(program.streams[0], event, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamWaitEvent(program.streams[0], program.events[1], 0), CUDA_SUCCESS);
    const auto asked = [&] { return program.b->contexts_of(schema::op_cuEventSynchronize).size(); };
    ASSERT_TRUE(soon([&] { return asked() == 1; }));
    std::thread destroys([&] { EXPECT_EQ(cuCtxDestroy(created), CUDA_SUCCESS); });
    std::thread resets([&] { EXPECT_EQ(cuDevicePrimaryCtxReset(1), CUDA_SUCCESS); });
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    EXPECT_TRUE(program.b->contexts_of(schema::op_fgContextDestroy).empty());
    EXPECT_TRUE(program.b->contexts_of(schema::op_fgPrimaryRelease).empty());
    program.b->silent_opcode = 0;
    program.b->answer_the_silent();
    destroys.join();
    resets.join();
    EXPECT_EQ(program.b->contexts_of(schema::op_fgContextDestroy), std::vector<uint16_t>{0});
    EXPECT_EQ(program.b->contexts_of(schema::op_fgPrimaryRelease), std::vector<uint16_t>{0});
  });
}

// Its stream goes on, and the program hears of it once.
// A copy between servers is under way whose source is a variable of a module.
TEST(Sessions, AModuleGoesBehindTheCopiesOfItsVariables) {
  in_process([](Program& program) {
    constexpr size_t kBytes = 4096;
    CUdeviceptr of_a = 0;
    ASSERT_EQ(cuMemAlloc(&of_a, kBytes), CUDA_SUCCESS);
    ASSERT_EQ(cuCtxSetCurrent(program.contexts[1]), CUDA_SUCCESS);
    Tables& tables = *Process::get().tables();
    Session& session = *Process::get().session(1);
    const uint64_t module = made(session, rpc::HandleKind::kModule);
    ASSERT_TRUE(tables.device_memory.insert({.base = kMemory[1],
                                             .bytes = kBytes,
                                             .kind = MemoryKind::kGlobal,
                                             .session = &session,
                                             .context = tables.contexts.primary(1),
                                             .device = 1,
                                             .owner = module}));
    program.b->silent_opcode = schema::op_fgCopyWait;
    ASSERT_EQ(cuCtxSetCurrent(program.contexts[0]), CUDA_SUCCESS);
    ASSERT_EQ(cuMemcpyDtoDAsync(of_a, kMemory[1], 64, program.streams[0]), CUDA_SUCCESS);
    ASSERT_TRUE(soon([&] { return !program.b->contexts_of(schema::op_fgCopyWait).empty(); }));
    const auto unloads = [&] { return program.b->contexts_of(schema::op_cuModuleUnload).size(); };
    std::thread unloading([&] {
      EXPECT_EQ(cuCtxSetCurrent(program.contexts[1]), CUDA_SUCCESS);
      EXPECT_EQ(cuModuleUnload(reinterpret_cast<CUmodule>(module)), CUDA_SUCCESS);
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    EXPECT_EQ(unloads(), 0u);
    program.b->silent_opcode = 0;
    program.b->answer_the_silent();
    unloading.join();
    EXPECT_EQ(unloads(), 1u);
  });
}

TEST(Sessions, AWaitForAServerThatIsLostEnds) {
  in_process([](Program& program) {
    program.b->silent_opcode = schema::op_cuEventSynchronize;
    ASSERT_EQ(cuStreamWaitEvent(program.streams[0], program.events[1], 0), CUDA_SUCCESS);
    ASSERT_TRUE(
        soon([&] { return !program.b->contexts_of(schema::op_cuEventSynchronize).empty(); }));
    program.b->die();
    EXPECT_TRUE(soon(
        [&] { return program.a->contexts_of(schema::op_cuStreamWriteValue32_v2).size() == 2; }));
    EXPECT_EQ(cuStreamSynchronize(program.streams[0]), CUDA_ERROR_DEVICE_UNAVAILABLE);
    EXPECT_EQ(cuStreamSynchronize(program.streams[0]), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamWaitEvent(program.streams[0], program.events[1], 0),
              CUDA_ERROR_DEVICE_UNAVAILABLE);
  });
}

// Waits of one stream are ordered, those of two are not.
TEST(Sessions, WaitsOfTwoStreamsDoNotWaitForEachOther) {
  in_process([](Program& program) {
    CUstream second = nullptr;
    ASSERT_EQ(cuStreamCreate(&second, CU_STREAM_DEFAULT), CUDA_SUCCESS);
    program.b->silent_opcode = schema::op_cuEventSynchronize;
    ASSERT_EQ(cuStreamWaitEvent(program.streams[0], program.events[1], 0), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamWaitEvent(program.streams[0], program.events[1], 0), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamWaitEvent(second, program.events[1], 0), CUDA_SUCCESS);
    const auto asked = [&] { return program.b->contexts_of(schema::op_cuEventSynchronize).size(); };
    ASSERT_TRUE(soon([&] { return asked() == 2; }));
    EXPECT_TRUE(soon(
        [&] { return program.a->contexts_of(schema::op_cuStreamWaitValue32_v2).size() == 3; }));
    program.b->silent_opcode = 0;
    program.b->answer_the_silent();
    EXPECT_TRUE(soon([&] { return asked() == 3; }));
    // Two words and three gates.
    EXPECT_TRUE(soon(
        [&] { return program.a->contexts_of(schema::op_cuStreamWriteValue32_v2).size() == 5; }));
  });
}

// Memory that one session has pinned is pinned for the other, and is given up by both.
TEST(Sessions, PinnedMemoryIsForAllServers) {
  in_process([](Program& program) {
    constexpr size_t kBytes = 4096;
    alignas(4096) static char registered[kBytes];
    ASSERT_EQ(cuMemHostRegister(registered, kBytes, 0), CUDA_SUCCESS);
    EXPECT_EQ(program.a->contexts_of(schema::op_fgHostReserve).size(), 1u);
    EXPECT_EQ(program.b->contexts_of(schema::op_fgHostReserve), std::vector<uint16_t>{0});
    CUdeviceptr seen = 0;
    ASSERT_EQ(cuCtxSetCurrent(program.contexts[1]), CUDA_SUCCESS);
    ASSERT_EQ(cuMemHostGetDevicePointer(&seen, registered, 0), CUDA_SUCCESS);
    EXPECT_EQ(program.b->contexts_of(schema::op_fgHostMap), std::vector<uint16_t>{1});
    EXPECT_TRUE(program.a->contexts_of(schema::op_fgHostMap).empty());
    (void)cuMemHostUnregister(registered);  // the worker here has no pages to give
    EXPECT_EQ(program.a->contexts_of(schema::op_fgHostUnmap).size(), 1u);
    EXPECT_EQ(program.b->contexts_of(schema::op_fgHostUnmap).size(), 1u);
  });
}

// The last id that there is of a session, of one that is not there, and no id at all.
TEST(Sessions, AnyValueIsSafe) {
  in_process([](Program&) {
    for (const uint64_t value :
         {rpc::make_handle(rpc::HandleKind::kStream, (uint64_t{1} << rpc::kSerialBits) - 1, 1),
          rpc::make_handle(rpc::HandleKind::kStream, 1, 7),
          rpc::make_handle(rpc::HandleKind::kStream, 1, 255), UINT64_MAX, uint64_t{0x7fff12345670}})
      EXPECT_EQ(cuStreamSynchronize(reinterpret_cast<CUstream>(value)), CUDA_ERROR_INVALID_HANDLE)
          << value;
  });
}

TEST(Sessions, CreatedContextsHaveIdsOfTheirOwn) {
  in_process([](Program& program) {
    CUcontext of_a = nullptr, of_b = nullptr;
    ASSERT_EQ(cuCtxCreate(&of_a, nullptr, 0, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuCtxCreate(&of_b, nullptr, 0, 1), CUDA_SUCCESS);
    ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    EXPECT_EQ(program.b->contexts_of(schema::op_cuCtxSynchronize), std::vector<uint16_t>{257});
    ASSERT_EQ(cuCtxSetCurrent(of_a), CUDA_SUCCESS);
    ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    EXPECT_EQ(program.a->contexts_of(schema::op_cuCtxSynchronize), std::vector<uint16_t>{256});
    EXPECT_EQ(cuCtxDestroy(of_b), CUDA_SUCCESS);
    EXPECT_EQ(program.b->contexts_of(schema::op_fgContextDestroy), std::vector<uint16_t>{0});
  });
}

// The primary contexts of both have the same id on the wire.
TEST(Sessions, ErrorsOfAsynchronousCallsAreOfTheirContext) {
  in_process([](Program& program) {
    program.b->failing_opcode = schema::op_cuEventRecord;
    ASSERT_EQ(cuEventRecord(program.events[1], program.streams[1]), CUDA_SUCCESS);
    (void)cuStreamSynchronize(program.streams[1]);
    EXPECT_EQ(cuStreamSynchronize(program.streams[0]), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxSetCurrent(program.contexts[1]), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamSynchronize(program.streams[1]), CUDA_ERROR_ILLEGAL_ADDRESS);
  });
}

TEST(Sessions, OneThatIsLostTakesOnlyItsOwnAlong) {
  in_process([](Program& program) {
    program.b->die();
    EXPECT_EQ(cuStreamSynchronize(program.streams[1]), CUDA_ERROR_DEVICE_UNAVAILABLE);
    EXPECT_EQ(cuStreamSynchronize(program.streams[0]), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxSetCurrent(program.contexts[1]), CUDA_SUCCESS);
    size_t limit = 0;
    EXPECT_EQ(cuCtxGetLimit(&limit, CU_LIMIT_STACK_SIZE), CUDA_ERROR_DEVICE_UNAVAILABLE);
    CUstream stream = nullptr;
    EXPECT_EQ(cuStreamCreate(&stream, CU_STREAM_DEFAULT), CUDA_ERROR_DEVICE_UNAVAILABLE);
    EXPECT_EQ(cuCtxSetCurrent(program.contexts[0]), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamCreate(&stream, CU_STREAM_DEFAULT), CUDA_SUCCESS);
    // With the last one the process fails.
    program.a->die();
    EXPECT_EQ(cuStreamSynchronize(stream), CUDA_ERROR_DEVICE_UNAVAILABLE);
    // Another thread may have seen the end and be about to say so.
    int count = 0;
    const auto deadline = transport::Clock::now() + std::chrono::seconds(10);
    while (cuDeviceGetCount(&count) == CUDA_SUCCESS && transport::Clock::now() < deadline)
      std::this_thread::yield();
    EXPECT_EQ(cuDeviceGetCount(&count), CUDA_ERROR_DEVICE_UNAVAILABLE);
  });
}

CUgraphExec empty_graph(unsigned flags = 0, CUresult expected = CUDA_SUCCESS) {
  CUgraph graph = nullptr;
  CUgraphNode node = nullptr;
  CUgraphExec exec = nullptr;
  EXPECT_EQ(cuGraphCreate(&graph, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphAddEmptyNode(&node, graph, nullptr, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphInstantiate(&exec, graph, flags), expected);
  EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
  return exec;
}

TEST(Sessions, AGraphIsLaunchedAtItsOwnServer) {
  in_process([](Program& program) {
    ASSERT_EQ(cuCtxSetCurrent(program.contexts[1]), CUDA_SUCCESS);
    CUgraphExec const exec = empty_graph();
    // Each time with the context that the stream is in.
    EXPECT_EQ(cuGraphLaunch(exec, program.streams[1]), CUDA_SUCCESS);
    EXPECT_EQ(cuGraphLaunch(exec, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(cuGraphLaunch(exec, program.streams[0]), CUDA_ERROR_INVALID_HANDLE);
    ASSERT_EQ(cuCtxSetCurrent(program.contexts[0]), CUDA_SUCCESS);
    EXPECT_EQ(cuGraphLaunch(exec, nullptr), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(cuGraphLaunch(exec, program.streams[1]), CUDA_SUCCESS);
    ASSERT_EQ(cuCtxSetCurrent(nullptr), CUDA_SUCCESS);
    EXPECT_EQ(cuGraphLaunch(exec, program.streams[1]), CUDA_SUCCESS);
    EXPECT_EQ(cuGraphLaunch(exec, nullptr), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_EQ(cuStreamSynchronize(program.streams[1]), CUDA_SUCCESS);
    EXPECT_EQ(program.b->contexts_of(schema::op_fgGraphLaunch), std::vector<uint16_t>(4, 1));
    EXPECT_TRUE(program.a->contexts_of(schema::op_fgGraphLaunch).empty());
    ASSERT_EQ(cuCtxSetCurrent(program.contexts[0]), CUDA_SUCCESS);
    CUstream const gone = program.streams[1];
    EXPECT_EQ(cuStreamDestroy(gone), CUDA_SUCCESS);
    EXPECT_EQ(cuGraphLaunch(exec, gone), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(cuGraphExecDestroy(exec), CUDA_SUCCESS);
    EXPECT_EQ(cuGraphLaunch(exec, program.streams[0]), CUDA_ERROR_INVALID_VALUE);
  });
}

TEST(Sessions, AGraphOfOneThatIsLostIsNotLaunched) {
  in_process([](Program& program) {
    CUgraphExec const exec = empty_graph();
    EXPECT_EQ(cuGraphLaunch(exec, program.streams[0]), CUDA_SUCCESS);
    program.a->die();
    EXPECT_TRUE(soon(
        [&] { return cuGraphLaunch(exec, program.streams[0]) == CUDA_ERROR_DEVICE_UNAVAILABLE; }));
    EXPECT_EQ(cuGraphExecDestroy(exec), CUDA_ERROR_DEVICE_UNAVAILABLE);
    ASSERT_EQ(cuCtxSetCurrent(program.contexts[1]), CUDA_SUCCESS);
    EXPECT_EQ(cuGraphLaunch(empty_graph(), program.streams[1]), CUDA_SUCCESS);
  });
}

// Nothing is sent that would end the session.
TEST(Sessions, ALaunchThatTheServerDoesNotKnowIsRefused) {
  Program::unknown = schema::op_fgGraphLaunch;
  in_process([](Program& program) {
    CUgraphExec const exec = empty_graph();
    EXPECT_EQ(cuGraphLaunch(exec, program.streams[0]), CUDA_ERROR_NOT_SUPPORTED);
    EXPECT_EQ(cuStreamSynchronize(program.streams[0]), CUDA_SUCCESS);
    EXPECT_TRUE(program.a->contexts_of(schema::op_fgGraphLaunch).empty());
  });
  Program::unknown = 0;
}

// Kernels get the driver's value; two drivers may give the same one.
TEST(Sessions, AGraphThatKernelsLaunchHasTheValueOfItsServer) {
  in_process([](Program& program) {
    constexpr unsigned kDevice = CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH;
    ASSERT_EQ(cuCtxSetCurrent(program.contexts[0]), CUDA_SUCCESS);
    CUgraphExec const exec = empty_graph(kDevice);
    EXPECT_EQ(reinterpret_cast<uint64_t>(exec), program.a->graph_value.load());
    ASSERT_EQ(cuCtxSetCurrent(program.contexts[1]), CUDA_SUCCESS);
    EXPECT_EQ(empty_graph(kDevice), exec);
    EXPECT_EQ(cuGraphLaunch(exec, program.streams[0]), CUDA_SUCCESS);
    EXPECT_EQ(cuGraphLaunch(exec, program.streams[1]), CUDA_SUCCESS);
    for (CUstream const stream : program.streams)
      EXPECT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
    for (const auto& server : {program.a, program.b})
      EXPECT_EQ(server->contexts_of(schema::op_fgGraphLaunch).size(), 1u);
    EXPECT_EQ(cuGraphExecDestroy(exec), CUDA_SUCCESS);  // that of the current context's server
    EXPECT_EQ(cuGraphLaunch(exec, program.streams[1]), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(cuGraphLaunch(exec, program.streams[0]), CUDA_SUCCESS);
    EXPECT_EQ(cuGraphExecDestroy(exec), CUDA_SUCCESS);
    EXPECT_EQ(cuGraphLaunch(exec, program.streams[0]), CUDA_ERROR_INVALID_VALUE);
    // One that could be an id of ours is never given out.
    program.b->graph_value = rpc::make_handle(rpc::HandleKind::kGraphExec, 1);
    EXPECT_EQ(empty_graph(kDevice, CUDA_ERROR_NOT_SUPPORTED), nullptr);
    EXPECT_EQ(cuStreamSynchronize(program.streams[1]), CUDA_SUCCESS);
    EXPECT_EQ(program.b->contexts_of(schema::op_fgGraphExecDestroy).size(), 2u);
  });
}

// What needs no context goes to a server that there is.
TEST(Sessions, WithoutAContextCallsGoToOneThatIsNotLost) {
  in_process([](Program& program) {
    ASSERT_EQ(cuCtxSetCurrent(nullptr), CUDA_SUCCESS);
    EXPECT_EQ(CallTarget::of_current().session.number, 0u);
    program.a->die();
    EXPECT_EQ(cuStreamSynchronize(program.streams[0]), CUDA_ERROR_DEVICE_UNAVAILABLE);
    // Another thread may have seen the end and be about to say so.
    EXPECT_TRUE(soon([] { return CallTarget::of_current().session.number == 1; }));
  });
}

TEST(Sessions, AForkedChildHasNone) {
  in_process([](Program& program) {
    const pid_t child = ::fork();
    if (child == 0) {
      int count = 0;
      const bool right = Process::get().tables() == nullptr &&
                         Process::get().session(0) == nullptr &&
                         Process::get().session(1) == nullptr &&
                         cuDeviceGetCount(&count) == CUDA_ERROR_NOT_INITIALIZED &&
                         cuStreamSynchronize(program.streams[1]) == CUDA_ERROR_NOT_INITIALIZED;
      ::_exit(right ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(cuStreamSynchronize(program.streams[1]), CUDA_SUCCESS) << "the parent goes on";
  });
}

// A kernel of a has a twin at b, whose device the questions are about.
TEST(Sessions, OccupancyIsThatOfTheCurrentContext) {
  in_process([](Program& program) {
    using Kind = rpc::HandleKind;
    Session &a = *Process::get().session(0), &b = *Process::get().session(1);
    const uint64_t libraries[] = {made(a, Kind::kLibrary), made(b, Kind::kLibrary)};
    const uint64_t kernels[] = {made(a, Kind::kKernel, libraries[0]),
                                made(b, Kind::kKernel, libraries[1])};
    static_cast<ImageRecord*>(a.find(Kind::kLibrary, libraries[0]))->twins = {{1, libraries[1]}};
    static_cast<Function*>(a.find(Kind::kKernel, kernels[0]))->name = "kernel";
    static_cast<ImageRecord*>(b.find(Kind::kLibrary, libraries[1]))->functions = {
        {"kernel", kernels[1]}};
    ASSERT_EQ(cuCtxSetCurrent(program.contexts[1]), CUDA_SUCCESS);
    const auto kernel = reinterpret_cast<CUfunction>(kernels[0]);
    const CUlaunchConfig config{.gridDimX = 1,
                                .gridDimY = 1,
                                .gridDimZ = 1,
                                .blockDimX = 32,
                                .blockDimY = 1,
                                .blockDimZ = 1,
                                .sharedMemBytes = 0,
                                .hStream = nullptr,
                                .attrs = nullptr,
                                .numAttrs = 0};
    int number = 0;
    size_t bytes = 0;
    // The worker here has no numbers to give.
    (void)cuOccupancyMaxPotentialClusterSize(&number, kernel, &config);
    (void)cuOccupancyMaxActiveClusters(&number, kernel, &config);
    (void)cuOccupancyAvailableDynamicSMemPerBlock(&bytes, kernel, 1, 32);
    for (const uint16_t opcode :
         {schema::op_cuOccupancyMaxPotentialClusterSize, schema::op_cuOccupancyMaxActiveClusters,
          schema::op_cuOccupancyAvailableDynamicSMemPerBlock}) {
      EXPECT_EQ(program.b->contexts_of(opcode), std::vector<uint16_t>{1});
      EXPECT_TRUE(program.a->contexts_of(opcode).empty());
    }
  });
}

}  // namespace
}  // namespace fargpu::client
