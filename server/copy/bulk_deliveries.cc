#include "server/copy/bulk_deliveries.h"

#include <sys/prctl.h>

#include "common/transport/send_whole.h"
#include "common/wire/control.h"
#include "common/wire/fixed_message.h"
#include "generated/schema/control.capnp.h"

namespace fargpu::server {

BulkDeliveries::~BulkDeliveries() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

uint64_t BulkDeliveries::send(uint64_t copy, uint64_t offset, std::span<const std::byte> bytes) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back({copy, offset, bytes});
  }
  changed_.notify_one();
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  return ++last_;
}

void BulkDeliveries::run() {
  ::prctl(PR_SET_NAME, "fargpu-deliver");
  Status status;
  for (uint64_t number = 1;; ++number) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !queue_.empty() || closing_; });
    if (closing_) return;
    const Delivery delivery = queue_.front();
    queue_.pop_front();
    lock.unlock();
    if (status.ok()) status = send_frame(static_cast<uint32_t>(number), delivery);
    sent_.store(number, std::memory_order_release);
  }
}

Status BulkDeliveries::send_frame(uint32_t number, const Delivery& delivery) {
  wire::FixedMessage<schema::Delivery> message;
  auto body = message.root();
  body.setCopy(delivery.copy);
  body.setOffset(delivery.offset);
  wire::FrameHeader header;
  header.opcode = wire::kDelivery;
  header.flags = wire::kNotice;
  header.sequence = number;
  return transport::send_whole(connection_, header, message.bytes(), delivery.bytes);
}

}  // namespace fargpu::server
