// Sharing: objects that this session has exported to other sessions of its job, and objects
// imported from them.
//
// Nothing of the driver's is kept for an export: it is asked for when another session, or this one,
// imports it. So an export costs no descriptor and keeps nothing alive. It ends with its object in
// this session. Memory that other sessions have imported by then is theirs: they pay for it from
// then on, as they do when this session ends. One thread (the executor's).
#pragma once

#include <cuda.h>

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "server/core/core.h"
#include "server/memory/memory_account.h"
#include "server/sharing/export_handle.h"
#include "server/sharing/peer_links.h"

namespace fargpu::server {

struct ShareSetup {
  PeerLinks* links = nullptr;  // outlives the session; null: there are no other sessions
  ShareIdentity self;
};

class Sharing {
 public:
  Sharing(const Core& core, MemoryAccount& memory, const ShareSetup& setup);
  ~Sharing();
  Sharing(const Sharing&) = delete;
  Sharing& operator=(const Sharing&) = delete;

  // --- exports; the same object has the same export handle. The driver would export all of these.
  // Physical memory with this driver handle.
  CUresult export_memory(uint64_t handle, ExportHandle* export_handle);
  // The allocation around `pointer`, in the current context: kIpcMemory or kPoolMemory.
  CUresult export_allocation(SharedKind kind, CUdeviceptr pointer, ExportHandle* export_handle);
  CUresult export_pool(uint64_t id, ExportHandle* export_handle);
  void mempool_ended(const ObjectEnd& end) { end_export({SharedKind::kPool, end.id}); }
  CUresult export_event(uint64_t id, ExportHandle* export_handle);
  void event_ended(const ObjectEnd& end) { end_export({SharedKind::kIpcEvent, end.id}); }

  // --- imports: `on_fetched` is called once, at once or later: with the driver's handle when the
  // result is CUDA_SUCCESS.
  using OnFetched = std::function<void(CUresult, const ExportHandle&, const PeerAnswer&, Fd)>;
  void fetch(SharedKind kind, std::span<const std::byte> export_handle,
             const OnFetched& on_fetched);
  // The driver has made `handle` of physical memory that was fetched.
  void imported_memory(const ExportHandle& export_handle, const PeerAnswer& answer,
                       uint64_t handle);
  // The same for an allocation; `context`: with which it goes.
  void opened_memory(const ExportHandle& export_handle, CUdeviceptr pointer, size_t device,
                     uint64_t bytes, uint16_t context);

 private:
  // The object of an export: the number of physical memory, the base of an allocation, the id of an
  // event or a pool.
  using Object = std::pair<SharedKind, uint64_t>;
  struct Export {
    ExportHandle export_handle;
    Object object;
    ContextRef context;      // of IPC and of memory of a pool
    uint64_t buffer_id = 0;  // of an allocation: other memory may come to its address
    std::vector<PeerLinks::LinkId> given_to;
  };
  struct Import {          // of physical memory
    uint64_t session = 0;  // that has exported it
    uint64_t memory = 0;
    size_t device = 0;
    uint64_t bytes = 0;
  };
  struct Opened {  // an allocation of another session
    uint64_t session = 0;
    uint64_t number = 0;  // of MemoryAccount
  };
  // Memory that this session has released and that is refunded when its importers are charged for
  // it.
  struct Leaving {
    PhysicalMemory::Refund refund;
    std::vector<PeerLinks::LinkId> unheard;
  };
  CUresult add_export(const Object& object, const Export& given, ExportHandle* export_handle);
  // The links of the importers that were notified of its end.
  std::vector<PeerLinks::LinkId> end_export(const Object& object, ShareSecret* secret = nullptr);
  // For an importer: a descriptor, and the contents of the answer.
  Fd give(const PeerQuestion& question, PeerAnswer* answer);
  CUresult give_memory(const Export& given, PeerAnswer* answer, Fd* descriptor);
  CUresult descriptor_of(const PhysicalMemory::Reach& reach, PeerAnswer* answer, Fd* descriptor);
  CUresult give_pool(const Export& given, PeerAnswer* answer, Fd* descriptor);
  CUresult buffer_id(CUdeviceptr base, uint64_t* id) const;
  CUresult give_handle(const Export& given, PeerAnswer* answer);
  CUresult allocation_handle(const Export& given, PeerAnswer* answer) const;
  CUresult event_handle(const Export& given, PeerAnswer* answer) const;
  // False: no other session has it, and the caller refunds it.
  bool memory_ended(const PhysicalMemory::Refund& refund);
  void heard(PeerLinks::LinkId link, const ShareSecret* secret);
  // Refusals are the program's doing: a few lines say it.
  void note_refusal(const ExportHandle& export_handle);
  void take_over(const Import& import);

  const Core core_;
  MemoryAccount& memory_;
  PeerLinks* const links_;
  const ShareIdentity self_;
  std::map<ShareSecret, Export> exports_;
  std::map<Object, ShareSecret> exported_;
  std::map<ShareSecret, Import> imports_;  // of other sessions
  std::map<ShareSecret, Opened> opened_;
  std::map<ShareSecret, Leaving> leaving_;
  unsigned refusals_ = 0;
};

}  // namespace fargpu::server
