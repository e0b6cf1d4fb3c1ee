#include "client/hostmem/remote_host.h"

#include <atomic>
#include <string>
#include <utility>

#include "client/hostmem/shared_segment.h"
#include "client/link/link.h"
#include "client/memory/address_map.h"
#include "client/object/context.h"
#include "common/base/log.h"
#include "common/copy/limits.h"
#include "common/transport/transport.h"
#include "generated/client/wire/internal.h"

namespace fargpu::client {
namespace {

void tell_once(const std::string& why) {
  static std::atomic<bool> told{false};
  if (!told.exchange(true))
    log::warn("host memory is copied in frames, not by remote access: {}", why);
}

}  // namespace

bool RemoteHost::possible() {
  if (link_.remote_memory() == nullptr) return false;
  {
    std::lock_guard lock(mutex_);
    if (possible_) return *possible_;
  }
  const CUresult result = wire::fgRemoteProbe(link_, current_context_id(), copy::kMostRemote);
  if (result != CUDA_SUCCESS)
    tell_once("the server cannot register its staging memory, error " + std::to_string(result));
  std::lock_guard lock(mutex_);
  possible_ = result == CUDA_SUCCESS;
  return *possible_;
}

transport::RegistrationCache& RemoteHost::cache() {
  std::lock_guard lock(mutex_);
  // No limit of its own: pinned memory is locked natively, too.
  if (!cache_) {
    cache_ = std::make_unique<transport::RegistrationCache>(*link_.remote_memory(), UINT64_MAX);
  }
  return *cache_;
}

bool RemoteHost::make_room() {
  std::set<Registration> idle;
  {
    std::lock_guard lock(mutex_);
    idle.swap(in_use_);
  }
  // A copy that another thread sends meanwhile holds its registration itself, and returns it by
  // sent().
  return !idle.empty() && unshare(link_, functions_, current_context(), 0) == CUDA_SUCCESS;
}

std::optional<RemoteHost::RegisteredRange> RemoteHost::find(const Region& region,
                                                            uint64_t address) {
  if (!possible()) return std::nullopt;
  {
    std::lock_guard lock(mutex_);
    if (refused_.contains(region.base)) return std::nullopt;
  }
  transport::RegistrationCache& known = cache();
  const std::span memory(reinterpret_cast<std::byte*>(region.base), region.bytes);
  const auto access =
      region.read_only() ? transport::RemoteAccess::kRead : transport::RemoteAccess::kReadWrite;
  auto registration = known.get(memory, access);
  if (registration.status().code() == StatusCode::kNoCapacity && make_room())
    registration = known.get(memory, access);
  if (!registration.ok()) {
    tell_once(registration.status().message());
    std::lock_guard lock(mutex_);
    refused_.insert(region.base);
    return std::nullopt;
  }
  const transport::RemoteKey key = (*registration)->key();
  return RegisteredRange{copy::Location::in(key, address - key.address), std::move(*registration)};
}

void RemoteHost::sent(const RegisteredRange& range) {
  std::lock_guard lock(mutex_);
  in_use_.insert(range.registration);
}

CUresult RemoteHost::remove(const Region& region) {
  const std::span memory(reinterpret_cast<std::byte*>(region.base), region.bytes);
  {
    std::lock_guard lock(mutex_);
    refused_.erase(region.base);
    if (!cache_ || cache_->find(memory, transport::RemoteAccess::kNone) == nullptr)
      return CUDA_SUCCESS;
  }
  const CUresult result = unshare(link_, functions_, current_context(), 0);
  std::lock_guard lock(mutex_);
  std::erase_if(in_use_, [&memory](const Registration& registration) {
    return registration->memory().data() == memory.data();
  });
  cache_->invalidate(memory.data(), memory.size());
  return result;
}

std::unique_ptr<transport::RegisteredMemory> RemoteHost::enroll(std::span<std::byte> memory) {
  if (!possible()) return nullptr;
  transport::RemoteMemory& remote = *link_.remote_memory();
  auto registered = remote.register_memory(memory, transport::RemoteAccess::kReadWrite);
  if (registered.status().code() == StatusCode::kNoCapacity && make_room())
    registered = remote.register_memory(memory, transport::RemoteAccess::kReadWrite);
  if (registered.ok()) return std::move(*registered);
  tell_once(registered.status().message());
  return nullptr;
}

}  // namespace fargpu::client
