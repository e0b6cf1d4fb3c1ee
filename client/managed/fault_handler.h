// The process's handler of SIGSEGV, which lets accesses to managed memory go on.
//
// A fault outside of managed memory goes to the handler that was installed before, or ends the
// process as it would without this one. Any thread.
#pragma once

#include <cstdint>

namespace fargpu::client {

class FaultService;
class ManagedMemory;

// Installs the handler, again if the application has installed another one meanwhile, which is then
// called for other faults.
void install_fault_handler();

// Accesses in [address, address + bytes) are `memory`'s from now on, until they are not watched.
void watch_faults(uint64_t address, uint64_t bytes, ManagedMemory& memory, FaultService& service);
void unwatch_faults(uint64_t address);

// In a forked child, which has none of its parent's managed memory: an access says so, and faults
// for good.
void refuse_faults_after_fork();

}  // namespace fargpu::client
