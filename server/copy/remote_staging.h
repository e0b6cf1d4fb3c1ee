// RemoteStaging: staging blocks that the adapter may use, too (rdma). A block is registered with
// the transport when it is first used so, and deregistered before its memory is freed. One thread
// (the executor's).
#pragma once

#include <cstddef>
#include <memory>
#include <unordered_map>

#include "common/base/status.h"
#include "common/transport/remote_memory.h"
#include "server/copy/staging.h"

namespace fargpu::server {

class RemoteStaging {
 public:
  // `remote` may be null; it lives as long as the pool's blocks are used.
  explicit RemoteStaging(transport::RemoteMemory* remote) : remote_(remote) {}
  // Null where there is none.
  transport::RemoteMemory* remote() { return remote_; }
  // Of the whole block. kUnsupported without remote memory; otherwise the transport's error.
  Result<const transport::RegisteredMemory*> registration(const StagingBlock& block);
  void forget(std::byte* memory) { registered_.erase(memory); }

 private:
  transport::RemoteMemory* const remote_;
  std::unordered_map<std::byte*, std::unique_ptr<transport::RegisteredMemory>> registered_;
};

}  // namespace fargpu::server
