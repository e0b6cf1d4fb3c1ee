#include "client/transfer/copy.h"

#include <cstring>
#include <span>

#include "client/call/report.h"
#include "client/entry/call_target.h"
#include "client/entry/function_order.h"
#include "client/entry/known_done.h"
#include "client/transfer/coherence.h"
#include "client/transfer/exposure.h"
#include "client/transfer/managed.h"
#include "client/transfer/routes.h"
#include "client/transfer/touches.h"
#include "common/wire/control.h"
#include "generated/schema/opcodes.h"

namespace fargpu::client {
namespace {

// What plan() is to know of the copy, and of what is possible in its session. Of a copy that is
// small and pageable little matters.
void find_facts(Transfer& transfer) {
  Session& session = transfer.session;
  const copy::Rows& host = transfer.host.rows;
  CopyFacts& facts = transfer.facts;
  CopyMeans& means = transfer.means;
  if (transfer.host.region) {
    const Region& region = *transfer.host.region;
    const copy::Rows* const device =
        transfer.device.array == nullptr ? &transfer.device.rows : nullptr;
    const auto fits_both = [&](const auto& fits) {
      return fits(host) && (device == nullptr || fits(*device));
    };
    facts.registered = region.kind == MemoryKind::kRegistered;
    const bool has_mirrors = session.observers.any(Observers::kMirrors);
    if (region.shared_at != 0) {
      facts.shared =
          fits_both([&](const copy::Rows& rows) { return has_whole_slices(transfer.shape, rows); });
    } else if (has_mirrors) {
      // By the same address, as copies name it.
      facts.mirrored = session.pages.device_pointer(region.base) == region.base &&
                       fits_both([&](const copy::Rows& rows) {
                         return rows_per_slice(transfer.shape, rows) != 0;
                       });
    }
    facts.reachable = has_mirrors && !facts.mirrored && !facts.waits &&
                      session.pages.touches(host.address, span_of(transfer.shape, host));
    means.gates = !session.snapshot.unavailable.contains(schema::op_cuStreamWaitValue32_v2);
    means.bulk_channel = session.channel().has_bulk_connection();
    const bool dense = is_dense(transfer.shape, host);
    means.adapter = session.remote_memory() != nullptr && dense;
    // The application may unmap memory that it has registered. An answer would be waited for.
    means.amends = dense && !facts.registered && !transfer.is_unknown &&
                   session.knows(schema::op_fgAmend) && session.knows(wire::kPassed);
  }
  if (!transfer.host.region && transfer.bytes <= copy::kTakenInCall) return;
  means.shared_segments = SharedSegment::possible(session);
  means.staging = StagingRing::possible(session);
}

CUresult carry_by_plan(Transfer& transfer) {
  switch (transfer.plan.route) {
    case CopyRoute::kMirror:
      return carry_by_mirror(transfer);
    case CopyRoute::kShared:
      return carry_shared(transfer);
    case CopyRoute::kFetch:
      return carry_fetched(transfer);
    case CopyRoute::kDeliver:
      return carry_delivered(transfer);
    case CopyRoute::kRemote:
      return carry_by_adapter(transfer);
    case CopyRoute::kStaged:
      return carry_staged(transfer);
    case CopyRoute::kFrames:
      return carry_in_frames(transfer);
  }
  return CUDA_ERROR_NOT_SUPPORTED;
}

static_assert(static_cast<uint8_t>(report::Route::kMirror) ==
                  static_cast<uint8_t>(CopyRoute::kMirror) &&
              static_cast<uint8_t>(report::Route::kFrames) ==
                  static_cast<uint8_t>(CopyRoute::kFrames));

CUresult carry(Transfer& transfer) {
  find_facts(transfer);
  make_plan(transfer);
  if (transfer.plan.opens) {
    const CUresult result = keep_open(transfer.session, transfer.host.rows.address,
                                      span_of(transfer.shape, transfer.host.rows));
    if (result != CUDA_SUCCESS) return result;
  }
  const AskDriver asked(transfer.is_unknown);
  // What turns out to be impossible leaves the next route.
  if (transfer.plan.route == CopyRoute::kRemote && !find_registered(transfer)) {
    transfer.means.adapter = false;
    make_plan(transfer);
  }
  if (transfer.plan.completion == copy::Completion::Kind::kAmended && !find_amendable(transfer)) {
    transfer.means.amends = false;
    make_plan(transfer);
  }
  if (transfer.plan.route == CopyRoute::kStaged && !find_ring(transfer)) {
    transfer.means.staging = false;
    make_plan(transfer);
  }
  const CUresult result = carry_by_plan(transfer);
  if (report::enabled() && result == CUDA_SUCCESS) [[unlikely]]
    report::count_copy(transfer.to_device, static_cast<report::Route>(transfer.plan.route),
                       transfer.bytes);
  return result;
}

HostMemory host_memory_of(const Endpoint& host, const copy::Shape& shape) {
  if (!host.region) return HostMemory::kPageable;
  return span_of(shape, host.rows) <= host.known ? HostMemory::kPinned : HostMemory::kCutOff;
}

// As a driver judges it: slices are whole rows, and neither rows nor slices overlap.
bool is_possible(const copy::Shape& shape, const copy::Rows& rows) {
  return span_of(shape, rows) != 0 && has_whole_slices(shape, rows);
}

// Before anything is sent: the shape is possible at both ends, the device end in its memory.
CUresult check(const Transfer& transfer) {
  if (!is_possible(transfer.shape, transfer.host.rows)) return CUDA_ERROR_INVALID_VALUE;
  if (transfer.device.array != nullptr) return check_array(transfer.device, transfer.shape);
  if (!is_possible(transfer.shape, transfer.device.rows)) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t span = span_of(transfer.shape, transfer.device.rows);
  if (const CUresult result = check_range(transfer.session, transfer.device, span);
      result != CUDA_SUCCESS)
    return result;
  // The errors of copies that follow their stream come when it reaches them.
  if (transfer.is_unknown && transfer.pinned()) [[unlikely]] {
    const CUresult known =
        ask_driver(transfer.session, transfer.context, transfer.device.rows.address, span);
    if (known != CUDA_SUCCESS) return known;
  }
  return expose_operands(transfer.session, {transfer.device.rows.address});
}

CUresult flush_device(const Transfer& transfer) {
  if (!is_untried(transfer.device)) [[likely]]
    return CUDA_SUCCESS;
  return flush_first_use(transfer.session, transfer.device,
                         span_of(transfer.shape, transfer.device.rows), transfer.answered());
}

}  // namespace

void make_plan(Transfer& transfer) {
  Session& session = transfer.session;
  // In this order: a hold that comes afterwards is seen by one of the two.
  transfer.hold_period = session.host_calls.period();
  Observers::Set observers = session.observers.all();
  if ((observers & Observers::kHostFunctions) != 0 && transfer.to_device &&
      functions_before(session, transfer.stream) == 0)
    observers &= ~Observers::Set{Observers::kHostFunctions};
  CopyFacts& facts = transfer.facts;
  facts.overwritten = (observers & Observers::kCopies) != 0 && facts.to_device &&
                      facts.host != HostMemory::kPageable && !facts.takes_now &&
                      session.ordered_copies.writes(transfer.host.rows.address,
                                                    span_of(transfer.shape, transfer.host.rows));
  transfer.plan = plan(facts, observers, transfer.means);
}

bool may_write(const Session& session, const Endpoint& end) {
  if (end.region || end.array != nullptr || !end.device || session.host_memory.empty()) [[likely]]
    return !end.region || !end.region->read_only();
  const auto region = session.host_memory.find(end.rows.address);
  return !region || !region->read_only();
}

bool is_on_host(const Session& session, const Endpoint& dst, const Endpoint& src,
                const copy::Shape& shape) {
  const auto is_one = [&](const Endpoint& end) {
    return lies_on_host(session, end, span_of(shape, end.rows)) && is_possible(shape, end.rows);
  };
  // One of them is device memory, as a rule.
  return dst.device ? is_one(dst) && is_one(src) : is_one(src) && is_one(dst);
}

CUresult copy_to_device(const CallTarget& target, const Endpoint& dst, const Endpoint& src,
                        const copy::Shape& shape, CUstream stream, bool wait, SourceAccess access) {
  if (shape.empty()) return CUDA_SUCCESS;
  if (!may_write(target.session, dst)) return CUDA_ERROR_INVALID_VALUE;
  Session& session = target.session;
  if (is_on_host(session, dst, src, shape)) [[unlikely]]
    return copy_on_host(target, dst, src, shape, stream);
  const KnownDone known(session);  // before the question: no frame is missed
  Transfer transfer(target, true, dst, src, shape, stream,
                    {.to_device = true,
                     .waits = wait,
                     .legacy = is_legacy(stream),
                     .own_work = ManagedMemory::is_own_work(),
                     .takes_now = access == SourceAccess::kDuringCall,
                     .is_first = !wait && is_done(session, target.context, stream),
                     .bytes = shape.bytes(),
                     .host = host_memory_of(src, shape)});
  CUresult result = check(transfer);
  if (result == CUDA_SUCCESS) result = expose_copied(session, dst.rows, src.rows, shape);
  if (result != CUDA_SUCCESS) return result;
  transfer.work.emplace(session, stream);
  if (transfer.work->result() != CUDA_SUCCESS) return transfer.work->result();
  const ManagedUse managed(session, stream, dst, src);
  if (managed.result() != CUDA_SUCCESS) return managed.result();
  result = carry(transfer);
  if (result == CUDA_SUCCESS) result = flush_device(transfer);
  if (result == CUDA_SUCCESS && !wait && transfer.plan.order == copy::Order::kReturned)
    known.returned(transfer.context, stream);
  return result;
}

CUresult copy_to_host(const CallTarget& target, const Endpoint& dst, const Endpoint& src,
                      const copy::Shape& shape, CUstream stream, bool wait) {
  if (shape.empty()) return CUDA_SUCCESS;
  if (!may_write(target.session, dst)) return CUDA_ERROR_INVALID_VALUE;
  Session& session = target.session;
  if (is_on_host(session, dst, src, shape)) [[unlikely]]
    return copy_on_host(target, dst, src, shape, stream);
  Transfer transfer(target, false, src, dst, shape, stream,
                    {.waits = wait, .bytes = shape.bytes(), .host = host_memory_of(dst, shape)});
  CUresult result = check(transfer);
  if (result != CUDA_SUCCESS) return result;
  // The source may be host memory by its device address, which is the mirror's.
  if (src.array == nullptr && session.pages.touches(src.rows.address, span_of(shape, src.rows))) {
    transfer.work.emplace(session, stream);
    if (transfer.work->result() != CUDA_SUCCESS) return transfer.work->result();
  }
  const ManagedUse managed(session, stream, dst, src);
  if (managed.result() != CUDA_SUCCESS) return managed.result();
  const KnownDone known(session);
  result = carry(transfer);
  if (result == CUDA_SUCCESS) result = flush_device(transfer);
  if (result == CUDA_SUCCESS && transfer.passed()) known.passed(transfer.context, stream);
  return result;
}

CUresult copy_inside(const CallTarget& target, const Endpoint& dst, const Endpoint& src,
                     const copy::Shape& shape, CUstream stream) {
  if (shape.empty()) return CUDA_SUCCESS;
  for (const Endpoint* end : {&dst, &src}) {
    CUresult result = CUDA_SUCCESS;
    if (end->array != nullptr) {
      result = check_array(*end, shape);
    } else if (is_possible(shape, end->rows)) {
      result = check_range(target.session, *end, span_of(shape, end->rows));
    } else {
      result = CUDA_ERROR_INVALID_VALUE;
    }
    if (result != CUDA_SUCCESS) return result;
  }
  const Endpoint& linear = dst.array != nullptr ? src : dst;
  if (linear.array == nullptr) {
    const CUresult exposed = expose_operands(target.session, {linear.rows.address});
    if (exposed != CUDA_SUCCESS) return exposed;
  }
  const Submission work(target.session, stream);
  if (work.result() != CUDA_SUCCESS) return work.result();
  const ManagedUse managed(target.session, stream, dst, src);
  if (managed.result() != CUDA_SUCCESS) return managed.result();
  const AskDriver asked(is_unknown(target.session, linear));
  const copy::Words words = encode(copy::Copy{src.location(), dst.location(), shape, {}});
  const CUresult result =
      submit(target.session, target.context, stream, Submission::kQueuePlace, [&](uint64_t id) {
        return wire::fgCopy(target.session, target.context, words.data(), words.bytes(), id,
                            nullptr, 0);
      });
  if (result != CUDA_SUCCESS || linear.array != nullptr) return result;
  return flush_first_use(target.session, linear, span_of(shape, linear.rows));
}

CUresult copy_on_host(const CallTarget& target, const Endpoint& dst, const Endpoint& src,
                      const copy::Shape& shape, CUstream stream) {
  if (shape.empty()) return CUDA_SUCCESS;
  if (!may_write(target.session, dst) || !is_possible(shape, dst.rows) ||
      !is_possible(shape, src.rows))
    return CUDA_ERROR_INVALID_VALUE;
  const CUresult reached = await_stream(target.session, target.context, stream);
  if (reached != CUDA_SUCCESS) return reached;
  for (uint64_t z = 0; z < shape.depth; ++z) {
    for (uint64_t y = 0; y < shape.height; ++y) {
      std::memmove(reinterpret_cast<void*>(dst.rows.at(0, y, z).address),
                   reinterpret_cast<const void*>(src.rows.at(0, y, z).address), shape.width);
    }
  }
  // Work that runs already may be waiting for these bytes.
  return before_wait(target.session);
}

}  // namespace fargpu::client
