// SharedHost: host memory that client and worker share: a memfd of the client, mapped at the
// client's addresses and registered with the driver. The GPU reads and writes the application's own
// memory.
//
// Descriptors are untrusted. Each must be a memfd that can never shrink (else touching it could
// kill this process) and has the announced length. A mapping belongs to the context in which it was
// registered, and ends with it. One thread (the executor's), except enroll() and withdraw(): the
// driver takes a tenth of a second for half a gigabyte, and calls nothing of ours meanwhile.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "server/object/host_budget.h"
#include "server/object/object_end.h"

namespace fargpu::transport {
class DescriptorPassing;
}

namespace fargpu::server {

struct DriverTable;

class SharedHost {
 public:
  // Memory that stays mapped as long as this object is held.
  class Mapping {
   public:
    // The bytes were taken from `budget`.
    Mapping(std::byte* base, size_t bytes, uint16_t context, HostBudgetPointer budget);
    ~Mapping();
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;
    std::byte* base() const { return base_; }
    uint64_t address() const { return reinterpret_cast<uint64_t>(base_); }
    size_t bytes() const { return bytes_; }  // whole pages
    uint16_t context() const { return context_; }

   private:
    std::byte* const base_;
    const size_t bytes_;
    const uint16_t context_;
    const HostBudgetPointer budget_;  // the last holder may be any thread
  };
  using MappingPointer = std::shared_ptr<const Mapping>;

  // `budget`: it is the client's memory, but the worker makes it stay in RAM.
  explicit SharedHost(const DriverTable& driver,
                      HostBudgetPointer budget = std::make_shared<HostBudget>())
      : driver_(driver), budget_(std::move(budget)) {}
  ~SharedHost();
  SharedHost(const SharedHost&) = delete;
  SharedHost& operator=(const SharedHost&) = delete;

  // Takes descriptor `number`, which is closed in any case, and maps it. `passing` may be null:
  // CUDA_ERROR_NOT_SUPPORTED. CUDA_ERROR_INVALID_HANDLE: there is no such descriptor;
  // CUDA_ERROR_INVALID_VALUE: a wrong address or size, or memory that is not sealed or too short;
  // CUDA_ERROR_ALREADY_MAPPED: the range is in use in this process; CUDA_ERROR_OUT_OF_MEMORY: over
  // the budget. `context`: the one that it is going to be registered in.
  CUresult map(transport::DescriptorPassing* passing, uint64_t number, uint64_t address,
               size_t bytes, uint16_t context, MappingPointer* mapping);
  // Registers it in the current context. Any thread.
  CUresult enroll(const Mapping& mapping, CUdeviceptr* device_pointer) const;
  // Registered memory is known from here on.
  void add(MappingPointer mapping);

  // Not known any more; null when nothing begins there. It is still registered.
  MappingPointer remove(uint64_t address);
  // Ends the registration: the memory's context is current, and idle. Any thread.
  CUresult withdraw(const Mapping& mapping) const;
  // The context is going to be destroyed: its registrations are forgotten, and must be withdrawn
  // before.
  std::vector<MappingPointer> take_context(uint16_t context);
  void context_ended(ContextEnd& end);

  // The mapping that holds all of [address, address + bytes); null when none does.
  MappingPointer find(uint64_t address, uint64_t bytes) const;

 private:
  const DriverTable& driver_;
  const HostBudgetPointer budget_;
  std::map<uint64_t, MappingPointer> mappings_;  // by address
};

}  // namespace fargpu::server
