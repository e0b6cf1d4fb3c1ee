// SessionParts: everything that one session has in its worker, by responsibility: contexts,
// objects, memory, images, pending operations and waits. Hand-written halves (server/manual) work
// with the parts; the worker's executor owns them.
//
// The place where things end: an object alone or with its parent, a context with what lives in it,
// the session. schema/api/types.yml declares the notified parts. All on the executor's thread, but
// for `posted` and OrderedCopies::asked(). Nothing here waits for the GPU.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <string>

#include "common/transport/transport.h"
#include "common/wire/frame.h"
#include "server/copy/ordered_copies.h"
#include "server/copy/remote_staging.h"
#include "server/copy/staging.h"
#include "server/core/core.h"
#include "server/core/timeline.h"
#include "server/graph/ended_graphs.h"
#include "server/graph/graph_pieces.h"
#include "server/image/parameter_layouts.h"
#include "server/image/session_images.h"
#include "server/memory/direct_memory.h"
#include "server/memory/host_pages.h"
#include "server/memory/memory_account.h"
#include "server/memory/shared_host.h"
#include "server/object/device_resources.h"
#include "server/object/kept_objects.h"
#include "server/object/object_end.h"
#include "server/session/daemon_images.h"
#include "server/sharing/ended_sessions.h"
#include "server/sharing/sharing.h"
#include "server/stream/completion.h"
#include "server/stream/copy_fences.h"
#include "server/stream/event_waits.h"
#include "server/stream/host_gate.h"
#include "server/stream/stream_events.h"
#include "server/stream/stream_holds.h"
#include "server/stream/stream_stock.h"
#include "server/stream/told_streams.h"

namespace fargpu::server {

struct SessionSetup {
  size_t devices = 1;
  uint64_t memory_bytes = 0;        // per GPU; 0: no limit
  uint64_t image_bytes = 0;         // of the largest image
  wire::FrameLimits client_limits;  // what we may send
  DirectMemory::Options direct;
  JobMemory* job_memory = nullptr;  // outlives the session; null: it is alone in its job
  ShareSetup sharing;
  EndedSessions::Source daemon;
  uint64_t host_bytes = 0;  // HostBudget; 0: the usual limit
  uint64_t ptx_bytes = 0;   // of an image that is compiled; 0: no limit
};

struct SessionParts {
  // `memory_used`: published for the daemon. The references outlive the session.
  SessionParts(const DriverTable& driver, transport::Transport& transport,
               std::atomic<uint64_t>& memory_used, CapturedOutput& captured,
               const SessionSetup& setup);
  // The session ends: no stream is held any more.
  ~SessionParts();
  SessionParts(const SessionParts&) = delete;
  SessionParts& operator=(const SessionParts&) = delete;

  // The object, which the driver has destroyed or finished, ends, and so do the objects made from
  // it.
  void end_object(uint64_t id) { handles.remove(id); }
  // The context, which is idle or has failed, ends, with all that lives in it. The caller ends the
  // driver's context on a helper thread, after the `withdrawals` and before the `afterwards` of the
  // returned ContextEnd. That is let go of on the executor's thread.
  std::shared_ptr<ContextEnd> end_context(uint16_t id);

  // The memory that holds the current request's bulk bytes; the handler may keep it as long as it
  // needs. At most once a request.
  StagingBlock take_bulk() { return std::move(bulk); }
  // Of a large push, for HostPages, which puts it in place beside the executor. What it returns.
  CUresult push_beside(const HostPages::Push& push);
  // Such pushes are in place, and their blocks are free: to be called before any other request.
  void settle_pushes() {
    if (!pushed[0] && !pushed[1]) [[likely]]
      return;
    host_pages.settle();
    pushed = {};
  }

  transport::Transport& transport;
  const uint64_t max_bulk_bytes;  // of one frame to the client
  const uint64_t max_ptx_bytes;   // of an image that is compiled
  Timeline timeline;
  rpc::Responder responder;
  PrintingCode printing_code;
  Output output;
  Contexts contexts;
  HandleTable handles;
  DeviceResources resources;
  DaemonImages daemon_images;
  SessionImages images;
  const HostBudgetPointer host_budget;
  RemoteStaging remote_staging;  // outlives the blocks of staging
  StagingPool staging;
  DirectMemory direct_memory;
  MemoryAccount memory;
  HostPages host_pages;
  SharedHost shared_host;
  ParameterLayouts parameter_layouts;
  GraphPieces graph_pieces;
  StreamEvents stream_events;
  CopyFences copy_fences;
  StagingBlock bulk;
  std::array<StagingBlock, HostPages::kMostBeside> pushed;  // of the last push_beside(), in turn
  PostedTasks posted;
  const Core core;
  Sharing sharing;
  EndedSessions ended_sessions;
  // Last, so that they go first: they hold staging blocks, and threads that post.
  KeptObjects kept_objects{handles};
  PendingList pending;
  StreamHolds stream_holds;
  OrderedCopies ordered_copies;
  EventWaits event_waits;
  StreamStock stream_stock;
  HostGate host_gate;
  ToldStreams told_streams;
  Completion completion;
  EndedGraphs ended_graphs;
};

}  // namespace fargpu::server
