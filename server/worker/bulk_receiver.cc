#include "server/worker/bulk_receiver.h"

#include <fmt/core.h>
#include <kj/exception.h>
#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/wire/slot_message.h"
#include "generated/schema/internal.capnp.h"
#include "generated/schema/opcodes.h"

namespace fargpu::server {

using transport::Clock;

BulkReceiver::BulkReceiver(std::unique_ptr<transport::Transport> connection, OrderedCopies& copies,
                           PostedTasks& posted)
    : connection_(std::move(connection)),
      deliveries_(*connection_),
      copies_(copies),
      posted_(posted) {
  copies_.deliver_beside(&deliveries_);
  thread_ = std::thread([this] { run(); });
}

BulkReceiver::~BulkReceiver() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  connection_->close();
  thread_.join();
  copies_.deliver_beside(nullptr);
}

void BulkReceiver::run() {
  ::prctl(PR_SET_NAME, "fargpu-bulk");
  for (;;) {
    const auto received = connection_->receive(*this, transport::kNoDeadline);
    if (received.ok()) continue;
    posted_.post([this, why = received.status()] { ended(why); });
    return;
  }
}

void BulkReceiver::ended(const Status& why) {
  Status status(why.code(),
                fmt::format("the session's bulk connection has ended: {}", why.message()));
  if (why.code() != StatusCode::kLost) {
    if (broken_.ok()) broken_ = std::move(status);
    return;
  }
  lost_ = std::move(status);
  until_ = Clock::now() + kLastFrames;
  at_last_ = Clock::now() + kLongest;
}

Status BulkReceiver::after_look(uint64_t bytes) {
  if (!until_) return {};
  const auto now = Clock::now();
  if (std::exchange(bytes_, bytes) != bytes) until_ = std::min(now + kLastFrames, at_last_);
  return now < *until_ ? Status() : lost_;
}

Result<BulkReceiver::Fetched> BulkReceiver::read(const wire::FrameHeader& header,
                                                 std::span<const std::byte> body) {
  if (header.opcode != schema::op_fgFetched || header.flags != 0) {
    return Status(StatusCode::kProtocol,
                  fmt::format("opcode {} with flags {:#x}", header.opcode, header.flags));
  }
  try {
    wire::SegmentReader reader(body);
    const auto params = reader.getRoot<schema::FgFetchedParams>();
    if (params.getBytes() != header.bulk_bytes) {
      return Status(StatusCode::kProtocol, fmt::format("fgFetched says {} bytes and brings {}",
                                                       params.getBytes(), header.bulk_bytes));
    }
    return Fetched{params.getId(), params.getOffset(), header.bulk_bytes};
  } catch (const kj::Exception& error) {
    return Status(StatusCode::kProtocol,
                  fmt::format("fgFetched: {}", error.getDescription().cStr()));
  }
}

Result<std::span<std::byte>> BulkReceiver::bulk_buffer(const wire::FrameHeader& header,
                                                       std::span<const std::byte> body) {
  FARGPU_ASSIGN_OR_RETURN(const Fetched fetched, read(header, body));
  FARGPU_ASSIGN_OR_RETURN(const auto place,
                          copies_.asked().place(fetched.copy, fetched.offset, fetched.bytes));
  if (!place.empty()) return place;
  unneeded_.resize(fetched.bytes);
  return std::span(unneeded_);
}

Status BulkReceiver::on_frame(const wire::FrameHeader& header, std::span<const std::byte> body,
                              std::span<std::byte>) {
  FARGPU_ASSIGN_OR_RETURN(const Fetched fetched, read(header, body));
  wait_for_executor();
  posted_.post([this, fetched] {
    {
      const std::lock_guard lock(mutex_);
      --ahead_;
    }
    changed_.notify_all();
    if (broken_.ok()) broken_ = copies_.landed(fetched.copy, fetched.offset, fetched.bytes);
  });
  return {};
}

void BulkReceiver::wait_for_executor() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return ahead_ < kMostAhead || closing_; });
  ++ahead_;
}

}  // namespace fargpu::server
