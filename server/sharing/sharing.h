// Sharing: what this session has exported to other sessions of its job, and what it has of theirs.
//
// Nothing of the driver's is kept for an export: it is asked for when another session, or this one,
// imports it. So an export costs no descriptor and keeps nothing alive. It ends with its object in
// this session. What other sessions have imported by then is theirs: they pay for it from then on,
// as they do when this session ends. One thread (the executor's).
#pragma once

#include <cuda.h>

#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "server/core/core.h"
#include "server/memory/memory_account.h"
#include "server/sharing/peer_links.h"
#include "server/sharing/ticket.h"

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

  // Physical memory with this driver handle, which the driver would export. The same memory has the
  // same ticket.
  CUresult export_memory(uint64_t handle, Ticket* ticket);
  // `on_memory` is called once, at once or later: with a descriptor of the driver's when the result
  // is CUDA_SUCCESS.
  using OnMemory = std::function<void(CUresult, const Ticket&, const PeerAnswer&, Fd)>;
  void fetch_memory(std::span<const std::byte> ticket, const OnMemory& on_memory);
  // The driver has made `handle` of what was fetched.
  void imported_memory(const Ticket& ticket, const PeerAnswer& answer, uint64_t handle);

 private:
  struct Export {
    Ticket ticket;
    uint64_t memory = 0;  // as PhysicalMemory numbers it
    std::vector<PeerLinks::LinkId> given_to;
  };
  struct Import {
    uint64_t session = 0;  // that has exported it
    uint64_t memory = 0;
    size_t device = 0;
    uint64_t bytes = 0;
  };
  // Memory that has gone from here and is refunded when those who have it pay for it.
  struct Leaving {
    PhysicalMemory::Refund refund;
    std::vector<PeerLinks::LinkId> unheard;
  };
  // The descriptor for an importer, and what the answer says.
  Fd give(const PeerQuestion& question, PeerAnswer* answer);
  CUresult descriptor_of(const PhysicalMemory::Reach& reach, PeerAnswer* answer, Fd* descriptor);
  // False: nobody else has it, it is the caller's to refund.
  bool memory_ended(const PhysicalMemory::Refund& refund);
  void heard(PeerLinks::LinkId link, const ShareSecret* secret);
  // Refusals are the program's doing: a few lines say it.
  void note_refusal(const Ticket& ticket);
  void take_over(const Import& import);

  const Core core_;
  MemoryAccount& memory_;
  PeerLinks* const links_;
  const ShareIdentity self_;
  std::map<ShareSecret, Export> exports_;
  std::map<uint64_t, ShareSecret> exported_;  // by number of the memory
  std::map<ShareSecret, Import> imports_;     // of other sessions
  std::map<ShareSecret, Leaving> leaving_;
  unsigned refusals_ = 0;
};

}  // namespace fargpu::server
