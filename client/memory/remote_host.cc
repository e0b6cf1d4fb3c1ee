#include "client/memory/remote_host.h"

#include <atomic>
#include <chrono>
#include <iterator>
#include <string>
#include <utility>

#include "client/manual/common.h"
#include "client/memory/pieces.h"
#include "common/base/log.h"
#include "common/transport/transport.h"

namespace fargpu::client {
namespace {

void tell_once(const std::string& why) {
  static std::atomic<bool> told{false};
  if (!told.exchange(true))
    log::warn("pinned host memory is copied in frames, not by remote access: {}", why);
}

}  // namespace

bool RemoteHost::possible(Session& session) {
  if (!session.settings.zero_copy || session.channel().transport().remote_memory() == nullptr)
    return false;
  {
    std::lock_guard lock(mutex_);
    if (possible_) return *possible_;
  }
  const CUresult result = call_fgRemoteProbe(session, current_context_id(), kPieceBytes);
  if (result != CUDA_SUCCESS)
    tell_once("the server cannot register its staging memory, error " + std::to_string(result));
  std::lock_guard lock(mutex_);
  possible_ = result == CUDA_SUCCESS;
  return *possible_;
}

void RemoteHost::add(Session& session, uint64_t address, size_t bytes) {
  if (bytes < kFrom || !possible(session)) return;
  auto registered = session.channel().transport().remote_memory()->register_memory(
      {reinterpret_cast<std::byte*>(address), bytes}, transport::RemoteAccess::kReadWrite);
  if (!registered.ok()) {
    tell_once(registered.status().message());
    return;
  }
  std::lock_guard lock(mutex_);
  registered_.insert_or_assign(address, std::move(*registered));
}

CUresult RemoteHost::remove(Session& session, uint64_t address) {
  std::unique_ptr<transport::RegisteredMemory> registered;
  {
    std::lock_guard lock(mutex_);
    const auto found = registered_.find(address);
    if (found == registered_.end()) return CUDA_SUCCESS;
    registered = std::move(found->second);
    registered_.erase(found);
  }
  constexpr auto kPatience =
      std::chrono::minutes(10);  // the channel's keepalive notices a dead server long before
  return from_status(session.channel().ping(transport::Clock::now() + kPatience));
}

std::optional<RemoteHost::Place> RemoteHost::find(uint64_t address, uint64_t bytes) const {
  std::lock_guard lock(mutex_);
  const auto after = registered_.upper_bound(address);
  if (after == registered_.begin()) return std::nullopt;
  const auto& [base, registered] = *std::prev(after);
  const uint64_t offset = address - base, size = registered->memory().size();
  if (offset > size || bytes > size - offset) return std::nullopt;
  return Place{registered->key(), offset};
}

std::optional<RemoteHost::Place> remote_place(Session& session, const Side& host, const Box& box) {
  const size_t bytes = box.width * box.height * box.depth;
  if (bytes < RemoteHost::kFrom || session.host_memory.empty() || !is_packed(box, host))
    return std::nullopt;
  return session.remote_host.find(host.address, bytes);
}

CUresult remote_to_device(Session& session, const RemoteHost::Place& place, const Side& dst,
                          const Side& src, const Box& box, CUstream stream) {
  const transport::RemoteKey& key = place.key;
  return for_each_piece(box, dst, src, RemoteHost::kPieceBytes,
                        [&](const Box& piece, const Side& to, const Side& from) {
                          return call_fgCopyFromRemote(
                              session, current_context_id(), key.address, key.bytes, key.key,
                              place.offset + (from.address - src.address), to.address, to.pitch,
                              to.slice, piece.width, piece.height, piece.depth, stream);
                        });
}

CUresult remote_to_host(Session& session, const RemoteHost::Place& place, const Side& dst,
                        const Side& src, const Box& box, CUstream stream) {
  const transport::RemoteKey& key = place.key;
  return for_each_piece(box, src, dst, RemoteHost::kPieceBytes,
                        [&](const Box& piece, const Side& from, const Side& to) {
                          return call_fgCopyToRemote(
                              session, current_context_id(), key.address, key.bytes, key.key,
                              place.offset + (to.address - dst.address), from.address, from.pitch,
                              from.slice, piece.width, piece.height, piece.depth, stream);
                        });
}

}  // namespace fargpu::client
