// SessionWorker: everything that one session has in its worker: contexts, objects, memory, images,
// staging, what is pending. It is what generated dispatch code sees as Worker, and what
// server/manual works with.
//
// Lives on the executor's thread, but for post(). Nothing here waits for the GPU: what takes time
// is deferred.
#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <vector>

#include "common/transport/transport.h"
#include "server/handover/session_statistics.h"
#include "server/image/image_cache.h"
#include "server/image/link_table.h"
#include "server/image/parameter_layouts.h"
#include "server/memory/direct_memory.h"
#include "server/memory/host_pages.h"
#include "server/memory/ordered_copies.h"
#include "server/memory/physical_memory.h"
#include "server/memory/remote_staging.h"
#include "server/memory/shared_host.h"
#include "server/memory/staging.h"
#include "server/object/context_table.h"
#include "server/object/handle_table.h"
#include "server/object/ledger.h"
#include "server/object/pending.h"
#include "server/object/request.h"
#include "server/object/worker_services.h"
#include "server/stream/completion.h"
#include "server/stream/copy_fences.h"
#include "server/stream/event_waits.h"
#include "server/stream/host_gate.h"
#include "server/stream/stream_holds.h"
#include "server/worker/output_capture.h"

namespace fargpu::server {

struct WorkerSetup {
  size_t devices = 1;
  uint64_t memory_bytes = 0;  // per GPU; 0: no limit
  std::string image_folder;
  uint64_t image_cache_bytes = 0;
  wire::FrameLimits client_limits;  // what we may send
  DirectMemory::Options direct;
  JobMemory* job_memory = nullptr;  // outlives the worker; null: the session is alone
};

class SessionWorker final : public Worker, private WorkerServices {
 public:
  // `transport` and `statistics` outlive the worker.
  SessionWorker(const DriverTable& driver, transport::Transport& transport,
                SessionStatistics& statistics, CapturedOutput& output, const WorkerSetup& setup);
  ~SessionWorker() override;

  // Worker
  const DriverTable& driver() override { return driver_; }
  WorkerServices& services() override { return *this; }
  rpc::Responder& responder() override { return responder_; }
  CUresult enter_context(uint16_t context) override;
  CUresult find(rpc::HandleKind kind, uint64_t id, void** handle) override;
  CUresult add(rpc::HandleKind kind, uint64_t id, void* handle, uint16_t context) override;
  void remove(uint64_t id) override;
  CUresult charge(uint64_t bytes) override;
  void refund(uint64_t bytes) override;
  void remember_allocation(CUdeviceptr pointer, uint64_t bytes) override;
  void forget_allocation(CUdeviceptr pointer) override;
  void before_error() override;
  void defer(std::function<bool()> poll) override { pending_.add(std::move(poll), frame_opcode_); }

  // For the executor.
  bool has_pending() const { return !pending_.empty() || ordered_copies_.outstanding(); }
  // Whether poll() has anything to do now, as far as that can be told without a lock.
  bool has_work() const { return has_pending() || any_posted_.load(std::memory_order_relaxed); }
  // When poll() has something to look after although nothing is pending.
  transport::Deadline next_look() const { return host_gate_.next_look(); }
  // Runs what was posted and polls what is pending, once; how many of them are done.
  size_t poll();
  // Where the bulk bytes of the frame under way go; take_bulk() hands the memory to the frame's
  // handler.
  // `context`: whose GPU they are for; 0: for none.
  Result<std::span<std::byte>> receive_bulk(uint64_t bytes, uint16_t context);
  // The same for bytes that a copy has asked for; `body` is that of fgFetched.
  Result<std::span<std::byte>> receive_fetched(std::span<const std::byte> body, uint64_t bytes);
  // A frame is about to be executed.
  void begin_frame(uint16_t opcode) { frame_opcode_ = opcode; }
  // Replies with what is not finished (Inspection of control.capnp).
  Status describe(const wire::FrameHeader& request);
  // The frame is executed: memory that its handler did not take is free again.
  void drop_bulk() { bulk_ = StagingBlock(); }

 private:
  // WorkerServices
  CUresult add_child(rpc::HandleKind kind, uint64_t id, void* handle, uint16_t context,
                     uint64_t parent) override {
    return handles_.add(kind, id, {handle, parent, context});
  }
  void replace_handle(uint64_t id, void* handle) override { handles_.replace(id, handle); }
  uint16_t context_of(uint64_t id) const override {
    const HandleTable::Entry* entry = handles_.find(id);
    return entry == nullptr ? uint16_t{0} : entry->context;
  }
  CUresult bind_context(uint16_t id, CUcontext context, CUdevice device) override;
  CUcontext find_context(uint16_t id) override;
  void unbind_context(uint16_t id) override;
  CUresult borrow_context() override;
  void return_borrowed_context() override;
  std::span<void* const> streams_of(uint16_t context) const override {
    return handles_.streams(context);
  }
  std::vector<uint16_t> context_ids() const override { return contexts_.ids(); }
  uint16_t current_context() const override { return current_; }
  int device_count() const override { return static_cast<int>(setup_.devices); }
  ImageCache& images() override { return images_; }
  Result<Image> find_image(std::span<const std::byte> hash) override;
  StagingBlock take_bulk() override { return std::move(bulk_); }
  StagingPool& staging() override { return staging_; }
  Completion& completion() override { return completion_; }
  EventWaits& event_waits() override { return event_waits_; }
  CopyFences& copy_fences() override { return copy_fences_; }
  CUresult look_up_stream(uint64_t id, CopyFences::Stream* stream) const override;
  HostGate& host_gate() override { return host_gate_; }
  StreamHolds& stream_holds() override { return stream_holds_; }
  HostPages& host_pages() override { return host_pages_; }
  RemoteStaging& remote_staging() override { return remote_staging_; }
  DirectMemory& direct_memory() override { return direct_memory_; }
  std::optional<Ledger::Place> find_allocation(CUdeviceptr address, uint64_t bytes) const override {
    return ledger_.find(address, bytes);
  }
  OrderedCopies& ordered_copies() override { return ordered_copies_; }
  SharedHost& shared_host() override { return shared_host_; }
  transport::DescriptorPassing* descriptor_passing() override {
    return transport_.descriptor_passing();
  }
  LinkTable& links() override { return links_; }
  PhysicalMemory& physical_memory() override { return physical_memory_; }
  ParameterLayouts& parameter_layouts() override { return parameter_layouts_; }
  void post(std::function<void()> task) override;
  Status flush_output() override;
  uint32_t outputs_sent() const override { return outputs_sent_ + ordered_copies_.notices_sent(); }
  CUresult charge_device(CUdevice device, uint64_t bytes) override;
  void refund_device(size_t device, uint64_t bytes) override;
  void remember_pool_memory(CUdeviceptr pointer, uint64_t bytes, CUdevice device) override;
  Ledger::FreeId begin_free(CUdeviceptr pointer) override { return ledger_.begin_free(pointer); }
  void end_free(Ledger::FreeId id, CUdeviceptr pointer, bool freed) override;
  CUresult add_pool(uint64_t id, CUmemoryPool pool, CUdevice device) override;
  CUdevice device_of_pool(uint64_t id) const override;
  CUdevice device_of_context(uint16_t id) override;
  uint64_t memory_limit() const override { return ledger_.limit(); }
  uint64_t memory_used() const override { return ledger_.used_by_job(current_device_); }
  uint64_t max_bulk_bytes() const override { return setup_.client_limits.max_bulk_bytes; }

  void publish_memory();
  // What is captured, in notices of this opcode.
  Status send_output(OutputCapture& capture, uint16_t opcode);

  const DriverTable& driver_;
  transport::Transport& transport_;
  SessionStatistics& statistics_;
  CapturedOutput& output_;
  const WorkerSetup setup_;
  rpc::Responder responder_;
  ContextTable contexts_;
  HandleTable handles_;
  Ledger ledger_;
  ImageCache images_;
  RemoteStaging remote_staging_;  // outlives the blocks of staging_
  StagingPool staging_;
  DirectMemory direct_memory_;
  HostPages host_pages_;
  SharedHost shared_host_;
  LinkTable links_;
  PhysicalMemory physical_memory_;
  ParameterLayouts parameter_layouts_;
  CopyFences copy_fences_;
  StagingBlock bulk_;
  uint16_t frame_opcode_ = 0;
  uint32_t outputs_sent_ = 0;
  transport::Clock::time_point errors_looked_at_{};
  uint16_t current_ = 0;
  size_t current_device_ = 0;
  CUcontext borrowed_ = nullptr;
  std::mutex posted_mutex_;
  std::vector<std::function<void()>> posted_;  // guarded by posted_mutex_
  std::atomic<bool> any_posted_{false};        // written under posted_mutex_
  // Last, so that they go first: they hold staging blocks, and threads that post.
  PendingList pending_;
  StreamHolds stream_holds_;
  OrderedCopies ordered_copies_;
  EventWaits event_waits_;
  HostGate host_gate_;
  Completion completion_;
};

}  // namespace fargpu::server
