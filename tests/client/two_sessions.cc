#include "tests/client/two_sessions.h"

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <thread>

#include "client/entry/call.h"
#include "common/bootstrap/agreement.h"
#include "common/transport/loopback/loopback.h"
#include "generated/schema/internal.capnp.h"
#include "generated/schema/memory.capnp.h"
#include "generated/schema/opcodes.h"
#include "generated/schema/stream_ordered_memory.capnp.h"
#include "tests/transport/forwarding_transport.h"

namespace fargpu::client {

FakeWorker::FakeWorker(std::unique_ptr<transport::Transport> transport, CUdeviceptr first)
    : memory(first),
      server_(std::move(transport), [this](rpc::Responder& responder,
                                           const test::ReceivedFrame& request) {
        const std::lock_guard lock(mutex_);
        calls_.emplace_back(request.header.opcode, request.header.context);
        if (const auto found = handlers_.find(request.header.opcode); found != handlers_.end())
          found->second(responder, request);
        if (request.header.opcode != silent_opcode.load()) return answer(responder, request.header);
        responder_ = &responder;
        silent_.push_back(request.header);
        return Status();
      }) {}

Status FakeWorker::answer(rpc::Responder& responder, const wire::FrameHeader& header) {
  constexpr size_t kBytes = 256;
  switch (header.opcode) {
    case schema::op_cuMemAlloc_v2: {
      rpc::Responder::Frame reply(responder, header, kBytes);
      reply.init<schema::CuMemAllocV2Results>().setDptr(memory.fetch_add(step));
      return reply.send(0);
    }
    case schema::op_cuMemAllocAsync: {
      rpc::Responder::Frame reply(responder, header, kBytes);
      reply.init<schema::CuMemAllocAsyncResults>().setDptr(memory.fetch_add(step));
      return reply.send(0);
    }
    case schema::op_fgHostMap: {
      rpc::Responder::Frame reply(responder, header, kBytes);
      reply.init<schema::FgHostMapResults>().setDevicePointer(memory.load());
      return reply.send(0);
    }
    case schema::op_fgHostShare: {
      rpc::Responder::Frame reply(responder, header, kBytes);
      reply.init<schema::FgHostShareResults>().setDevicePointer(memory.load());
      return reply.send(0);
    }
    case schema::op_fgGraphInstantiate: {
      rpc::Responder::Frame reply(responder, header, kBytes);
      reply.init<schema::FgGraphInstantiateResults>();
      return reply.send(0);
    }
    case schema::op_fgGraphValue: {
      rpc::Responder::Frame reply(responder, header, kBytes);
      reply.init<schema::FgGraphValueResults>().setValue(graph_value.load());
      return reply.send(0);
    }
    default:
      return responder.reply(
          header, header.opcode == failing_opcode.load() ? CUDA_ERROR_ILLEGAL_ADDRESS : 0);
  }
}

std::vector<uint16_t> FakeWorker::contexts_of(uint16_t opcode) const {
  const std::lock_guard lock(mutex_);
  std::vector<uint16_t> contexts;
  for (const auto& [called, context] : calls_) {
    if (called == opcode) contexts.push_back(context);
  }
  return contexts;
}

void FakeWorker::answer_the_silent() {
  server_.pause(true);
  for (const wire::FrameHeader& header : silent_) (void)answer(*responder_, header);
  silent_.clear();
  (void)responder_->flush();
  server_.pause(false);
}

Program::Program() {
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

FakeWorker* Program::add(Tables& tables, unsigned number) {
  auto [client, server] = transport::make_loopback_pair();
  if (same_host) {
    auto& passed = *new test::PassedDescriptors;
    client = std::make_unique<test::TransportThatPasses>(std::move(client), passed);
  }
  auto* const worker = new FakeWorker(std::move(server), kMemory[number]);
  Settings settings;
  settings.server = number == 0 ? "a:14900" : "b:14900";
  wire::OpcodeSet known;
  Snapshot snapshot;
  snapshot.driver_version = number == 0 ? 13000 : 12080;
  for (unsigned opcode = 0; opcode < 8 * wire::OpcodeSet::kMaxBytes; ++opcode) {
    const auto each = static_cast<uint16_t>(opcode);
    if (each != unknown && bootstrap::known_opcodes().contains(each)) known.insert(each);
  }
  snapshot.max_bulk_bytes = 1 << 20;
  snapshot.max_body_bytes = 1 << 20;
  snapshot.devices.resize(1);
  auto session = std::make_unique<Session>(
      SessionIdentity{tables, number, Process::get().device_count()}, std::move(settings),
      Link::Server{"of a test", known}, std::move(snapshot));
  session->attach(std::move(client), nullptr, {});
  Process::get().add(std::move(session));
  return worker;
}

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

bool soon(const std::function<bool()>& holds) {
  const auto deadline = transport::Clock::now() + std::chrono::seconds(20);
  while (!holds() && transport::Clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return holds();
}

uint64_t made(Session& session, rpc::HandleKind kind, uint64_t parent) {
  NewHandle handle(session, kind);
  handle.created(parent);
  return handle.id();
}

bool lives(const Session& session, uint64_t id) {
  return session.find(rpc::handle_kind(id), id) != nullptr;
}

}  // namespace fargpu::client
