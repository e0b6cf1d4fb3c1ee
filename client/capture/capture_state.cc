#include "client/capture/capture_state.h"

#include <algorithm>
#include <atomic>

#include "client/entry/call_target.h"
#include "client/process/process.h"
#include "client/process/tables.h"

namespace fargpu::client::capture {
namespace {

// Captures whose stream is no more have ended; other streams have left theirs.
void drop_ended() {
  const HandleTable& handles = Process::get().tables()->handles;
  const auto is_live = [&](uint64_t id) {
    return handles.find(rpc::HandleKind::kStream, id) != nullptr;
  };
  std::erase_if(all().captures, [&](const std::unique_ptr<Capture>& capture) {
    if (is_live(capture->origin)) {
      std::erase_if(capture->members, [&](const auto& member) { return !is_live(member.first); });
      return false;
    }
    capture->leave();
    all().abandoned.push_back(capture->graph);
    return true;
  });
}

}  // namespace

All& all() {
  static auto& captures = *new All;  // calls come until the very end of the process
  return captures;
}

uint64_t this_thread() {
  static std::atomic<uint64_t> threads{0};
  static thread_local const uint64_t number = threads.fetch_add(1) + 1;
  return number;
}

CUresult find(CUstream stream, Named* named) {
  const CallTarget target = CallTarget::of(stream);
  ResolvedStream resolved;
  if (const CUresult result = resolve_stream(target.session, stream, &resolved);
      result != CUDA_SUCCESS)
    return result;
  named->id = resolved.id;
  named->context = context_of(stream);
  if (resolved.state != nullptr) named->state = *resolved.state;
  return named->context == nullptr || named->state == nullptr ? CUDA_ERROR_INVALID_CONTEXT
                                                              : CUDA_SUCCESS;
}

void Capture::leave() {
  for (auto& [id, member] : members) member.state->capture.store(0);
  open.fetch_sub(1);
}

Event* find_event(CUevent event) {
  return static_cast<Event*>(Process::get().tables()->handles.find(
      rpc::HandleKind::kEvent, reinterpret_cast<uint64_t>(event)));
}

Lock::Lock() : lock_(all().mutex) { drop_ended(); }

Capture* with_id(uint64_t id) {
  for (const auto& capture : all().captures)
    if (capture->id == id) return capture.get();
  return nullptr;
}

Capture* of(const Named& stream) {
  for (const auto& capture : all().captures)
    if (capture->members.contains(stream.id)) return capture.get();
  return nullptr;
}

bool is_blocked(const Capture& capture, const Context* context) {
  return std::any_of(capture.members.begin(), capture.members.end(), [&](const auto& each) {
    const Member& member = each.second;
    return member.context == context && !member.state->non_blocking.load();
  });
}

}  // namespace fargpu::client::capture
