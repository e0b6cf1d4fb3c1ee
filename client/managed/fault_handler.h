// The process's handler of SIGSEGV, which serves accesses to managed memory if page protection
// detects them (DualGate). With userfaultfd it is not installed, except in a forked child
// without another handler, to print the line.
//
// A fault outside of managed memory goes to the handler that was installed before, or ends the
// process as it would without this one. So does an access to the parent's managed memory in a
// forked child, after a line that says so. Any thread.
//
// While an access waits, the thread's other signals wait, too, as their handlers may touch managed
// memory; except signals by which a user ends a program.
#pragma once

#include <cstdint>

namespace fargpu::client {

class FaultService;
class ManagedMemory;

// Installs the handler, again if the application has installed another one meanwhile, which is then
// called for other faults.
void install_fault_handler();

// Faults in [address, address + bytes) are `memory`'s from now on, until they are not watched.
void watch_faults(uint64_t address, uint64_t bytes, ManagedMemory& memory, FaultService& service);
void unwatch_faults(uint64_t address);

}  // namespace fargpu::client
