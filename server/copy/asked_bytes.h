// AskedBytes: the bytes that the worker has asked its client for and where they go. The executor
// asks; the bytes come on its thread or, over a bulk connection, on the thread that reads that
// (BulkReceiver).
//
// The client's frames are checked: bytes of a copy arrive in order, once, and only if they were
// requested. A staging block stays until all of its bytes have come, or its copy is over and none
// is being received into it: so bytes are never received into memory that has another use, and a
// client that sends nothing keeps no memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>

#include "common/base/status.h"
#include "server/copy/staging.h"

namespace fargpu::server {

class AskedBytes {
 public:
  // On the executor's thread, like drop() and came(). [offset, offset + bytes) of the copy, into
  // the beginning of the block.
  void ask(uint64_t copy, uint64_t offset, uint64_t bytes, std::shared_ptr<StagingBlock> block);
  // The copy is over: its bytes may come, but go nowhere.
  void drop(uint64_t copy);
  // Bytes for which place() was asked are there; lets go of blocks.
  void came(uint64_t copy, uint64_t bytes);

  // The memory for bytes that are coming; empty: they are not needed. kProtocol: they were not
  // asked for. On one thread, whichever it is.
  Result<std::span<std::byte>> place(uint64_t copy, uint64_t offset, uint64_t bytes);

 private:
  struct Asked {
    uint64_t copy = 0, begin = 0, end = 0;
    uint64_t placed = 0, came = 0;        // up to here, of the copy
    std::shared_ptr<StagingBlock> block;  // null: bytes go nowhere
    bool needed = true;
    bool is_landing() const { return came < placed; }
  };
  std::mutex mutex_;
  std::deque<Asked> asked_;  // guarded by mutex_; in the order of asking
};

}  // namespace fargpu::server
