// A session: the connection to a worker, the snapshot of its GPUs, and the state of that
// connection. Objects and memory of the application are in the tables of the process (tables.h).
//
// Made by connect(), then used by every thread; never destroyed once the application may have seen
// it (threads may be inside a call at exit). It is the channel's NoticeSink: those functions run on
// whichever thread receives, and neither block nor call.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "client/copy/ordered_copies.h"
#include "client/copy/piece_size.h"
#include "client/hostmem/pages.h"
#include "client/hostmem/remote_host.h"
#include "client/hostmem/shared_host.h"
#include "client/hostmem/staging_ring.h"
#include "client/hostmem/stream_words.h"
#include "client/hostmem/value_waits.h"
#include "client/link/link.h"
#include "client/memory/exposures.h"
#include "client/memory/gated_host.h"
#include "client/memory/hidden_memory.h"
#include "client/object/device.h"
#include "client/process/queue_marks.h"
#include "client/process/tables.h"
#include "client/process/uploads.h"
#include "client/settings/settings.h"
#include "client/stream/amendable_copies.h"
#include "client/stream/host_calls.h"
#include "client/stream/host_turns.h"
#include "client/stream/observers.h"
#include "client/stream/queue_limit.h"
#include "common/rpc/channel.h"
#include "common/wire/opcode_set.h"

namespace fargpu::client {

class ManagedMemory;  // client/managed/managed_memory.h
struct ManagedState;  // client/managed/managed_state.h
namespace timeline {
class SessionTimeline;  // client/timeline/session_timeline.h
}  // namespace timeline

// The worker's Welcome.
struct Snapshot {
  uint64_t session_id = 0;
  int driver_version = 0;
  std::string driver_name;
  std::vector<Device> devices;    // its visible ones, in the application's order
  std::vector<int> capabilities;  // 90 for 9.0: of all its devices, including invisible ones
  wire::OpcodeSet unavailable;    // functions that its driver lacks
  uint64_t max_bulk_bytes = 0;
  uint32_t max_body_bytes = 0;
};

// Which session of the process it is. Given by the process.
struct SessionIdentity {
  Tables& tables;
  unsigned number = 0;   // 0, 1, ...: part of the ids that are made in it
  int first_device = 0;  // the visible ordinal of its first device, if none of its has one yet
};

class Session final : public Link, public rpc::NoticeSink {
 public:
  Session(const SessionIdentity& identity, Settings settings, Link::Server server,
          Snapshot snapshot);
  ~Session() override;
  // The connection, after the hello, and the bulk connection if there is one. Once, before anything
  // is called. A timeline begins to observe it if one is wanted.
  void attach(std::unique_ptr<transport::Transport> transport,
              std::unique_ptr<transport::Transport> bulk, rpc::ChannelOptions options);

  const unsigned number;
  const int first_device;
  const Settings settings;
  const Snapshot snapshot;
  // Of the process; the references name some of them. They also hold entries of other sessions.
  Tables& tables;
  HandleTable& handles;
  ContextTable& contexts;
  AddressMap& device_memory;
  AddressMap& host_memory;
  AddressMap& reservations;
  Output& output;
  Observers observers;  // of the members below
  GatedHost gated_host{observers};
  Pages pages;
  HiddenMemory hidden_memory;
  Exposures exposures;
  const std::unique_ptr<ManagedState> managed_state;
  ManagedMemory& managed;  // of it
  SharedHost shared_host{*this, host_calls, observers};
  RemoteHost remote_host{*this, host_calls};
  StagingRings staging_rings{*this, host_calls, remote_host};
  SessionStreamWords stream_words{*this, host_calls};
  ImageUploads image_uploads;
  HostTurns host_turns;  // outlives the functions of the members below
  HostCalls host_calls{observers};
  OrderedCopies ordered_copies{host_calls, observers};
  AmendableCopies amendable_copies;
  ValueWaits value_waits;
  QueueLimit queue_limit;
  QueueMarks queue_marks{*this};
  // Threads of the rooms above, each made once.
  std::once_flag touches_are_served, reports_are_taken, functions_are_run, copies_are_sent;

  std::unique_ptr<timeline::SessionTimeline> lanes;  // of a trace; null: none are made

  // nullptr: the visible device with this ordinal is none of this session's.
  const Device* device(int ordinal) const {
    // They are consecutive, unless CUDA_VISIBLE_DEVICES mixes devices of several servers.
    const auto index = static_cast<size_t>(static_cast<int64_t>(ordinal) - first_device);
    if (index < snapshot.devices.size() && snapshot.devices[index].ordinal == ordinal) [[likely]]
      return &snapshot.devices[index];
    return find_device(ordinal);
  }
  Owner owner() { return {this, number}; }
  // nullptr: no live object of this session and kind has this id, which may be any value.
  Object* find(rpc::HandleKind kind, uint64_t id) const {
    return rpc::handle_session(id) == number ? handles.find(kind, id) : nullptr;
  }
  Context* find_context(uint16_t wire_id) const { return contexts.find_wire(wire_id, number); }
  // Memory that the application has pinned or registered. Memory of another session counts as
  // registered memory here.
  std::optional<Region> find_host(uint64_t address) {
    auto region = host_memory.find(address);
    if (region && region->session != this) [[unlikely]]
      region = as_registered(*region);
    return region;
  }
  // The region of another session as this session sees it.
  Region as_registered(Region region) {
    region.session = this;
    region.context = nullptr;
    region.device = first_device;
    region.kind = MemoryKind::kRegistered;
    region.flags &= ~static_cast<unsigned>(CU_MEMHOSTALLOC_DEVICEMAP);
    region.shared_at = 0;
    return region;
  }
  // The largest piece of one copy.
  uint64_t piece_bytes() const { return piece_size_.most(); }
  // The most of the next piece that travels in a frame, of a copy of so many bytes.
  uint64_t next_piece_bytes(uint64_t copy) {
    return copy <= PieceSize::kBesideOthers ? piece_size_.most()
                                            : piece_size_.next(channel().meetings());
  }
  // Whether images are sent compressed, where that makes them smaller.
  bool packs_images() const { return packs_images_; }
  uint64_t next_buffer_id() { return next_buffer_id_.fetch_add(1, std::memory_order_relaxed); }
  // Set once, by the process.
  std::atomic<bool> lost{false};
  struct DevicePools {
    uint64_t default_pool = 0;  // handles; 0: not asked for
    uint64_t current_pool = 0;  // 0: the default one
  };
  std::mutex pools_mutex;
  std::map<int, DevicePools> pools;  // by ordinal of the process; guarded by pools_mutex
  // Number of notices received that carry device output or bytes of copies.
  std::atomic<uint32_t> outputs_received{0};
  // The opcode of the call that the worker was executing at its last notice `alive`; 0: none.
  std::atomic<uint32_t> worker_in{0};
  // The kept error of asynchronous calls without a context.
  std::atomic<int> kept{CUDA_SUCCESS};

  // NoticeSink.
  Status on_notice(const wire::FrameHeader& header, rpc::Bytes body, rpc::Bytes bulk) override;
  void on_async_error(uint16_t opcode, uint32_t sequence, uint16_t context,
                      int32_t result) override;
  Result<std::span<std::byte>> notice_buffer(const wire::FrameHeader& header,
                                             rpc::Bytes body) override;
  bool awaits_notices() const override {
    return observers.any(Observers::kHeldStreams | Observers::kCopies);
  }
  void on_lost(const Status& why) override;

 private:
  Status on_delivery(rpc::Bytes body, rpc::Bytes bulk);
  Status on_fetch(rpc::Bytes body);
  Status on_landed(rpc::Bytes body);
  const Device* find_device(int ordinal) const;

  PieceSize piece_size_;
  bool packs_images_ = false;
  std::atomic<uint64_t>& next_buffer_id_;
};

// Connects to all servers that the settings name, says hello and waits for the workers. All
// sessions or none. The Status' code is the kind of failure (process.cc maps it to a CUresult).
Result<std::vector<std::unique_ptr<Session>>> connect(Tables& tables, const Settings& settings);

}  // namespace fargpu::client
