#include "sim/api/checkpoint.h"

#include <fmt/core.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <future>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "common/base/log.h"
#include "common/host/signals_blocked.h"
#include "sim/base/call_gate.h"
#include "sim/context/context.h"
#include "sim/context/primary_context.h"
#include "sim/driver/driver.h"

namespace fargpu::sim {
namespace {

struct Address {
  explicit Address(int process) {
    const std::string name = fmt::format("fargpu-sim-checkpoint-{}", process);
    value.sun_family = AF_UNIX;
    std::memcpy(value.sun_path + 1, name.data(), name.size());  // abstract: begins with a zero
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&value); }
  sockaddr_un value{};
  socklen_t length = 0;
};

bool is_of_this_user(const Fd& socket, int process) {
  ucred other{};
  socklen_t length = sizeof other;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &other, &length) != 0) return false;
  return (other.uid == ::geteuid() || other.uid == 0 || ::geteuid() == 0) &&
         (process == 0 || other.pid == process);
}

// Waits for the work of all contexts, on a thread that may go on waiting behind the deadline.
bool finish_work(std::optional<CallGate::Clock::time_point> deadline) {
  auto done = std::make_shared<std::promise<void>>();
  std::future<void> finished = done->get_future();
  std::thread([done] {
    Driver& driver = Driver::get();
    for (const auto& context : driver.registry().all<Context>()) (void)context->synchronize();
    for (const auto& device : driver.devices())
      if (const auto primary = PrimaryContext::of(*device).get()) (void)primary->synchronize();
    done->set_value();
  }).detach();
  if (!deadline) {
    finished.wait();
    return true;
  }
  return finished.wait_until(*deadline) == std::future_status::ready;
}

// Of all device memory.
std::vector<int> descriptors() {
  std::vector<int> found;
  for (const auto& device : Driver::get().devices())
    for (const int descriptor :
         {device->memory().descriptor(), device->physical_store().descriptor()})
      if (descriptor >= 0) found.push_back(descriptor);
  return found;
}

}  // namespace

CUresult Checkpoint::ask(int process, const Request& request, int32_t* value) {
  const Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  const Address address(process);
  if (process <= 0 || ::connect(socket.get(), address.get(), address.length) != 0 ||
      !is_of_this_user(socket, process)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Answer answer{};
  if (::send(socket.get(), &request, sizeof request, MSG_NOSIGNAL) != sizeof request ||
      ::recv(socket.get(), &answer, sizeof answer, 0) != sizeof answer) {
    return CUDA_ERROR_INVALID_VALUE;  // it has ended
  }
  if (answer.result == CUDA_SUCCESS && value != nullptr) *value = answer.value;
  return static_cast<CUresult>(answer.result);
}

void Checkpoint::start() {
  // Never destroyed: its thread may outlive main.
  [[maybe_unused]] static const auto* const made = new Checkpoint;
}

Checkpoint::Checkpoint() : socket_(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
  const Address address(::getpid());
  constexpr int kWaiting = 8;
  if (!socket_.valid() || ::bind(socket_.get(), address.get(), address.length) != 0 ||
      ::listen(socket_.get(), kWaiting) != 0) {
    return;
  }
  const SignalsBlocked blocked;
  std::thread([this] { run(); }).detach();
}

void Checkpoint::run() {
  for (;;) {
    const Fd caller(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (caller.valid()) {
      serve(caller);
    } else if (errno != EINTR && errno != ECONNABORTED) {
      constexpr auto kPause = std::chrono::milliseconds(100);  // no descriptors, perhaps
      std::this_thread::sleep_for(kPause);
    }
  }
}

void Checkpoint::serve(const Fd& caller) {
  constexpr timeval kPatience{1, 0};
  Request request{};
  if (!is_of_this_user(caller, 0) ||
      ::setsockopt(caller.get(), SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof kPatience) != 0 ||
      ::recv(caller.get(), &request, sizeof request, 0) != sizeof request) {
    return;
  }
  Answer given{};
  try {
    given = answer(request);
  } catch (const std::bad_alloc&) {
    given = {CUDA_ERROR_OUT_OF_MEMORY, 0};
  }
  (void)::send(caller.get(), &given, sizeof given, MSG_NOSIGNAL);
}

Checkpoint::Answer Checkpoint::answer(const Request& request) {
  switch (request.order) {
    case Order::kThread:
      return {CUDA_SUCCESS, ::gettid()};
    case Order::kState:
      return {CUDA_SUCCESS, state_};
    case Order::kLock:
      return {lock(request.timeout_ms), 0};
    case Order::kCheckpoint:
      return {checkpoint(), 0};
    case Order::kRestore:
      return {restore(), 0};
    case Order::kUnlock:
      return {unlock(), 0};
  }
  return {CUDA_ERROR_INVALID_VALUE, 0};
}

CUresult Checkpoint::lock(uint32_t timeout_ms) {
  if (state_ != CU_PROCESS_STATE_RUNNING) return CUDA_ERROR_ILLEGAL_STATE;
  std::optional<CallGate::Clock::time_point> deadline;
  if (timeout_ms != 0) deadline = CallGate::Clock::now() + std::chrono::milliseconds(timeout_ms);
  if (!CallGate::close(deadline)) return CUDA_ERROR_NOT_READY;
  if (!finish_work(deadline)) {
    CallGate::open();
    return CUDA_ERROR_NOT_READY;
  }
  state_ = CU_PROCESS_STATE_LOCKED;
  return CUDA_SUCCESS;
}

CUresult Checkpoint::checkpoint() {
  if (state_ != CU_PROCESS_STATE_LOCKED) return CUDA_ERROR_ILLEGAL_STATE;
  if (Driver::get().interprocess().is_shared()) return CUDA_ERROR_NOT_SUPPORTED;
  const std::vector<int> from = descriptors();
  std::vector<FileContents> taken(from.size());
  size_t count = 0;
  const auto put_back = [&] {
    for (size_t i = 0; i < count; ++i)
      if (!taken[i].put_back(from[i])) state_ = CU_PROCESS_STATE_FAILED;
  };
  try {
    while (count < from.size() && taken[count].take_out(from[count])) ++count;
  } catch (const std::bad_alloc&) {
    put_back();
    throw;
  }
  if (count < from.size()) {
    put_back();
    return CUDA_ERROR_OPERATING_SYSTEM;
  }
  contents_ = std::move(taken);
  state_ = CU_PROCESS_STATE_CHECKPOINTED;
  return CUDA_SUCCESS;
}

CUresult Checkpoint::restore() {
  if (state_ != CU_PROCESS_STATE_CHECKPOINTED) return CUDA_ERROR_ILLEGAL_STATE;
  const std::vector<int> to = descriptors();
  for (size_t i = 0; i < to.size(); ++i)
    if (!contents_[i].put_back(to[i])) return CUDA_ERROR_OUT_OF_MEMORY;
  contents_.clear();
  state_ = CU_PROCESS_STATE_LOCKED;
  return CUDA_SUCCESS;
}

CUresult Checkpoint::unlock() {
  if (state_ != CU_PROCESS_STATE_LOCKED) return CUDA_ERROR_ILLEGAL_STATE;
  state_ = CU_PROCESS_STATE_RUNNING;
  CallGate::open();
  return CUDA_SUCCESS;
}

}  // namespace fargpu::sim
