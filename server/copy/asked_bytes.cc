#include "server/copy/asked_bytes.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace fargpu::server {

void AskedBytes::ask(uint64_t copy, uint64_t offset, uint64_t bytes,
                     std::shared_ptr<StagingBlock> block) {
  const std::lock_guard lock(mutex_);
  asked_.push_back({copy, offset, offset + bytes, offset, offset, std::move(block)});
}

void AskedBytes::drop(uint64_t copy) {
  std::vector<std::shared_ptr<StagingBlock>> free;  // let go of without the lock
  const std::lock_guard lock(mutex_);
  for (Asked& asked : asked_) {
    if (asked.copy != copy) continue;
    asked.needed = false;
    if (!asked.is_landing()) free.push_back(std::move(asked.block));
  }
}

void AskedBytes::came(uint64_t copy, uint64_t bytes) {
  std::shared_ptr<StagingBlock> done;  // let go of without the lock
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(asked_.begin(), asked_.end(),
                                  [copy](const Asked& asked) { return asked.copy == copy; });
  if (found == asked_.end()) return;
  found->came += bytes;
  const bool all = found->came == found->end;
  if (all || (!found->needed && !found->is_landing())) done = std::move(found->block);
  if (all) asked_.erase(found);
}

Result<std::span<std::byte>> AskedBytes::place(uint64_t copy, uint64_t offset, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(asked_.begin(), asked_.end(), [copy](const Asked& asked) {
    return asked.copy == copy && asked.placed < asked.end;
  });
  if (found == asked_.end() || offset != found->placed || bytes > found->end - offset) {
    return Status(StatusCode::kProtocol,
                  "fgFetched: these bytes were not asked for, or not by one request");
  }
  found->placed += bytes;
  if (!found->needed) return std::span<std::byte>();
  return found->block->bytes().subspan(offset - found->begin, bytes);
}

}  // namespace fargpu::server
