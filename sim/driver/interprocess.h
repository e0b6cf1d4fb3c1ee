// Interprocess: memory and events of a simulated GPU that other processes on this machine use, by
// handles of 64 bytes.
//
// A handle names the exporting process and its descriptors, which importers open through /proc: the
// memory file of the GPU, a page about the export, the page of an event. So a handle ends with its
// process; opened objects stay. Thread safe.
#pragma once

#include <cuda.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "common/host/shared_page.h"
#include "sim/memory/allocation_map.h"

namespace fargpu::sim {

class Pool;

// The records and the waits of an event that several processes have. A wait is for the record that
// was the newest when it began, of whichever process: a later one, in another stream, may be
// reached first. A record whose process has died counts as reached.
class SharedEvent {
 public:
  static Result<SharedEvent> create();
  static Result<SharedEvent> open(Fd page, uint64_t key);
  SharedEvent(SharedEvent&&) = default;

  uint64_t begin_record() const;
  void reached(uint64_t record) const;
  uint64_t newest() const;
  bool is_reached(uint64_t record) const;
  void wait(uint64_t record) const;
  uint64_t key() const;
  int descriptor() const { return page_.descriptor(); }

 private:
  // The state of a record, until the record whose number is larger by kRecords is reached.
  struct Record {
    std::atomic<uint64_t> reached;  // its number, or that of an earlier one
    std::atomic<int32_t> process;
  };
  static constexpr size_t kRecords = 64;
  struct Page {
    std::atomic<uint64_t> key, begun, submitted;
    std::array<Record, kRecords> records;
  };
  Record& place_of(uint64_t record) const { return page_->records[record % kRecords]; }
  explicit SharedEvent(SharedValue<Page> page) : page_(std::move(page)) {}
  SharedValue<Page> page_;
};

class Interprocess {
 public:
  CUresult export_memory(const Allocation& allocation, CUipcMemHandle* handle);
  // `as`: whose the memory becomes.
  CUresult open_memory(Allocation as, const CUipcMemHandle& handle, CUdeviceptr* address);
  // Memory of a pool that other processes may import.
  CUresult export_pointer(const Allocation& allocation, const Pool& pool,
                          CUmemPoolPtrExportData* data);
  CUresult import_pointer(const Pool& pool, const CUmemPoolPtrExportData& data,
                          CUdeviceptr* address);
  CUresult close_memory(CUdeviceptr address);
  int times_open(CUdeviceptr address);  // 0: not at all
  // A pool has one handle, however often it is imported. nullptr: it was not, or was destroyed.
  std::shared_ptr<Pool> imported_pool(uint64_t key);
  void enter_imported(const std::shared_ptr<Pool>& pool);
  // Whether other processes may have memory of this one, or this one has memory of others.
  bool is_shared();
  // An allocation has gone: it can be opened no more; opened memory is unmapped.
  void ended(const Allocation& allocation);

  static CUresult export_event(const SharedEvent& event, CUipcEventHandle* handle);
  static std::optional<SharedEvent> open_event(const CUipcEventHandle& handle, CUresult* result);

 private:
  static constexpr size_t kSlots = 8191;
  struct Exports {
    std::atomic<uint64_t> key;
    std::array<std::atomic<uint64_t>, kSlots> live;  // buffer ids; 0: free
  };
  struct Opened {
    uint64_t reserved = 0, bytes = 0;  // addresses
    int count = 0;
    uint64_t key = 0, id = 0;
  };
  struct Name;
  bool begin();  // needs mutex_
  CUresult name_memory(const Allocation& allocation, Name* name);
  CUresult map_memory(const Name& name, Allocation as, CUdeviceptr* address);

  std::mutex mutex_;
  std::optional<SharedValue<Exports>> exports_;
  std::map<uint64_t, size_t> slots_;  // by buffer id of own allocations
  std::map<CUdeviceptr, Opened> opened_;
  std::map<uint64_t, std::weak_ptr<Pool>> imported_pools_;  // by key
};

}  // namespace fargpu::sim
