// ManagedVariables: the variables of modules and libraries that the server's driver keeps in
// managed memory of its own (`__managed__`), at addresses that it has chosen.
//
// Their pages are managed memory of this process like other (managed_memory.h), where these
// addresses are free here. A page may hold variables of several modules, and data of the driver in
// between; so contents travel variable by variable. Code that unloads a module or ends a context
// ends its variables before the worker does: afterwards the driver may have others there. Any
// thread.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "client/managed/managed_memory.h"
#include "client/memory/dual_mapping.h"

namespace fargpu::client {

class FaultService;

class ManagedVariables {
 public:
  struct Variable {
    uint64_t address = 0;
    uint64_t bytes = 0;
    uint64_t owner = 0;          // id of the library, or of a module that is of none
    Context* context = nullptr;  // contents travel in it while it is there
  };
  ManagedVariables(ManagedMemory& memory, FaultService& faults)
      : memory_(memory), faults_(faults) {}

  // Also one that is known already. CUDA_ERROR_NOT_SUPPORTED: something of this process lies at its
  // addresses, or they are none. The memory has its wire, and the service has been started.
  CUresult add(const Variable& variable);
  // Variables for which `ended` is true do not exist any more: an access faults for good.
  std::vector<Variable> end(const std::function<bool(const Variable&)>& ended);
  std::vector<Variable> end_of(uint64_t owner);

 private:
  // All of these need the lock.
  CUresult cover(const Variable& variable);
  void uncover(const Variable& variable);

  ManagedMemory& memory_;
  FaultService& faults_;
  std::mutex mutex_;
  // Guarded by mutex_.
  std::vector<Variable> variables_;
  std::map<uint64_t, DualMapping> pages_;  // by address; each is an allocation of memory_
};

}  // namespace fargpu::client
