#include "client/nvml/library.h"

#include <fmt/core.h>
#include <pthread.h>

#include <atomic>
#include <new>
#include <set>

#include "client/settings/job.h"
#include "common/base/descriptors.h"
#include "common/base/log.h"
#include "common/bootstrap/connect.h"
#include "common/host/thread.h"

namespace fargpu::nvml {
namespace {

// In the upper half of a handle, so that another number is seldom taken for one.
constexpr uint64_t kHandle = uint64_t{0x6e766d6c} << 32;
// Answers that are kept at most.
constexpr size_t kMostAnswers = 4096;

// Never destroyed: threads may be inside a call at exit.
struct State {
  std::mutex mutex;
  std::atomic<unsigned> users{0};
  std::shared_ptr<Library> library;  // guarded by mutex; null in a forked child
  std::string told;                  // the last failure that was logged
  // Held while a library ends, after `mutex` if both are. living: those that have connections.
  std::mutex ending;
  std::set<Library*> living;
};

State& state() {
  alignas(State) static char storage[sizeof(State)];
  static State* const made = new (storage) State;
  return *made;
}

// No connection is being made or closed while the process forks, so the child knows them all. A
// fork may wait for that as long as nvmlInit takes.
void before_fork() {
  state().mutex.lock();
  state().ending.lock();
}
void after_fork() {
  state().ending.unlock();
  state().mutex.unlock();
}
// Only this thread exists now. The parent's library is left as it is: others may be inside of it.
void after_fork_in_child() {
  State& all = state();
  for (Library* const parents : all.living) parents->abandon_after_fork();
  all.living.clear();
  new (&all.library) std::shared_ptr<Library>;
  after_fork();
}

nvmlReturn_t result_of(const Status& status) {
  switch (status.code()) {
    case StatusCode::kOk:
      return NVML_SUCCESS;
    case StatusCode::kRefused:
      return NVML_ERROR_NO_PERMISSION;
    case StatusCode::kVersion:
      return NVML_ERROR_LIB_RM_VERSION_MISMATCH;
    case StatusCode::kDriver:
      return NVML_ERROR_LIBRARY_NOT_FOUND;
    case StatusCode::kNoCapacity:
      return NVML_ERROR_INSUFFICIENT_RESOURCES;
    case StatusCode::kNotFound:
    case StatusCode::kLost:
    case StatusCode::kTimeout:
    case StatusCode::kInvalidArgument:  // of a setting: no argument of the call is wrong
      return NVML_ERROR_DRIVER_NOT_LOADED;
    case StatusCode::kSystem:
      return NVML_ERROR_OPERATING_SYSTEM;
    default:
      return NVML_ERROR_UNKNOWN;
  }
}

nvmlReturn_t connect_locked(State& all) {
  log::configure("nvml", log::Level::kWarn);
  auto library = Library::connect();
  if (!library.ok()) {
    const std::string& why = library.status().message();
    if (why != all.told) log::warn("NVML is not available: {}", why);
    all.told = why;
    return result_of(library.status());
  }
  Library* const made = library->get();
  const std::lock_guard lock(all.ending);
  all.living.insert(made);
  all.library = std::shared_ptr<Library>(made, [kept = std::move(*library)](Library*) mutable {
    const std::lock_guard ends(state().ending);
    // Not in a child of fork(), which has left it as it is.
    if (state().living.erase(kept.get()) != 0) kept.reset();
  });
  return NVML_SUCCESS;
}

}  // namespace

Result<std::shared_ptr<Library>> Library::connect() {
  FARGPU_ASSIGN_OR_RETURN(const client::Settings settings, client::read_settings());
  if (settings.server.empty()) {
    return Status(StatusCode::kNotFound,
                  "FARGPU_SERVER is not set; start the program with `fargpu run --server HOST:PORT "
                  "-- ...`");
  }
  const auto servers = bootstrap::split_servers(settings.server);
  if (!servers.ok())
    return Status(servers.status().code(), "FARGPU_SERVER: " + servers.status().message());
  FARGPU_ASSIGN_OR_RETURN(const auto jobs, client::jobs_of_this_process(servers->size()));
  auto library = std::make_shared<Library>();
  bootstrap::DistinctServers distinct;
  std::vector<std::vector<client::Identity>> identities;
  for (size_t i = 0; i < servers->size(); ++i) {
    const std::string& server = (*servers)[i];
    const auto job = jobs.empty() ? std::nullopt : std::optional(jobs[i]);
    Result<std::unique_ptr<Connection>> opened = Status(StatusCode::kSystem, "no thread connected");
    on_own_stack([&] {
      const descriptors::StandardTaken taken;
      opened = Connection::open(server, job, settings);
    });
    if (!opened.ok()) {
      return Status(opened.status().code(),
                    fmt::format("server {}: {}", server, opened.status().message()));
    }
    FARGPU_RETURN_IF_ERROR(distinct.add(server, (*opened)->daemon()));
    auto& own = identities.emplace_back();
    for (const ServersDevice& device : (*opened)->devices()) {
      own.push_back({client::parse_uuid(device.uuid).value_or(client::Uuid{}),
                     static_cast<int>(device.domain)});
    }
    library->connections_.push_back(std::move(*opened));
  }
  client::make_unique(identities);
  for (size_t i = 0; i < servers->size(); ++i) {
    Connection& connection = *library->connections_[i];
    for (size_t place = 0; place < connection.devices().size(); ++place) {
      const ServersDevice& told = connection.devices()[place];
      const client::Identity& identity = identities[i][place];
      const bool renamed = client::parse_uuid(told.uuid) != identity.uuid;
      library->devices_.push_back({&connection, place,
                                   static_cast<unsigned>(library->devices_.size()),
                                   renamed ? client::uuid_text(identity.uuid) : told.uuid, told,
                                   static_cast<uint32_t>(identity.domain)});
    }
  }
  return library;
}

const Device* Library::find(nvmlDevice_t handle) const {
  const uint64_t number = reinterpret_cast<uint64_t>(handle) - kHandle;
  return number >= 1 && number <= devices_.size() ? &devices_[number - 1] : nullptr;
}

nvmlDevice_t Library::handle(const Device& device) {
  return reinterpret_cast<nvmlDevice_t>(kHandle + device.index + 1);
}

bool Library::lost() const {
  for (const auto& connection : connections_) {
    if (connection->lost()) return true;
  }
  return false;
}

void Library::abandon_after_fork() {
  for (const auto& connection : connections_) connection->abandon_after_fork();
}

bool Library::recall(const std::string& question, Answer* answer) {
  const std::lock_guard lock(mutex_);
  const auto found = answers_.find(question);
  if (found == answers_.end()) return false;
  *answer = found->second;
  return true;
}

void Library::remember(const std::string& question, const Answer& answer) {
  const std::lock_guard lock(mutex_);
  if (answers_.size() < kMostAnswers) answers_.emplace(question, answer);
}

nvmlReturn_t initialise() {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  static const int registered = pthread_atfork(before_fork, after_fork, after_fork_in_child);
  (void)registered;
  if (all.library == nullptr) {
    if (const nvmlReturn_t result = connect_locked(all); result != NVML_SUCCESS) return result;
  }
  ++all.users;
  return NVML_SUCCESS;
}

nvmlReturn_t shut_down() {
  State& all = state();
  std::shared_ptr<Library> last;
  const std::lock_guard lock(all.mutex);
  if (all.users == 0) return NVML_ERROR_UNINITIALIZED;
  if (--all.users > 0) return NVML_SUCCESS;
  last.swap(all.library);
  return NVML_SUCCESS;
}

LibraryShare hold() {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  if (all.users == 0) return {nullptr, NVML_ERROR_UNINITIALIZED};
  if (all.library == nullptr) {
    if (const nvmlReturn_t result = connect_locked(all); result != NVML_SUCCESS)
      return {nullptr, result};
  }
  return {all.library, NVML_SUCCESS};
}

}  // namespace fargpu::nvml
