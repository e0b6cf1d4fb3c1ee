// The session: the connection to a worker, the snapshot of its GPUs, and the tables of everything
// that the application has made there.
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
#include <string>
#include <vector>

#include "client/copy/ordered_copies.h"
#include "client/memory/address_map.h"
#include "client/memory/hidden_memory.h"
#include "client/memory/pages.h"
#include "client/memory/remote_host.h"
#include "client/memory/shared_host.h"
#include "client/memory/staging_ring.h"
#include "client/memory/value_waits.h"
#include "client/object/context.h"
#include "client/object/device.h"
#include "client/object/handle_table.h"
#include "client/process/output.h"
#include "client/process/settings.h"
#include "client/process/uploads.h"
#include "client/stream/host_calls.h"
#include "client/stream/queue_limit.h"
#include "client/stream/stream_queue.h"
#include "common/rpc/channel.h"

namespace fargpu::client {

// What the worker said in its Welcome.
struct Snapshot {
  uint64_t session_id = 0;
  std::string server_version;
  int driver_version = 0;
  std::string driver_name;
  std::vector<Device> devices;    // visible ones, in the application's order
  std::vector<bool> unavailable;  // by opcode: the server's driver lacks it
  uint64_t max_bulk_bytes = 0;
  uint32_t max_body_bytes = 0;
};

// What a session asks of the rooms above it, which make calls. Given by connect().
struct SessionHooks {
  OrderedCopies::Wire (*wire_of_copies)(Session& session);
  // Before a function of the application runs, and when it has returned: on their thread.
  void (*before_host_function)(Session& session);
  void (*host_function_returned)(Session& session, uint64_t id);
  // Sends values that streams may be waiting for, if the application has stored one: on the thread
  // of ValueWaits.
  void (*look_at_values)(Session& session);
};

class Session final : public rpc::NoticeSink {
 public:
  Session(Settings settings, Snapshot snapshot, const SessionHooks& hooks);
  // The connection, after the hello. Once, before anything is called.
  void attach(std::unique_ptr<transport::Transport> transport, rpc::ChannelOptions options);

  const Settings settings;
  const Snapshot snapshot;
  HandleTable handles;
  ContextTable contexts;
  AddressMap device_memory;
  AddressMap host_memory;
  AddressMap reservations;  // of cuMemAddressReserve, with memory or without
  Pages pages;
  HiddenMemory hidden_memory;
  SharedHost shared_host;
  RemoteHost remote_host;
  StagingRings staging_rings;
  ImageUploads image_uploads;
  HostCalls host_calls;
  OrderedCopies ordered_copies;
  ValueWaits value_waits;
  QueueLimit queue_limit;
  // Waits for values in memory that were put into streams.
  std::atomic<uint64_t> memory_waits{0};
  QueueMarks queue_marks;
  Output output;

  rpc::Channel& channel() { return *channel_; }
  bool has_channel() const { return channel_ != nullptr; }
  const Device* device(int ordinal) const;
  // The largest piece of one copy.
  uint64_t piece_bytes() const { return piece_bytes_; }
  // Whether images are to be packed on their way, as far as that makes them smaller.
  bool packs_images() const { return packs_images_; }
  uint64_t next_buffer_id() { return next_buffer_id_.fetch_add(1, std::memory_order_relaxed); }
  struct DevicePools {
    uint64_t default_pool = 0;  // handles; 0: not asked for
    uint64_t current_pool = 0;  // 0: the default one
  };
  std::mutex pools_mutex;
  std::map<int, DevicePools> pools;  // by visible ordinal; guarded by pools_mutex
  // How many notices with device output or bytes of copies have come.
  std::atomic<uint32_t> outputs_received{0};
  // The opcode of the call that the worker was in when it last said that it lives; 0: none.
  std::atomic<uint32_t> worker_in{0};
  // Kept errors of calls that belonged to no context.
  std::atomic<int> kept{CUDA_SUCCESS};

  // NoticeSink.
  Status on_notice(const wire::FrameHeader& header, rpc::Bytes body, rpc::Bytes bulk) override;
  void on_async_error(uint16_t opcode, uint32_t sequence, uint16_t context,
                      int32_t result) override;
  Result<std::span<std::byte>> notice_buffer(const wire::FrameHeader& header,
                                             rpc::Bytes body) override;
  bool awaits_notices() const override {
    return host_calls.outstanding() || ordered_copies.outstanding();
  }
  void on_lost(const Status& why) override;

 private:
  Status on_delivery(rpc::Bytes body, rpc::Bytes bulk);
  Status on_fetch(rpc::Bytes body);

  std::unique_ptr<rpc::Channel> channel_;
  const uint64_t piece_bytes_;
  bool packs_images_ = false;
  std::atomic<uint64_t> next_buffer_id_{1};
};

// In client/connect.cc, which puts the library together. Connects, says hello, waits for the
// worker, and gives the session its hooks. The Status' code tells the kinds of failure apart
// (process.cc makes a CUresult of it).
Result<std::unique_ptr<Session>> connect(Settings settings);

}  // namespace fargpu::client
