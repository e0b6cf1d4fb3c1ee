#include "client/process/process.h"

#include <pthread.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <new>
#include <string>

#include "client/call/call.h"
#include "client/object/context.h"
#include "client/process/session.h"
#include "client/process/watchdog.h"
#include "common/base/log.h"

namespace fargpu::client {
namespace {

constinit Process process;
// Serialises connecting. Made anew in a forked child, where its owner may not exist.
alignas(std::mutex) constinit std::mutex connect_mutex;
bool handlers_installed = false;
// The text of the last failure that was printed. Not a std::string: it must outlive static
// destructors.
char reported[512];

// Failures to get a GPU are told on stderr whatever the log level: without this line the
// application only says "no device".
void report(const Status& status) {
  char line[sizeof reported];
  std::snprintf(line, sizeof line, "fargpu: %s", status.message().c_str());
  if (std::string_view(line) == reported) return;
  std::snprintf(reported, sizeof reported, "%s", line);
  std::fprintf(stderr, "%s\n", line);
}

}  // namespace

Process& Process::get() { return process; }

CUresult connect_error(const Status& status) {
  switch (status.code()) {
    case StatusCode::kRefused:
      return CUDA_ERROR_NOT_PERMITTED;
    case StatusCode::kVersion:
      return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
    case StatusCode::kNoCapacity:
      return CUDA_ERROR_DEVICE_UNAVAILABLE;
    case StatusCode::kDriver:
      return CUDA_ERROR_SYSTEM_NOT_READY;
    case StatusCode::kInvalidArgument:
      return CUDA_ERROR_INVALID_VALUE;
    case StatusCode::kNotFound:
    case StatusCode::kLost:
    case StatusCode::kTimeout:
      return CUDA_ERROR_NO_DEVICE;
    default:
      return CUDA_ERROR_UNKNOWN;
  }
}

CUresult Process::check() const {
  switch (state()) {
    case ProcessState::kReady:
      return CUDA_SUCCESS;
    case ProcessState::kLost:
      return CUDA_ERROR_DEVICE_UNAVAILABLE;
    case ProcessState::kExiting:
      return CUDA_ERROR_DEINITIALIZED;
    default:
      return CUDA_ERROR_NOT_INITIALIZED;
  }
}

void Process::install_handlers() {
  if (handlers_installed) return;
  handlers_installed = true;
  // Registered at the first connection, so that it runs before what was registered earlier, such as
  // the unloading of modules by a static runtime: that then finds DEINITIALIZED, as with the native
  // driver.
  std::atexit([] { process.on_exit(); });
  pthread_atfork(nullptr, nullptr, [] { process.on_fork_child(); });
}

CUresult Process::connect_locked() {
  if (session() != nullptr) return CUDA_SUCCESS;
  log::configure("client", log::Level::kWarn);
  Result<Settings> settings = read_settings();
  Status status = settings.status();
  if (settings.ok()) {
    Result<std::unique_ptr<Session>> session = connect(std::move(*settings));
    status = session.status();
    if (session.ok()) {
      install_handlers();
      Session* const made = session->release();
      session_.store(made, std::memory_order_release);
      if (made->settings.watchdog.count() > 0) watchdog::start(*made, made->settings.watchdog);
      return CUDA_SUCCESS;
    }
  }
  report(status);
  return connect_error(status);
}

CUresult Process::initialise() {
  switch (state()) {
    case ProcessState::kReady:
      return CUDA_SUCCESS;
    case ProcessState::kFresh:
      break;
    default:
      return check();
  }
  std::lock_guard lock(connect_mutex);
  if (state() != ProcessState::kFresh) return check();
  if (const CUresult result = connect_locked(); result != CUDA_SUCCESS) return result;
  if (session()->channel().lost()) {
    session_lost(*session(), session()->channel().why_lost());
    return CUDA_ERROR_DEVICE_UNAVAILABLE;
  }
  if (session()->snapshot.devices.empty()) {
    report(Status(StatusCode::kNotFound,
                  session()->settings.visible_devices
                      ? "CUDA_VISIBLE_DEVICES leaves none of the session's GPUs visible"
                      : "the server gave this session no GPU"));
    return CUDA_ERROR_NO_DEVICE;
  }
  ProcessState fresh = ProcessState::kFresh;
  state_.compare_exchange_strong(fresh, ProcessState::kReady, std::memory_order_acq_rel);
  return check();
}

int Process::driver_version() {
  if (session() == nullptr && state() == ProcessState::kFresh) {
    std::lock_guard lock(connect_mutex);
    // cuInit will tell why there is no server; asking for the version is no reason to fail.
    connect_locked();
  }
  const Session* current = session();
  const int server = current == nullptr ? CUDA_VERSION : current->snapshot.driver_version;
  return server > 0 && server < CUDA_VERSION ? server : CUDA_VERSION;
}

void Process::session_lost(Session& session, const Status& why) {
  if (this->session() != &session) return;
  if (state() == ProcessState::kExiting || state() == ProcessState::kForked) return;
  state_.store(ProcessState::kLost, std::memory_order_release);
  if (lost_reported_.exchange(true)) return;
  std::fprintf(stderr, "fargpu: the session with %s is lost: %s; every CUDA call now fails\n",
               session.settings.server.c_str(), why.message().c_str());
}

void Process::on_exit() {
  const ProcessState before = state_.exchange(ProcessState::kExiting, std::memory_order_acq_rel);
  if (before == ProcessState::kForked) {
    state_.store(ProcessState::kForked, std::memory_order_release);
    return;
  }
  Session* current = session();
  if (current == nullptr || before == ProcessState::kLost) return;
  current->output.drain();
  constexpr auto kPatience = std::chrono::milliseconds(500);
  current->channel().close(transport::Clock::now() + kPatience);
}

void Process::on_fork_child() {
  // Only this thread exists now. The connection stays with the parent; the objects of the session
  // are left as they are, in case this thread was inside a call.
  new (&connect_mutex) std::mutex;
  Session* current = session_.exchange(nullptr, std::memory_order_acq_rel);
  if (current == nullptr) return;
  current->channel().abandon_after_fork();
  watchdog::abandon_after_fork();
  forget_context_stack();
  // A parent that had only asked for the version leaves its child free to connect by itself.
  if (state() != ProcessState::kFresh)
    state_.store(ProcessState::kForked, std::memory_order_release);
}

}  // namespace fargpu::client
