// A process with two sessions, each with a scripted worker behind a loopback transport: which of
// them a call goes to, what the other one's handles are there, and what is left when one is lost.
// Calls are made through the exported functions. Each test is a process of its own, because the
// client library's state is the process's.
#include <cuda.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "client/call/client_support.h"
#include "client/entry/here.h"
#include "client/entry/object_ends.h"
#include "client/image/linked.h"
#include "client/image/records.h"
#include "client/process/process.h"
#include "client/process/session.h"
#include "client/transfer/ordered_copy.h"
#include "common/bootstrap/agreement.h"
#include "common/transport/loopback/loopback.h"
#include "generated/schema/internal.capnp.h"
#include "generated/schema/memory.capnp.h"
#include "generated/schema/opcodes.h"
#include "generated/schema/stream_ordered_memory.capnp.h"
#include "tests/transport/scripted_server.h"

namespace fargpu::client {

// Stands in for the client's own.
Result<std::vector<std::unique_ptr<Session>>> connect(Tables&, const Settings&) {
  return Status(StatusCode::kNotFound, "the test makes its sessions itself");
}

namespace {

using test::ReceivedFrame;
using test::ScriptedServer;

constexpr SessionHooks kHooks{.wire_of_copies = wire_of_ordered_copies,
                              .before_host_function = [](Session&) {},
                              .host_function_returned = [](Session&, uint64_t) {},
                              .look_at_values = [](Session&) {}};

// Answers every call with success, but those with the failing opcode.
class FakeWorker {
 public:
  // `first`: the device address that it allocates.
  FakeWorker(std::unique_ptr<transport::Transport> transport, CUdeviceptr first)
      : memory(first),
        server_(std::move(transport),
                [this](rpc::Responder& responder, const ReceivedFrame& request) {
                  const std::lock_guard lock(mutex_);
                  calls_.emplace_back(request.header.opcode, request.header.context);
                  if (request.header.opcode == silent_opcode.load()) {
                    responder_ = &responder;
                    silent_.push_back(request.header);
                    return Status();
                  }
                  if (request.header.opcode == schema::op_cuMemAlloc_v2) {
                    rpc::Responder::Frame reply(responder, request.header, 256);
                    reply.init<schema::CuMemAllocV2Results>().setDptr(memory.fetch_add(step));
                    return reply.send(0);
                  }
                  if (request.header.opcode == schema::op_cuMemAllocAsync) {
                    rpc::Responder::Frame reply(responder, request.header, 256);
                    reply.init<schema::CuMemAllocAsyncResults>().setDptr(memory.fetch_add(step));
                    return reply.send(0);
                  }
                  if (request.header.opcode == schema::op_fgHostMap) {
                    rpc::Responder::Frame reply(responder, request.header, 256);
                    reply.init<schema::FgHostMapResults>().setDevicePointer(memory.load());
                    return reply.send(0);
                  }
                  const bool fails = request.header.opcode == failing_opcode.load();
                  return responder.reply(request.header, fails ? CUDA_ERROR_ILLEGAL_ADDRESS : 0);
                }) {}
  // The contexts of the calls with this opcode, in order.
  std::vector<uint16_t> contexts_of(uint16_t opcode) const {
    const std::lock_guard lock(mutex_);
    std::vector<uint16_t> contexts;
    for (const auto& [called, context] : calls_) {
      if (called == opcode) contexts.push_back(context);
    }
    return contexts;
  }
  void die() { server_.stop(); }

  // Answers what it has left unanswered.
  void answer_the_silent() {
    server_.pause(true);
    for (const wire::FrameHeader& header : silent_) (void)responder_->reply(header, 0);
    silent_.clear();
    (void)responder_->flush();
    server_.pause(false);
  }

  std::atomic<uint16_t> failing_opcode{0};
  std::atomic<uint16_t> silent_opcode{0};  // not answered
  std::atomic<CUdeviceptr> memory;
  std::atomic<CUdeviceptr> step{0};  // from one allocation to the next

 private:
  mutable std::mutex mutex_;
  std::vector<std::pair<uint16_t, uint16_t>> calls_;
  std::vector<wire::FrameHeader> silent_;
  rpc::Responder* responder_ = nullptr;
  ScriptedServer server_;
};

constexpr CUdeviceptr kMemory[] = {0x6000'0000'0000, 0x6100'0000'0000};

// Two servers with a GPU each: device 0 is a's, device 1 is b's.
struct Program {
  Program() {
    Tables& tables = *new Tables;
    a = add(tables, 0);
    b = add(tables, 1);
    EXPECT_EQ(cuInit(0), CUDA_SUCCESS);
    for (CUdevice device : {0, 1}) {
      EXPECT_EQ(cuDevicePrimaryCtxRetain(&contexts[device], device), CUDA_SUCCESS);
      EXPECT_EQ(cuCtxSetCurrent(contexts[device]), CUDA_SUCCESS);
      EXPECT_EQ(cuStreamCreate(&streams[device], CU_STREAM_DEFAULT), CUDA_SUCCESS);
      EXPECT_EQ(cuEventCreate(&events[device], CU_EVENT_DEFAULT), CUDA_SUCCESS);
    }
    EXPECT_EQ(cuCtxSetCurrent(contexts[0]), CUDA_SUCCESS);
  }

  // What the servers do not know; set before.
  static inline uint16_t unknown = 0;

  static FakeWorker* add(Tables& tables, unsigned number) {
    auto [client, server] = transport::make_loopback_pair();
    auto* const worker = new FakeWorker(std::move(server), kMemory[number]);
    Settings settings;
    settings.server = number == 0 ? "a:14900" : "b:14900";
    Snapshot snapshot;
    snapshot.driver_version = number == 0 ? 13000 : 12080;
    for (unsigned opcode = 0; opcode < 8 * wire::OpcodeSet::kMaxBytes; ++opcode) {
      const auto each = static_cast<uint16_t>(opcode);
      if (each != unknown && bootstrap::known_opcodes().contains(each)) snapshot.known.insert(each);
    }
    snapshot.max_bulk_bytes = 1 << 20;
    snapshot.max_body_bytes = 1 << 20;
    snapshot.devices.resize(1);
    auto session =
        std::make_unique<Session>(SessionIdentity{tables, number, Process::get().device_count()},
                                  std::move(settings), std::move(snapshot), kHooks);
    session->attach(std::move(client), {});
    Process::get().add(std::move(session));
    return worker;
  }

  FakeWorker *a, *b;
  CUcontext contexts[2]{};
  CUstream streams[2]{};
  CUevent events[2]{};
};

unsigned session_in(const void* handle) {
  return rpc::handle_session(reinterpret_cast<uint64_t>(handle));
}

// Runs the test in a process of its own.
void in_process(const std::function<void(Program&)>& body) {
  std::fflush(nullptr);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    Program program;
    body(program);
    std::fflush(nullptr);
    ::_exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "see above";
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

// Whether `holds()` becomes true in time.
bool soon(const std::function<bool()>& holds) {
  const auto deadline = transport::Clock::now() + std::chrono::seconds(20);
  while (!holds() && transport::Clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return holds();
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
    EXPECT_EQ(Process::get().session(0)->memory_waits.load(), 0u);
    EXPECT_FALSE(Process::get().session(0)->host_calls.outstanding());
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
    EXPECT_EQ(program.a->contexts_of(schema::op_cuStreamWaitValue32_v2).size(), 3u);
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

// What needs no context goes to a server that there is.
TEST(Sessions, WithoutAContextCallsGoToOneThatIsNotLost) {
  in_process([](Program& program) {
    ASSERT_EQ(cuCtxSetCurrent(nullptr), CUDA_SUCCESS);
    EXPECT_EQ(Here::of_current().session.number, 0u);
    program.a->die();
    EXPECT_EQ(cuStreamSynchronize(program.streams[0]), CUDA_ERROR_DEVICE_UNAVAILABLE);
    // Another thread may have seen the end and be about to say so.
    EXPECT_TRUE(soon([] { return Here::of_current().session.number == 1; }));
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

// An object as a call makes it, when the worker has answered.
uint64_t made(Session& session, rpc::HandleKind kind, uint64_t parent = 0) {
  NewHandle handle(session, kind);
  handle.created(parent);
  return handle.id();
}

bool lives(const Session& session, uint64_t id) {
  return session.find(rpc::handle_kind(id), id) != nullptr;
}

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

// What the driver lists is known to the worker by its ids, or gets those that were sent.
TEST(Ends, AnArrayOfNewHandlesTakesWhatTheWorkerNames) {
  in_process([](Program&) {
    using Kind = rpc::HandleKind;
    Session& session = *Process::get().session(0);
    const uint64_t graph = made(session, Kind::kGraph);
    const uint64_t known = made(session, Kind::kGraphNode, graph);
    const auto answer = [](const std::vector<uint64_t>& ids) {
      return as_data(ids.data(), ids.size() * sizeof(uint64_t));
    };
    uint64_t first = 0, unused = 0;
    {
      NewHandles nodes(session, Kind::kGraphNode, 3);
      ASSERT_TRUE(nodes.complete());
      first = nodes.data()[0];
      unused = nodes.data()[2];
      CUgraphNode out[3]{};
      EXPECT_FALSE(nodes.take(answer({graph}), 1, graph, out)) << "of another kind";
      EXPECT_FALSE(nodes.take(answer({first + 64}), 2, graph, out)) << "fewer than it says";
      EXPECT_FALSE(nodes.take(answer({1, 2, 3, 4}), 4, graph, out)) << "more than there is room";
      const std::vector<uint64_t> ids{known, first};
      ASSERT_TRUE(nodes.take(answer(ids), 2, graph, out));
      EXPECT_EQ(out[0], reinterpret_cast<CUgraphNode>(known));
      EXPECT_EQ(out[1], reinterpret_cast<CUgraphNode>(first));
    }
    EXPECT_TRUE(lives(session, first));
    EXPECT_FALSE(lives(session, unused));
    EXPECT_NE(made(session, Kind::kGraphNode), unused) << "its slot is free, its id is not";
    end_object(session, graph);
    EXPECT_FALSE(lives(session, first));
    EXPECT_FALSE(lives(session, known));
  });
}

}  // namespace
}  // namespace fargpu::client
