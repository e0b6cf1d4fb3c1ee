// Library: the state of the process between nvmlInit and the last nvmlShutdown: a connection to
// each server of the job, and the job's GPUs as one list. Any thread; its users hold a shared_ptr.
//
// A child of fork() goes on as with NVIDIA's library: handles stay valid, and its first call opens
// connections of its own. It never touches its parent's connections.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "client/nvml/connection.h"
#include "schema/nvml/nvml.h"

namespace fargpu::nvml {

struct Device {
  Connection* connection = nullptr;
  uint64_t place = 0;  // among the connection's devices
  unsigned index = 0;  // in the process
  std::string uuid;
  ServersDevice told;
  uint32_t domain = 0;  // PCI: differs from told.domain if several servers use that domain
};

class Library {
 public:
  // To all servers that the environment names, or none.
  static Result<std::shared_ptr<Library>> connect();

  const std::vector<Device>& devices() const { return devices_; }
  // Null: no such device.
  const Device* find(nvmlDevice_t handle) const;
  static nvmlDevice_t handle(const Device& device);
  // For calls that are about no device.
  Connection& first() { return *connections_.front(); }
  bool lost() const;
  void abandon_after_fork();

  // Answers that never change, by the call's opcode and arguments.
  struct Answer {
    nvmlReturn_t result = NVML_ERROR_UNKNOWN;
    std::vector<uint64_t> outputs;
  };
  bool recall(const std::string& question, Answer* answer);
  void remember(const std::string& question, const Answer& answer);

 private:
  std::vector<std::unique_ptr<Connection>> connections_;
  std::vector<Device> devices_;
  std::mutex mutex_;
  std::unordered_map<std::string, Answer> answers_;  // guarded by mutex_
};

// nvmlInit and nvmlShutdown.
nvmlReturn_t initialise();
nvmlReturn_t shut_down();

// A share of the library, or why there is none.
struct LibraryShare {
  std::shared_ptr<Library> library;
  nvmlReturn_t result = NVML_ERROR_UNINITIALIZED;
};
LibraryShare hold();

}  // namespace fargpu::nvml
