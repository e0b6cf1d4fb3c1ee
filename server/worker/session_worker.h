// SessionWorker: the parts of a session behind the interfaces of generated dispatch code (Worker)
// and of the executor.
//
// On the executor's thread. Nothing here waits for the GPU: long work is deferred.
#pragma once

#include <algorithm>

#include "common/transport/transport.h"
#include "server/handover/session_statistics.h"
#include "server/handover/worker_messages.h"
#include "server/object/request.h"
#include "server/session/session_parts.h"

namespace fargpu::server {

class SessionWorker final : public Worker {
 public:
  // All outlive the worker.
  SessionWorker(const DriverTable& driver, transport::Transport& transport,
                SessionStatistics& statistics, CapturedOutput& output, const SessionSetup& setup)
      : parts_(driver, transport, statistics.memory_used_bytes, output, setup) {}

  // Worker
  const DriverTable& driver() override { return parts_.core.driver; }
  SessionParts& parts() override { return parts_; }
  rpc::Responder& responder() override { return parts_.responder; }
  CUresult enter_context(uint16_t context) override { return parts_.contexts.enter(context); }
  CUresult find(rpc::HandleKind kind, uint64_t id, void** handle) override;
  CUresult submit(uint64_t stream_id, FrameStream* stream) override {
    const CUresult result = parts_.core.find_stream(stream_id, stream);
    if (result != CUDA_SUCCESS) return result;
    parts_.told_streams.work_enters(*stream);
    return parts_.copy_fences.before_work(*stream);
  }
  CUresult add(rpc::HandleKind kind, uint64_t id, void* handle, uint16_t context,
               uint64_t parent) override {
    return parts_.handles.add(kind, id, {handle, parent, context});
  }
  void remove(uint64_t id) override { parts_.end_object(id); }
  CUresult charge(uint64_t bytes) override { return parts_.memory.charge(bytes); }
  void refund(uint64_t bytes) override { parts_.memory.refund(bytes); }
  void remember_allocation(CUdeviceptr pointer, uint64_t bytes) override {
    parts_.memory.remember(pointer, bytes);
  }
  void forget_allocation(CUdeviceptr pointer) override { parts_.memory.forget(pointer); }
  bool tries_again(const Request& request) override;
  void before_error() override;
  void defer(std::function<bool()> poll) override { parts_.pending.add(std::move(poll)); }

  // For the executor.
  bool has_pending() const {
    return !parts_.pending.empty() || parts_.ordered_copies.outstanding() ||
           parts_.host_gate.any_to_poll();
  }
  // How many calls wait, for the GPU or for a helper thread.
  size_t waits() const { return std::max(parts_.pending.size(), parts_.completion.queued()); }
  // Whether poll() has anything to do now. Takes no lock, so it may miss a task that another thread
  // posts at the same time.
  bool has_work() const { return has_pending() || parts_.posted.any(); }
  // When poll() must run next although nothing is pending.
  transport::Deadline next_look() const {
    return std::min(parts_.host_gate.next_look(), parts_.memory.next_look());
  }
  // Runs posted tasks and polls pending work once. Returns how many of them are done.
  size_t poll();
  // Memory for the bulk bytes of the current frame; its handler takes them by
  // SessionParts::take_bulk(). `context`: the session whose GPU they are for; 0: none, and they are
  // let go of with the frame.
  Result<std::span<std::byte>> receive_bulk(uint64_t bytes, uint16_t context);
  // The same for bytes that a copy has asked for; `body` is that of fgFetched.
  Result<std::span<std::byte>> receive_fetched(std::span<const std::byte> body, uint64_t bytes);
  Timeline& timeline() { return parts_.timeline; }
  // A frame is about to be executed.
  void begin_frame(uint16_t opcode) { parts_.pending.begin_frame(opcode); }
  // Replies with the unfinished work (Inspection of control.capnp).
  Status describe(const wire::FrameHeader& request);
  // No helper thread is in a driver call and no host function runs.
  bool quiet();
  // Nothing of the session works, on the GPU or beside it.
  bool idle();
  // The executor fills in `calls` and its own fields.
  WorkerReport report();
  // After a frame: releases bulk memory that its handler did not take.
  void drop_bulk() {
    if (parts_.bulk) [[unlikely]]
      parts_.bulk = StagingBlock();
  }

 private:
  SessionParts parts_;
  bool trying_again_ = false;
};

}  // namespace fargpu::server
