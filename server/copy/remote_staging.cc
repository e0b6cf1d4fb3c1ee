#include "server/copy/remote_staging.h"

#include <utility>

namespace fargpu::server {

Result<const transport::RegisteredMemory*> RemoteStaging::registration(const StagingBlock& block) {
  if (remote_ == nullptr)
    return Status(StatusCode::kUnsupported, "this session has no remote memory");
  const std::span<std::byte> whole = block.whole();
  auto found = registered_.find(whole.data());
  if (found == registered_.end()) {
    FARGPU_ASSIGN_OR_RETURN(auto registered,
                            remote_->register_memory(whole, transport::RemoteAccess::kNone));
    found = registered_.emplace(whole.data(), std::move(registered)).first;
  }
  return found->second.get();
}

}  // namespace fargpu::server
