// MemoryAccount: the session's device memory: its allocations, which count against its job's limit
// (server/object/ledger.h), physical memory behind mappings, and the adapter's registrations, which
// go before their memory does. One thread (the executor's).
#pragma once

#include <cuda.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "server/core/contexts.h"
#include "server/memory/array_mappings.h"
#include "server/memory/direct_memory.h"
#include "server/memory/physical_memory.h"
#include "server/memory/pool_reserves.h"
#include "server/object/ledger.h"
#include "server/object/object_end.h"

namespace fargpu::server {

class MemoryAccount {
 public:
  // `published`: the session's memory on all its GPUs, for the daemon. All outlive this.
  MemoryAccount(const DriverTable& driver, Ledger ledger, const Contexts& contexts,
                DirectMemory& direct, std::atomic<uint64_t>& published)
      : driver_(driver),
        ledger_(std::move(ledger)),
        pools_(driver, ledger_.used_on_devices().size()),
        contexts_(contexts),
        direct_(direct),
        published_(published) {}
  MemoryAccount(const MemoryAccount&) = delete;
  MemoryAccount& operator=(const MemoryAccount&) = delete;

  // Before an allocation. OUT_OF_MEMORY: over the limit, also without what pools keep;
  // INVALID_DEVICE: not one of the session's.
  CUresult charge(CUdevice device, uint64_t bytes);
  void refund(size_t device, uint64_t bytes);
  // The last allocation that the job's limit refused is said on the program's stderr, once in a
  // session; or it is not, since it is tried again.
  void tell_refusal();
  void forget_refusal() { refused_.reset(); }
  // On the current context's device.
  CUresult charge(uint64_t bytes);
  void refund(uint64_t bytes) { refund(contexts_.current_device(), bytes); }

  // Charged memory of the current context, and of a pool, which outlives contexts.
  void remember(CUdeviceptr pointer, uint64_t bytes);
  void remember_pool_memory(CUdeviceptr pointer, uint64_t bytes, CUdevice device);
  // It was freed.
  void forget(CUdeviceptr pointer);
  PoolReserves& pools() { return pools_; }
  // What pools and graphs keep is charged, too; asks them where that may have changed.
  void settle(size_t device);
  void settle_kept();
  // After frees: streams reach them, and pools give memory back, without a call. look() is to be
  // called at next_look(); the pause between looks grows from kFirstPause to kLongestPause.
  void look();
  std::chrono::steady_clock::time_point next_look() const { return next_look_; }
  static constexpr std::chrono::milliseconds kFirstPause{20}, kLongestPause{5000};
  // Memory of a graph, charged before, is allocated as long as the graph lives. Memory that a
  // launch has left allocated and that has not been freed outlives the graph.
  void begin_graph_memory(uint64_t bytes, CUdevice device);
  void left_by_graph(CUdeviceptr pointer);
  void freed_by_graph(CUdeviceptr pointer);  // nothing, for memory that no graph has left
  void end_graph_memory(CUdeviceptr pointer, uint64_t bytes, CUdevice device);
  // A free that another thread executes: `registered` is to be let go of before.
  struct Free {
    Ledger::FreeId id = 0;
    std::vector<DirectMemory::Registration> registered;
  };
  Free begin_free(CUdeviceptr pointer);
  void end_free(Ledger::FreeId id, CUdeviceptr pointer, bool is_free);

  // Physical memory, charged before.
  void created(uint64_t handle, size_t device, uint64_t bytes) {
    physical_.created(handle, device, bytes);
  }
  // Memory that several sessions have (physical_memory.h). `ended`: it has gone from this one;
  // true: another party refunds it later, and is notified.
  using SharedEnded = std::function<bool(const PhysicalMemory::Refund&)>;
  void when_shared_ended(SharedEnded ended) { shared_ended_ = std::move(ended); }
  PhysicalMemory& physical() { return physical_; }
  // Imported memory is this session's to pay for, also beyond the limit.
  void take_over(uint64_t shared, size_t device, uint64_t bytes);

  // The same for allocations of others that this session has opened, until closed() as often, or
  // forget(), or the end of `context` (0: of none). A number for take_over_opened().
  uint64_t opened(CUdeviceptr pointer, size_t device, uint64_t bytes, uint16_t context);
  void closed(CUdeviceptr pointer);
  void take_over_opened(uint64_t number);
  bool is_open(uint64_t number) const { return find_opened(number) != nullptr; }
  // An allocation of this session's has been freed.
  void when_freed(std::function<void(CUdeviceptr)> freed) { freed_ = std::move(freed); }

  void retained(uint64_t handle, uint64_t address) { physical_.retained(handle, address); }
  void mapped(uint64_t address, uint64_t bytes, uint64_t handle) {
    physical_.mapped(address, bytes, handle);
  }
  PhysicalMemory::UnmapId begin_unmap(uint64_t address, uint64_t bytes) {
    return physical_.begin_unmap(address, bytes);
  }
  void end_unmap(PhysicalMemory::UnmapId id, bool unmapped) {
    refund(physical_.end_unmap(id, unmapped));
  }

  // The tiles of sparse arrays; their previous memory ends when the GPU is done with it.
  ArrayMappings& array_mappings() { return array_mappings_; }
  void end_use(const ArrayMappings::Gone& gone) { refund(physical_.end_use(gone)); }

  // An array or mipmapped array of the current context, charged before; refunded with its end. Its
  // parts have no memory of their own.
  void remember_array(uint64_t id, uint64_t bytes) {
    arrays_[id] = {contexts_.current_device(), bytes};
  }

  // The current context's own memory grows or shrinks: the heap of device code and the like.
  CUresult grow_context(uint64_t bytes);
  void shrink_context(uint64_t bytes);
  // The limit of its threads' stacks, and the local memory of a kernel that is about to run: a
  // driver has that much for all threads that the device runs at once, and keeps it.
  CUresult set_stack(uint64_t bytes);
  CUresult use_local(uint64_t bytes) {
    return bytes <= kUsualStack ? CUDA_SUCCESS : grow_local(bytes);
  }

  void array_ended(const ObjectEnd& end);
  void mipmappedarray_ended(const ObjectEnd& end) { array_ended(end); }
  void memgeneric_ended(const ObjectEnd& end);
  void context_ended(const ContextEnd& end);

  // The allocation that holds all of [address, address + bytes); nullopt: none does.
  std::optional<Ledger::AllocationAt> find(CUdeviceptr address, uint64_t bytes) const {
    return ledger_.find(address, bytes);
  }
  DirectMemory& direct() { return direct_; }
  // The memory limit of the session's job per GPU (0: no limit) and what the job has taken on the
  // current context's.
  uint64_t limit() const { return ledger_.limit(); }
  uint64_t used() const { return ledger_.used_by_job(contexts_.current_device()); }
  // By this session alone, device by device.
  const std::vector<uint64_t>& used_on_devices() const { return ledger_.used_on_devices(); }

 private:
  bool begins_at(CUdeviceptr pointer) const;
  void refund(const PhysicalMemory::Refunds& refunds);
  void remember(CUdeviceptr pointer, uint64_t bytes, size_t device, uint16_t context,
                Ledger::Keeper keeper = Ledger::Keeper::kDriver);
  void look_soon();
  void publish() { published_.store(ledger_.used_everywhere(), std::memory_order_relaxed); }

  // Contexts are made with this for each thread.
  static constexpr uint64_t kUsualStack = 1024;
  struct Charge {
    size_t device;
    uint64_t bytes;
  };
  // A context's own memory, beyond what it was made with.
  struct OwnMemory {
    uint64_t charged = 0;
    uint64_t stack = kUsualStack, local = kUsualStack;
    uint64_t per_thread() const { return std::max(stack, local); }
  };
  OwnMemory& own_memory();
  CUresult grow_local(uint64_t bytes);
  CUresult resize_threads(uint64_t before);
  struct Opened {
    uint64_t number = 0;
    size_t device = 0;
    uint64_t bytes = 0;
    uint16_t context = 0;
    unsigned times = 0;
    bool charged = false;
  };
  using OpenedMemory = std::map<CUdeviceptr, Opened>;
  const Opened* find_opened(uint64_t number) const;
  OpenedMemory::iterator close_opened(OpenedMemory::iterator entry);
  void freed(CUdeviceptr pointer);

  const DriverTable& driver_;
  Ledger ledger_;
  PoolReserves pools_;
  std::optional<Charge> refused_;
  bool told_limit_ = false;
  std::unordered_map<uint64_t, Charge> arrays_;  // by id
  std::unordered_map<uint16_t, OwnMemory> of_contexts_;
  std::set<CUdeviceptr> left_;  // by graphs, and not freed
  PhysicalMemory physical_;
  ArrayMappings array_mappings_{physical_};
  SharedEnded shared_ended_;
  std::chrono::steady_clock::time_point next_look_ = std::chrono::steady_clock::time_point::max();
  std::chrono::milliseconds pause_ = kLongestPause;
  OpenedMemory opened_;
  uint64_t last_opened_ = 0;
  std::function<void(CUdeviceptr)> freed_;
  const Contexts& contexts_;
  DirectMemory& direct_;
  std::atomic<uint64_t>& published_;
};

}  // namespace fargpu::server
