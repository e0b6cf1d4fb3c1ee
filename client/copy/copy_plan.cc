#include "client/copy/copy_plan.h"

namespace fargpu::client {
namespace {

using copy::Hold;
using copy::Order;
using End = copy::Completion::Kind;

bool is_pinned(const CopyFacts& copy) { return copy.host == HostMemory::kPinned; }

bool is_large(const CopyFacts& copy) { return copy.bytes > copy::kTakenInCall; }

// Whether the source may change before the stream reaches the copy, and the copy has to see that.
// A driver waits for the stream before a large synchronous copy reads pageable memory.
bool may_change(const CopyFacts& copy, Observers::Set observers) {
  if (!copy.to_device || copy.takes_now) return false;
  if (copy.host == HostMemory::kPageable)
    return copy.waits && !copy.own_work && is_large(copy) && (observers & kWritesPageable) != 0;
  return (observers & kWritesSources) != 0 || copy.overwritten ||
         (copy.registered && (observers & Observers::kOtherProcesses) != 0);
}

// Whether the client sees each change of the source before the stream can come to the copy. While
// there are mirrors it compares the source whenever it sends work.
bool may_be_amended(const CopyFacts& copy, Observers::Set observers, const CopyMeans& means) {
  const bool mirrors = (observers & Observers::kMirrors) != 0;
  if (!means.amends || copy.takes_now || (mirrors && copy.reachable)) return false;
  return copy.bytes <= (mirrors ? copy::kMostComparedOften : copy::kMostAmended) &&
         may_change(copy, observers) && !may_change(copy, observers & ~kAmendsSources);
}

// In frames large bytes would hold up the call, and calls of all other threads.
bool passes_calls(const CopyFacts& copy, const CopyMeans& means) {
  return means.bulk_channel && copy.bytes >= copy::kBulkFrom;
}

CopyRoute route_of(const CopyFacts& copy, Observers::Set observers, const CopyMeans& means) {
  if (is_pinned(copy)) {
    const bool follows = !copy.waits && means.gates;
    if (!copy.takes_now && copy.mirrored) return CopyRoute::kMirror;
    if (!copy.takes_now && copy.shared) return CopyRoute::kShared;
    if (follows && !copy.to_device) return CopyRoute::kDeliver;
    if (follows && may_be_amended(copy, observers, means)) return CopyRoute::kFrames;
    if (follows && !copy.takes_now && (may_change(copy, observers) || passes_calls(copy, means)))
      return CopyRoute::kFetch;
    if (means.adapter && !copy.takes_now && is_large(copy)) return CopyRoute::kRemote;
  }
  return means.staging && is_large(copy) ? CopyRoute::kStaged : CopyRoute::kFrames;
}

// A synchronous copy to the device whose bytes the call takes. CUDA promises that such a copy from
// pinned memory, and all before it in its stream, has ended when the call returns. Of pageable
// memory it promises that of what was before only, and of small copies not even that.
void plan_early_return(const CopyFacts& copy, Observers::Set observers, CopyPlan& plan) {
  if (copy.own_work) {
    plan.order = Order::kOwnStream;
    return;
  }
  // Another process may look as soon as it is told that the call has returned.
  const bool is_whole =
      copy.host != HostMemory::kPageable || (observers & Observers::kOtherProcesses) != 0;
  if (!is_whole && !is_large(copy)) {
    plan.order = Order::kLaterWork;
  } else if ((observers & kToldOfReturns) == 0) {
    plan.order = Order::kReturned;
    plan.returns = CopyReturn::kUnobserved;
  } else if (is_whole) {
    plan.returns = CopyReturn::kPassed;
  } else {
    plan.order = Order::kLaterWork;
    plan.returns = CopyReturn::kEarlierEnded;
  }
}

}  // namespace

CopyPlan plan(const CopyFacts& copy, Observers::Set observers, const CopyMeans& means) {
  CopyPlan plan{.route = route_of(copy, observers, means)};
  if (copy.waits || !copy.to_device) plan.returns = CopyReturn::kPassed;
  // Also memory of which a part is registered.
  plan.opens = (observers & Observers::kGateableMemory) != 0 && plan.route != CopyRoute::kMirror;
  const End reply = copy.to_device ? End::kNothing : End::kReply;
  // The worker copies asynchronously. A driver then reads a small source in its call, if the stream
  // has no work of its own but only comes behind other streams. The worker knows of a shared copy
  // that it is a synchronous one, and gives the legacy stream such work.
  if (plan.route == CopyRoute::kMirror || (plan.route == CopyRoute::kShared && !copy.legacy))
    plan.awaits_source = copy.waits && !is_large(copy) && may_change(copy, observers);
  switch (plan.route) {
    case CopyRoute::kMirror:
      plan.returns = copy.waits ? CopyReturn::kPassed : CopyReturn::kSent;
      return plan;
    case CopyRoute::kShared:
      plan.returns = copy.waits ? CopyReturn::kPassed : CopyReturn::kSent;
      plan.completion = copy.waits ? End::kReply : End::kNothing;
      return plan;
    case CopyRoute::kFetch:
      plan.hold = may_change(copy, observers) ? Hold::kForStaging : Hold::kSourceStands;
      plan.completion = End::kFollow;
      return plan;
    case CopyRoute::kDeliver: {
      // The stream waits for the bytes where a program sees what the GPU writes to its memory while
      // it works, so could see there that the stream has passed the copy; and where device code
      // reads the memory, so work behind the copy must find the bytes.
      const bool is_seen =
          means.shared_segments || copy.reachable || (observers & Observers::kGatedMemory) != 0;
      plan.hold = is_seen ? Hold::kUntilDelivered : Hold::kNever;
      plan.completion = End::kFollow;
      plan.returns = CopyReturn::kSent;
      return plan;
    }
    case CopyRoute::kRemote:
      plan.awaits_source = may_change(copy, observers);
      plan.completion = reply;
      return plan;
    case CopyRoute::kStaged:
      plan.completion = means.shared_segments ? End::kWord : End::kNotice;
      if (copy.to_device && !copy.waits && !copy.takes_now && is_pinned(copy) && means.gates)
        plan.hold = Hold::kForStaging;
      break;
    case CopyRoute::kFrames:
      plan.completion = reply;
      if (!copy.waits && means.gates && is_pinned(copy) && may_be_amended(copy, observers, means)) {
        plan.completion = End::kAmended;
        return plan;
      }
      break;
  }
  plan.awaits_source = may_change(copy, observers);
  if (copy.to_device && copy.waits) {
    plan.returns = CopyReturn::kSent;
    plan_early_return(copy, observers, plan);
  } else if (copy.is_first && copy.to_device && copy.host == HostMemory::kPageable &&
             !is_large(copy) && (observers & kToldOfReturns) == 0) {
    // So that a wait behind it need not ask.
    plan.order = Order::kReturned;
  }
  return plan;
}

}  // namespace fargpu::client
