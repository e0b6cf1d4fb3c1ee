// HostPages: the worker's half of host memory that the application and device code share without
// having one memory. It holds mirrors at the client's addresses, registered with the driver, so
// that device code uses the client's pointers. client/hostmem/pages.h is the other half.
//
// A region is any range of bytes. First its pages are reserved in this process, where nothing else
// may be mapped. map() then makes memory of them and registers exactly the region's bytes, as the
// application did: a driver refuses an operation that does not lie within one registration. Regions
// may share pages; bytes of a page that belong to no region are never sent. Bytes from the client
// are written here and become the agreed contents. Bytes that differ from the agreed contents were
// written by device code and are sent back. One thread (the executor's), which a thread for large
// pushes helps.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "common/pages/agreement.h"
#include "server/memory/run_placer.h"
#include "server/object/host_budget.h"
#include "server/object/object_end.h"

namespace fargpu::server {

struct DriverTable;

class HostPages {
 public:
  // How many bytes one fetch() compares at most: the executor has other work, too.
  static constexpr size_t kScanBytes = size_t{16} << 20;

  explicit HostPages(const DriverTable& driver,
                     HostBudgetPointer budget = std::make_shared<HostBudget>())
      : driver_(driver), budget_(std::move(budget)) {}
  ~HostPages();
  HostPages(const HostPages&) = delete;
  HostPages& operator=(const HostPages&) = delete;

  // Keeps the region's pages free for it. CUDA_ERROR_INVALID_VALUE: no such range, or it overlaps a
  // region; CUDA_ERROR_ALREADY_MAPPED: this process has something else there
  // (CUDA_ERROR_NOT_SUPPORTED in a worker with a sanitizer).
  CUresult reserve(uint64_t address, uint64_t bytes);
  // The region, reserved or new, gets memory that device code may use: zeros. As reserve(), and
  // CUDA_ERROR_OUT_OF_MEMORY: over the budget; otherwise the driver's error. `context` is current;
  // the memory goes with it. `flags`: of cuMemHostRegister; of them CU_MEMHOSTREGISTER_READ_ONLY
  // counts, where the driver knows it.
  CUresult map(uint64_t address, uint64_t bytes, uint16_t context, unsigned flags,
               CUdeviceptr* device_pointer);
  // Ends a region of either kind, which nothing that runs may use. CUDA_ERROR_NOT_MAPPED: there is
  // none that begins there. *leaving: the registration that has to be withdrawn, if any.
  CUresult unmap(uint64_t address, std::vector<uint64_t>* leaving);
  // The context is going to be destroyed: its mappings become reservations. Returns the
  // registrations to withdraw before, in that context.
  std::vector<uint64_t> take_context(uint16_t context);
  void context_ended(ContextEnd& end);
  // Ends a registration with the driver. Any thread: the driver may wait.
  CUresult withdraw(uint64_t address) const;
  // That was done.
  void left(std::span<const uint64_t> withdrawn);
  // The context of the mapped region that begins there; 0: there is none, or it is only reserved.
  uint16_t mapped_in(uint64_t address) const;
  // A registration in this range is being withdrawn: reserve() and map() must wait.
  bool is_leaving(uint64_t address, uint64_t bytes) const;

  using Push = RunPlacer::Push;
  // Applies byte runs of the client. CUDA_ERROR_INVALID_VALUE for runs that are malformed or lie
  // outside of mapped regions: none is applied, and what was agreed on is unknown.
  CUresult push(const Push& push);
  // The same beside the executor. The runs stay where they are until kMostBeside further calls have
  // returned, or until settle() has. Every other function here settles first.
  CUresult push_beside(const Push& push);
  static constexpr size_t kMostBeside = RunPlacer::kMost;
  // All is in place: to be called before whatever may look at the memory.
  void settle() {
    if (placer_.any()) placer_.wait();
  }
  uint64_t pushes() const { return pushes_; }
  // Writes runs of the bytes that device code has changed, from the address `from` on. Returns the
  // address at which to continue, or 0 at the end.
  uint64_t fetch(uint64_t from, pages::RunWriter& runs);
  // fetch() leaves out the mapped region that begins there, or no longer. CUDA_ERROR_NOT_MAPPED:
  // there is none.
  CUresult set_on_demand(uint64_t address, bool on_demand);
  // fetch() of [address, address + bytes), at most kScanBytes of one mapped region, which is looked
  // at until it stays the same for a look, but no more than kMostLooks times. nullopt: no such
  // part.
  std::optional<uint64_t> fetch_part(uint64_t address, uint64_t bytes, pages::RunWriter& runs);
  static constexpr int kMostLooks = 8;

 private:
  // Pages that were taken together, for the first region that needed them.
  struct Block {
    uint64_t bytes = 0;
    size_t regions = 0;     // that overlap it, including regions that are leaving
    size_t registered = 0;  // of them; the others need no memory
  };
  struct Region {
    uint64_t bytes = 0;
    uint16_t context = 0;                         // mapped: in this one
    std::optional<pages::Agreement> agreement{};  // mapped
    bool on_demand = false;
  };
  // A registration that is being withdrawn.
  struct Leaving {
    uint64_t bytes = 0;
    bool ends = false;  // the region has gone, too
  };
  using Blocks = std::map<uint64_t, Block>;
  using Regions = std::map<uint64_t, Region>;

  bool overlaps(uint64_t address, uint64_t bytes) const;
  // Calls visit(block) for the blocks of the region, in order, while it returns CUDA_SUCCESS.
  template <typename Visit>
  CUresult each_block(uint64_t address, uint64_t bytes, Visit&& visit);
  CUresult take_pages(uint64_t address, uint64_t bytes);
  void give_back_pages(uint64_t address, uint64_t bytes);
  CUresult enroll(uint64_t address, uint64_t bytes, unsigned flags, CUdeviceptr* device_pointer);
  // The region's bytes are no longer registered. Frees pages without registered bytes.
  void drop_memory(uint64_t address, uint64_t bytes);
  Regions::iterator region_at(uint64_t address, uint64_t bytes);
  // Whether the runs are well-formed and lie in mapped regions.
  bool is_valid(std::span<const std::byte> runs);
  void place(const Push& push);

  CUresult map_paid(uint64_t address, uint64_t bytes, uint16_t context, unsigned flags,
                    CUdeviceptr* device_pointer);
  // Of a region with memory: the mirror, and the agreed contents.
  static uint64_t cost(uint64_t address, uint64_t bytes);

  const DriverTable& driver_;
  const HostBudgetPointer budget_;
  Blocks blocks_;    // by address; they never overlap
  Regions regions_;  // likewise
  std::map<uint64_t, Leaving> leaving_;
  uint64_t pushes_ = 0;
  RunPlacer placer_{[this](const Push& push) { place(push); }};
};

}  // namespace fargpu::server
