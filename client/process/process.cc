#include "client/process/process.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <memory>
#include <mutex>
#include <new>
#include <string>

#include "client/call/trace.h"
#include "client/object/context.h"
#include "client/process/gpu_tools.h"
#include "client/process/lost_session.h"
#include "client/process/session.h"
#include "client/process/watchdog.h"
#include "client/settings/fetch_mode.h"
#include "client/timeline/session_timeline.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "common/host/thread.h"

namespace fargpu::client {
namespace {

// Serialises connecting. Constructed again in a forked child, where its owner may not exist.
alignas(std::mutex) constinit std::mutex connect_mutex;
constinit std::timed_mutex loss_report_mutex;  // held during a report; the exit waits for it
bool handlers_installed = false;
// The text of the last failure that was printed. Not a std::string: it must outlive static
// destructors.
char reported[512];

// Prints a failure to get a GPU on stderr at every log level: the application itself only says "no
// device".
void report(const Status& status) {
  char line[sizeof reported];
  std::snprintf(line, sizeof line, "fargpu: %s", status.message().c_str());
  if (std::string_view(line) == reported) return;
  std::snprintf(reported, sizeof reported, "%s", line);
  std::fprintf(stderr, "%s\n", line);
}

// Nothing, unless a trace is written that has them.
void start_timelines() {
  if (!trace::chrome()) return;
  Process::get().for_each_session([](const Session& each) {
    if (each.lanes != nullptr) each.lanes->start();
  });
  const auto fetch = [] {
    Process::get().for_each_session([](const Session& each) {
      if (each.lanes != nullptr) each.lanes->fetch_if_half_full();
    });
  };
  trace::after_wait.store(fetch, std::memory_order_release);
}

// Before a session is closed: the process may still read its memory.
void bring_mapped_memory(Session& session) {
  if (!session.pages.any_gated() || session.lost.load()) return;
  // A worker that takes nothing any more must not keep the process from ending.
  constexpr auto kPatience = std::chrono::seconds(5);
  auto brought = std::make_shared<std::promise<void>>();
  auto done = brought->get_future();
  Thread([&session, brought] {
    (void)session.pages.keep_all_open();
    brought->set_value();
  }).detach();
  (void)done.wait_for(kPatience);
}

}  // namespace

constinit Process Process::the_process;

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
    case StatusCode::kInvalidArgument:  // of a setting: no argument of the call is wrong
      return CUDA_ERROR_SYSTEM_NOT_READY;
    case StatusCode::kNotFound:
    case StatusCode::kLost:
    case StatusCode::kTimeout:
      return CUDA_ERROR_NO_DEVICE;
    case StatusCode::kSystem:
      return CUDA_ERROR_OPERATING_SYSTEM;
    default:
      return CUDA_ERROR_UNKNOWN;
  }
}

CUresult Process::result_in(ProcessState state) {
  switch (state) {
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
  std::atexit([] { the_process.on_exit(); });
  pthread_atfork(nullptr, nullptr, [] { the_process.on_fork_child(); });
}

void Process::add(std::unique_ptr<Session> session) {
  FARGPU_CHECK(session->number < kMaxSessions);
  install_handlers();
  tables_.store(&session->tables, std::memory_order_release);
  auto& place = sessions_[session->number];
  place.store(session.release(), std::memory_order_release);
}

CUresult Process::connect_locked() {
  if (session(0) != nullptr) return CUDA_SUCCESS;
  log::configure("client", log::Level::kWarn);
  Result<Settings> settings = read_settings();
  Status status = settings.status();
  if (status.ok()) {
    auto tables = std::make_unique<Tables>();
    auto made = connect(*tables, *settings);
    status = made.status();
    if (made.ok()) {
      const auto limit = settings->watchdog;
      for (auto& session : *made) add(std::move(session));
      (void)tables.release();
      start_timelines();
      if (limit.count() > 0 && !watchdog::enabled()) watchdog::start(limit);
      if (const std::string renamed = renamed_managed_mode(); !renamed.empty())
        log::warn("{}", renamed);
      if (const std::string tool = gpu_tool_of_environment(); !tool.empty())
        log::warn("{}", refusal_of_gpu_tool(tool));
      return CUDA_SUCCESS;
    }
  }
  report(status);
  return connect_error(status);
}

// Nothing was done in them. They stay in memory: another thread may be looking at them.
void Process::drop_sessions_locked() {
  constexpr auto kPatience = std::chrono::milliseconds(500);
  tables_.store(nullptr, std::memory_order_release);
  for (auto& place : sessions_) {
    if (Session* const each = place.exchange(nullptr, std::memory_order_acq_rel))
      each->channel().close(transport::Clock::now() + kPatience);
  }
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
  if (session(0) != nullptr && session(0)->settings.visible_devices != visible_devices_now())
    drop_sessions_locked();
  if (const CUresult result = connect_locked(); result != CUDA_SUCCESS) return result;
  for_each_session([this](Session& each) {
    if (each.channel().lost() && lose(each)) tell_lost(each, each.channel().why_lost());
  });
  if (state() == ProcessState::kLost) return CUDA_ERROR_DEVICE_UNAVAILABLE;
  if (device_count() == 0) {
    report(Status(StatusCode::kNotFound,
                  session(0)->settings.visible_devices
                      ? "CUDA_VISIBLE_DEVICES leaves none of the program's GPUs visible"
                      : "the server gave this session no GPU"));
    return CUDA_ERROR_NO_DEVICE;
  }
  ProcessState fresh = ProcessState::kFresh;
  state_.compare_exchange_strong(fresh, ProcessState::kReady, std::memory_order_acq_rel);
  return check();
}

Session* Process::session_of_device(int ordinal) const {
  for (unsigned i = 0; Session* each = session(i); ++i) {
    if (each->device(ordinal) != nullptr) return each;
  }
  return nullptr;
}

const Device* Process::device(int ordinal) const {
  Session* const session = session_of_device(ordinal);
  return session == nullptr ? nullptr : session->device(ordinal);
}

int Process::device_count() const {
  size_t count = 0;
  for_each_session([&count](const Session& each) { count += each.snapshot.devices.size(); });
  return static_cast<int>(count);
}

int Process::driver_version() {
  if (session(0) == nullptr && state() == ProcessState::kFresh) {
    std::lock_guard lock(connect_mutex);
    // cuInit will tell why there is no server; asking for the version is no reason to fail.
    connect_locked();
  }
  int version = CUDA_VERSION;
  for_each_session([&version](const Session& each) {
    if (each.snapshot.driver_version > 0) version = std::min(version, each.snapshot.driver_version);
  });
  return version;
}

bool Process::lose(Session& session) {
  if (this->session(session.number) != &session) return false;
  if (state() == ProcessState::kExiting || state() == ProcessState::kForked) return false;
  if (session.lost.exchange(true)) return false;
  if (has_session_left())
    session.contexts.lose(session.number);
  else
    state_.store(ProcessState::kLost, std::memory_order_release);
  return true;
}

bool Process::has_session_left() const {
  bool left = false;
  for_each_session([&left](const Session& each) { left |= !each.lost.load(); });
  return left;
}

void Process::tell_lost(const Session& session, const Status& why) {
  const std::lock_guard lock(loss_report_mutex);
  const std::string what = describe_loss(session, why);
  std::fprintf(stderr, "fargpu: the session with %s is lost: %s; %s\n",
               session.settings.server.c_str(), what.c_str(),
               has_session_left() ? "calls for its GPUs now fail"
                                  : "every CUDA call now fails; start the program again");
}

void Process::on_exit() {
  if (state() == ProcessState::kReady) for_each_session(bring_mapped_memory);
  const ProcessState before = state_.exchange(ProcessState::kExiting, std::memory_order_acq_rel);
  if (before == ProcessState::kForked) {
    state_.store(ProcessState::kForked, std::memory_order_release);
    return;
  }
  process_exits.store(true, std::memory_order_release);
  constexpr auto kPatience = std::chrono::milliseconds(500);
  if (loss_report_mutex.try_lock_for(kPatience)) loss_report_mutex.unlock();
  for_each_session([&](Session& each) {
    if (each.lanes != nullptr) each.lanes->finish(transport::Clock::now() + kPatience);
  });
  if (tables() == nullptr || before == ProcessState::kLost) return;
  tables()->output.drain();
  const auto deadline = transport::Clock::now() + kPatience;
  for_each_session([deadline](Session& each) {
    if (!each.lost.load()) each.channel().close(deadline);
  });
}

void Process::on_fork_child() {
  // Only this thread exists now. The connection stays with the parent; the objects of the
  // sessions are left as they are, in case this thread was inside a call.
  new (&connect_mutex) std::mutex;
  if (tables_.exchange(nullptr, std::memory_order_acq_rel) == nullptr) return;
  for (auto& place : sessions_) {
    if (Session* const each = place.exchange(nullptr, std::memory_order_acq_rel))
      each->channel().abandon_after_fork();
  }
  watchdog::abandon_after_fork();
  forget_context_stack();
  // A parent that had only asked for the version leaves its child free to connect by itself.
  if (state() != ProcessState::kFresh)
    state_.store(ProcessState::kForked, std::memory_order_release);
}

}  // namespace fargpu::client
