#include "tests/server/executor_fixture.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <span>
#include <string_view>

#include "common/wire/control.h"
#include "generated/schema/internal.capnp.h"
#include "generated/schema/opcodes.h"

namespace fargpu::server {
namespace {

using transport::Clock;

constexpr auto kLimit = std::chrono::seconds(60);

CUresult noted(const std::string& call) {
  FakeDriver::get().note(call);
  FakeDriver::get().pass(call);
  FakeDriver::get().take_time(call);
  return FakeDriver::get().result_of(call);
}

template <typename Handle>
Handle handle(uint64_t number) {
  return reinterpret_cast<Handle>(number);
}

constexpr uint64_t kFakeStream = 0x5000;
thread_local CUcontext current_context = nullptr;
std::atomic<CUcontext> stream_context{nullptr};  // of the created stream

std::string name_of(CUevent event) { return std::to_string(reinterpret_cast<uint64_t>(event)); }

}  // namespace

FakeDriver& FakeDriver::get() {
  static FakeDriver driver;
  return driver;
}

void FakeDriver::reset() {
  std::lock_guard lock(mutex_);
  calls_.clear();
  results_.clear();
  shut_.clear();
  slow_.clear();
}

void FakeDriver::slow(const std::string& call, std::chrono::milliseconds time) {
  std::lock_guard lock(mutex_);
  slow_[call] = time;
}

void FakeDriver::take_time(const std::string& call) {
  std::unique_lock lock(mutex_);
  const auto found = slow_.find(call);
  if (found == slow_.end()) return;
  const auto time = found->second;
  lock.unlock();
  std::this_thread::sleep_for(time);
}

void FakeDriver::note(const std::string& call) {
  std::lock_guard lock(mutex_);
  calls_.push_back(call);
}

std::vector<std::string> FakeDriver::calls() {
  std::lock_guard lock(mutex_);
  return calls_;
}

size_t FakeDriver::count(const std::string& call) {
  std::lock_guard lock(mutex_);
  return static_cast<size_t>(std::count(calls_.begin(), calls_.end(), call));
}

bool FakeDriver::saw(const std::string& call) { return count(call) > 0; }

void FakeDriver::fail(const std::string& call, CUresult result) {
  std::lock_guard lock(mutex_);
  results_[call] = result;
}

CUresult FakeDriver::result_of(const std::string& call, CUresult otherwise) {
  std::lock_guard lock(mutex_);
  const auto found = results_.find(call);
  return found == results_.end() ? otherwise : found->second;
}

void FakeDriver::shut(const std::string& gate) {
  std::lock_guard lock(mutex_);
  shut_[gate] = true;
}

void FakeDriver::open(const std::string& gate) {
  {
    std::lock_guard lock(mutex_);
    shut_[gate] = false;
  }
  changed_.notify_all();
}

void FakeDriver::open_all() {
  {
    std::lock_guard lock(mutex_);
    shut_.clear();
  }
  changed_.notify_all();
}

void FakeDriver::pass(const std::string& gate) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !shut_[gate]; });
}

bool FakeDriver::is_shut(const std::string& gate) {
  std::lock_guard lock(mutex_);
  return shut_[gate];
}

DriverTable FakeDriver::table() {
  DriverTable t;
  t.cuCtxSetCurrent = [](CUcontext context) {
    current_context = context;
    return FakeDriver::get().result_of("cuCtxSetCurrent");
  };
  t.cuCtxGetCurrent = [](CUcontext* context) {
    *context = current_context;
    return CUDA_SUCCESS;
  };
  t.cuCtxSynchronize = [] {
    if (current_context == stream_context.load()) FakeDriver::get().pass("created stream");
    return noted("cuCtxSynchronize");
  };
  // Streams are busy as long as a wait for the context would be.
  t.cuStreamQuery = [](CUstream stream) {
    FakeDriver& driver = FakeDriver::get();
    if (stream == CU_STREAM_PER_THREAD) driver.note("cuStreamQuery of the per-thread stream");
    const bool created = stream == handle<CUstream>(kFakeStream);
    return driver.is_shut("cuCtxSynchronize") || (created && driver.is_shut("created stream"))
               ? CUDA_ERROR_NOT_READY
               : driver.result_of("cuStreamQuery");
  };
  t.cuStreamDestroy_v2 = [](CUstream) { return noted("cuStreamDestroy"); };
  t.cuCtxCreate_v2 = [](CUcontext* context, unsigned, CUdevice) {
    *context = handle<CUcontext>(0xc2);
    return noted("cuCtxCreate");
  };
  t.cuCtxDestroy_v2 = [](CUcontext) { return noted("cuCtxDestroy"); };
  t.cuDevicePrimaryCtxRetain = [](CUcontext* context, CUdevice device) {
    *context = handle<CUcontext>(0xc1 + static_cast<uint64_t>(device));
    return noted("cuDevicePrimaryCtxRetain");
  };
  t.cuDevicePrimaryCtxRelease_v2 = [](CUdevice) { return noted("cuDevicePrimaryCtxRelease"); };
  t.cuDeviceGetAttribute = [](int* value, CUdevice_attribute, CUdevice) {
    *value = 9;
    return CUDA_SUCCESS;
  };
  t.cuMemAlloc_v2 = [](CUdeviceptr* pointer, size_t bytes) {
    *pointer = 0x7000;
    return noted("cuMemAlloc " + std::to_string(bytes));
  };
  t.cuMemGetInfo_v2 = [](size_t* free, size_t* total) {
    *free = 1000;
    *total = 2000;
    return noted("cuMemGetInfo");
  };
  t.cuMemFree_v2 = [](CUdeviceptr) { return noted("cuMemFree"); };
  t.cuArray3DCreate_v2 = [](CUarray* array, const CUDA_ARRAY3D_DESCRIPTOR* descriptor) {
    *array = handle<CUarray>(0xa1);
    return noted("cuArray3DCreate " + std::to_string(descriptor->Width));
  };
  t.cuArrayDestroy = [](CUarray array) {
    return noted(array == handle<CUarray>(0xa1) ? "cuArrayDestroy" : "cuArrayDestroy of another");
  };
  t.cuMemcpy3DAsync_v2 = [](const CUDA_MEMCPY3D* copy, CUstream) {
    return noted(copy->dstMemoryType == CU_MEMORYTYPE_ARRAY &&
                         copy->dstArray == handle<CUarray>(0xa1)
                     ? "cuMemcpy3DAsync to the array at " + std::to_string(copy->dstXInBytes)
                     : "cuMemcpy3DAsync");
  };
  t.cuTexObjectCreate = [](CUtexObject* object, const CUDA_RESOURCE_DESC* resource,
                           const CUDA_TEXTURE_DESC*, const CUDA_RESOURCE_VIEW_DESC*) {
    *object = 5;
    return noted(resource->res.array.hArray == handle<CUarray>(0xa1) ? "cuTexObjectCreate"
                                                                     : "cuTexObjectCreate of what");
  };
  t.cuTexObjectDestroy = [](CUtexObject object) {
    return noted("cuTexObjectDestroy " + std::to_string(object));
  };
  t.cuMemAllocFromPoolAsync = [](CUdeviceptr*, size_t, CUmemoryPool, CUstream) {
    return noted("cuMemAllocFromPoolAsync");
  };
  t.cuLaunchKernelEx = [](const CUlaunchConfig*, CUfunction, void**, void**) {
    return noted("cuLaunchKernelEx");
  };
  t.cuMemsetD8Async = [](CUdeviceptr, unsigned char value, size_t, CUstream) {
    return noted("cuMemsetD8Async " + std::to_string(value));
  };
  t.cuMemcpyHtoDAsync_v2 = [](CUdeviceptr, const void* bytes, size_t count, CUstream) {
    FakeDriver::get().source = bytes;
    return noted("cuMemcpyHtoDAsync " + std::string(static_cast<const char*>(bytes), count));
  };
  t.cuStreamCreate = [](CUstream* stream, unsigned) {
    *stream = handle<CUstream>(kFakeStream);
    stream_context = current_context;
    return noted("cuStreamCreate");
  };
  t.cuEventCreate = [](CUevent* event, unsigned) {
    const CUresult result = noted("cuEventCreate");
    *event = handle<CUevent>(FakeDriver::get().count("cuEventCreate"));
    return result;
  };
  t.cuEventDestroy_v2 = [](CUevent event) { return noted("cuEventDestroy " + name_of(event)); };
  t.cuEventRecord = [](CUevent event, CUstream) {
    return noted("cuEventRecord " + name_of(event));
  };
  t.cuEventQuery = [](CUevent event) {
    FakeDriver& driver = FakeDriver::get();
    return driver.is_shut("event") || driver.is_shut("event " + name_of(event))
               ? CUDA_ERROR_NOT_READY
               : driver.result_of("cuEventQuery");
  };
  t.cuEventSynchronize = [](CUevent) { return noted("cuEventSynchronize"); };
  t.cuStreamWaitEvent = [](CUstream stream, CUevent event, unsigned) {
    return noted(std::to_string(reinterpret_cast<uint64_t>(stream)) + " waits for " +
                 name_of(event));
  };
  t.cuStreamGetFlags = [](CUstream, unsigned* flags) {
    *flags = CU_STREAM_NON_BLOCKING;
    return CUDA_SUCCESS;
  };
  t.cuMemHostRegister_v2 = [](void*, size_t, unsigned) {
    if (FakeDriver::get().is_shut("cuMemHostRegister"))
      FakeDriver::get().note("cuMemHostRegister waits");
    FakeDriver::get().pass("cuMemHostRegister");
    return FakeDriver::get().result_of("cuMemHostRegister", CUDA_ERROR_NOT_SUPPORTED);
  };
  // Device memory holds the low bytes of its addresses.
  t.cuMemcpyDtoHAsync_v2 = [](void* bytes, CUdeviceptr from, size_t count, CUstream) {
    for (size_t i = 0; i < count; ++i) static_cast<uint8_t*>(bytes)[i] = uint8_t(from + i);
    return noted("cuMemcpyDtoHAsync " + std::to_string(count));
  };
  t.cuMemHostAlloc = [](void** memory, size_t, unsigned) {
    *memory = FakeDriver::get().words.data();
    return noted("cuMemHostAlloc");
  };
  t.cuMemHostGetDevicePointer_v2 = [](CUdeviceptr* device, void* memory, unsigned) {
    *device = reinterpret_cast<CUdeviceptr>(memory);
    return CUDA_SUCCESS;
  };
  t.cuMemFreeHost = [](void*) { return noted("cuMemFreeHost"); };
  // Gates are told apart by what they wait for.
  t.cuStreamWaitValue32_v2 = [](CUstream, CUdeviceptr address, cuuint32_t value, unsigned) {
    const auto& words = FakeDriver::get().words;
    const auto begin = reinterpret_cast<CUdeviceptr>(words.data());
    const bool is_gate = address >= begin && address < begin + sizeof words;
    return noted(is_gate ? "cuStreamWaitValue32 " + std::to_string(value) : "cuStreamWaitValue32");
  };
  t.cuStreamWriteValue32_v2 = [](CUstream, CUdeviceptr, cuuint32_t value, unsigned) {
    return noted("cuStreamWriteValue32 " + std::to_string(value));
  };
  t.cuMemHostUnregister = [](void*) { return noted("cuMemHostUnregister"); };
  t.cuModuleLoadDataEx = [](CUmodule* module, const void* image, unsigned, CUjit_option*, void**) {
    *module = handle<CUmodule>(0x3000);
    return noted("cuModuleLoadDataEx " + std::string(static_cast<const char*>(image)));
  };
  t.cuModuleGetFunction = [](CUfunction* function, CUmodule, const char*) {
    *function = handle<CUfunction>(0x5000);
    return noted("cuModuleGetFunction");
  };
  // Functions have no parameters, and attributes of 0.
  t.cuFuncGetParamInfo = [](CUfunction, size_t, size_t*, size_t*) {
    return FakeDriver::get().result_of("cuFuncGetParamInfo", CUDA_ERROR_INVALID_VALUE);
  };
  t.cuFuncGetAttribute = [](int* value, CUfunction_attribute, CUfunction) {
    *value = 0;
    return noted("cuFuncGetAttribute");
  };
  t.cuModuleUnload = [](CUmodule) { return noted("cuModuleUnload"); };
  t.cuLinkCreate_v2 = [](unsigned, CUjit_option*, void**, CUlinkState* state) {
    *state = handle<CUlinkState>(0x4000);
    return noted("cuLinkCreate");
  };
  t.cuLinkAddData_v2 = [](CUlinkState, CUjitInputType, void*, size_t, const char*, unsigned,
                          CUjit_option*, void**) { return noted("cuLinkAddData"); };
  t.cuLinkComplete = [](CUlinkState, void**, size_t*) { return noted("cuLinkComplete"); };
  t.cuLinkDestroy = [](CUlinkState) { return noted("cuLinkDestroy"); };
  // As in a driver: on a thread that is not the caller's, and never in a context that has failed.
  t.cuLaunchHostFunc = [](CUstream, CUhostFn function, void* data) {
    const CUresult result = noted("cuLaunchHostFunc");
    if (result != CUDA_SUCCESS || FakeDriver::get().result_of("cuStreamQuery") != CUDA_SUCCESS)
      return result;
    std::thread([function, data] {
      FakeDriver::get().note("host function begins");
      function(data);
      FakeDriver::get().note("host function returned");
    }).detach();
    return result;
  };
  return t;
}

// The test's own descriptor stays what it is; where the captured one is written to.
static int capture(int descriptor, OutputCapture* into) {
  const int ours = ::dup(descriptor);
  auto made = OutputCapture::install(descriptor);
  const int writes = made.ok() ? ::dup(descriptor) : -1;
  if (made.ok()) *into = std::move(*made);
  ::dup2(ours, descriptor);
  ::close(ours);
  return writes;
}

void ExecutorTest::start(bool with_output, uint64_t memory_bytes) {
  FakeDriver::get().reset();
  table_ = FakeDriver::table();
  if (with_output) {
    output_ = capture(STDOUT_FILENO, &capture_.out);
    errors_ = capture(STDERR_FILENO, &capture_.err);
    ASSERT_TRUE(output_ >= 0 && errors_ >= 0);
  }
  std::tie(client_, server_) = transport::make_loopback_pair();
  if (wrap_) server_ = wrap_(std::move(server_));
  if (with_bulk_connection_) std::tie(beside_, bulk_server_) = transport::make_loopback_pair();
  SessionSetup setup;
  setup.image_bytes = 1u << 20;
  setup.memory_bytes = memory_bytes;
  setup.daemon = {daemon_.socket, daemon_.version, daemon_.orders};
  worker_ = std::make_unique<SessionWorker>(table_, *server_, statistics_, capture_, setup);
  worker_->responder().client_knows(client_control_);
  constexpr std::string_view kPrints = "vprintf";
  if (with_output) worker_->parts().printing_code.loads(std::as_bytes(std::span(kPrints)), nullptr);
  thread_ = std::thread([this] {
    Executor executor(*worker_, *server_, statistics_, std::chrono::microseconds(0), daemon_);
    std::optional<BulkReceiver> bulk;
    if (bulk_server_ != nullptr) {
      SessionParts& parts = worker_->parts();
      bulk.emplace(std::move(bulk_server_), parts.ordered_copies, parts.posted);
      executor.reads_beside(*bulk);
    }
    std::unique_ptr<SessionWatch> watch;
    if (daemon_.socket >= 0) {
      watch = std::move(*SessionWatch::start(
          peer_, executor.activity(), [] {}, [] {}, {},
          {daemon_.socket, [&executor] { return executor.commands().take(); }}));
    }
    ended_ = executor.run();
    server_->close();
  });
}

void ExecutorTest::TearDown() {
  FakeDriver::get().open_all();
  if (thread_.joinable()) {
    client_->close();
    thread_.join();
  }
  worker_.reset();
  answers_.clear();
  if (output_ >= 0) ::close(output_);
}

uint32_t ExecutorTest::send_copy(const copy::Copy& copy, uint64_t stream, uint16_t flags,
                                 uint16_t context, std::span<const std::byte> src) {
  const copy::Words words = encode(copy);
  alignas(8) std::byte memory[512];
  wire::SlotMessageBuilder builder(std::span<std::byte>(memory, sizeof memory));
  auto params = builder.initRoot<schema::FgCopyParams>();
  params.setCopy({static_cast<const capnp::byte*>(words.data()), words.bytes()});
  params.setCopyBytes(words.bytes());
  params.setStream(stream);
  params.setSrcBytes(src.size());
  return send(schema::op_fgCopy, std::span<const std::byte>(memory, builder.used_bytes()), flags,
              context, src);
}

uint32_t ExecutorTest::send(uint16_t opcode, std::span<const std::byte> body, uint16_t flags,
                            uint16_t context, std::span<const std::byte> bulk) {
  wire::FrameHeader header;
  header.opcode = opcode;
  header.flags = flags;
  header.context = context;
  header.sequence = ++sequence_;
  header.body_bytes = static_cast<uint32_t>(body.size());
  header.bulk_bytes = bulk.size();
  const auto deadline = Clock::now() + kLimit;
  auto slot = client_->reserve(sizeof header + body.size(), deadline);
  EXPECT_TRUE(slot.ok());
  if (!slot.ok()) return sequence_;
  std::memcpy(slot->data(), &header, sizeof header);
  if (!body.empty()) std::memcpy(slot->data() + sizeof header, body.data(), body.size());
  const std::span<const std::byte> pieces[] = {bulk};
  EXPECT_TRUE(
      client_->commit(slot->size(), std::span(pieces, bulk.empty() ? 0 : 1), deadline).ok());
  // A committed frame that ends the session may have done so already: the answers tell, not this.
  (void)client_->flush(deadline);
  return sequence_;
}

Answer ExecutorTest::next() {
  const auto deadline = Clock::now() + kLimit;
  while (answers_.empty()) {
    const auto received = client_->receive(*this, deadline);
    if (!received.ok()) {
      ADD_FAILURE() << "no answer: " << received.status().message();
      return {};
    }
  }
  Answer answer = std::move(answers_.front());
  answers_.erase(answers_.begin());
  return answer;
}

CUresult ExecutorTest::result(uint32_t sequence, uint16_t flags) {
  const Answer answer = next();
  EXPECT_EQ(answer.header.sequence, sequence);
  EXPECT_EQ(answer.header.flags, flags);
  return static_cast<CUresult>(answer.header.result);
}

void ExecutorTest::expect_silence() { expect_answer(send(wire::kPing), CUDA_SUCCESS); }

void ExecutorTest::say_alive() { worker_->responder().try_notice(wire::kAlive, 0); }

bool ExecutorTest::hears_something() {
  return client_->receive(*this, Clock::now()).ok() && !answers_.empty();
}

Status ExecutorTest::end() {
  EXPECT_TRUE(eventually([&] {
    const auto received = client_->receive(*this, Clock::now());
    return !received.ok() && received.status().code() == StatusCode::kLost;
  }));
  thread_.join();
  return *ended_;
}

void ExecutorTest::enter() {
  expect_answer(send<schema::FgPrimaryRetainParams>(
                    schema::op_fgPrimaryRetain, [](auto p) { p.setDev(0); }, wire::kWantReply, 0),
                CUDA_SUCCESS);
}

bool ExecutorTest::eventually(const std::function<bool()>& condition) {
  for (const auto deadline = Clock::now() + kLimit; Clock::now() < deadline;
       std::this_thread::sleep_for(std::chrono::milliseconds(2))) {
    if (condition()) return true;
  }
  return condition();
}

Result<std::span<std::byte>> ExecutorTest::bulk_buffer(const wire::FrameHeader& header,
                                                       std::span<const std::byte>) {
  bulk_.resize(header.bulk_bytes);
  return std::span(bulk_);
}

Status ExecutorTest::on_frame(const wire::FrameHeader& header, std::span<const std::byte> body,
                              std::span<std::byte> bulk) {
  answers_.push_back({header, {body.begin(), body.end()}, {bulk.begin(), bulk.end()}});
  return Status();
}

}  // namespace fargpu::server
