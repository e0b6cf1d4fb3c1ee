// BulkDeliveries: bytes of copies to the host that travel over the session's bulk channel, so that
// no call waits behind them. A thread sends them, in order, while the executor goes on.
//
// The bytes stay where they are until they have been sent. Functions are for the executor's thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <span>
#include <thread>

#include "common/copy/limits.h"
#include "common/transport/transport.h"

namespace fargpu::server {

class BulkDeliveries {
 public:
  // The connection outlives this; no other thread sends there. The first delivery starts the
  // thread.
  explicit BulkDeliveries(transport::Transport& connection) : connection_(connection) {}
  ~BulkDeliveries();  // the connection has been closed
  BulkDeliveries(const BulkDeliveries&) = delete;
  BulkDeliveries& operator=(const BulkDeliveries&) = delete;

  // Large ones, and all that come behind one that is not sent yet.
  bool takes(uint64_t bytes) const { return bytes >= copy::kBulkFrom || !has_sent(last_); }
  // Bytes of a frame, at `offset` of the copy's. Returns the delivery's number, from 1 on.
  uint64_t send(uint64_t copy, uint64_t offset, std::span<const std::byte> bytes);
  // The delivery's bytes are needed no more. A lost session is seen elsewhere.
  bool has_sent(uint64_t number) const { return sent_.load(std::memory_order_acquire) >= number; }

 private:
  struct Delivery {
    uint64_t copy, offset;
    std::span<const std::byte> bytes;
  };
  void run();
  Status send_frame(uint32_t number, const Delivery& delivery);

  transport::Transport& connection_;
  uint64_t last_ = 0;  // number
  std::atomic<uint64_t> sent_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Delivery> queue_;  // guarded by mutex_
  bool closing_ = false;        // guarded by mutex_
  std::thread thread_;
};

}  // namespace fargpu::server
