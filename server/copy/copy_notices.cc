#include "server/copy/copy_notices.h"

#include <algorithm>
#include <span>

#include "common/transport/transport.h"
#include "common/wire/control.h"
#include "generated/schema/control.capnp.h"
#include "schema/support/sizes.h"
#include "server/copy/bulk_deliveries.h"
#include "server/copy/remote_staging.h"

namespace fargpu::server {
namespace {

template <typename Body>
rpc::Responder::Frame notice(const Core& core, uint16_t opcode) {
  return rpc::Responder::Frame(core.responder, opcode, schema::fixed_bytes<Body>());
}

}  // namespace

CUresult CopyNotices::deliver(CopyElement& element) {
  OrderedCopy& copy = *element.copy;
  if (element.block == nullptr) {
    tell_written(element);
  } else if (element.registered == nullptr) {
    send(element, goes_beside(element));
  } else {
    transport::RemoteMemory& remote = *remote_staging_.remote();
    const auto ticket =
        remote.write(*element.registered, element.block->bytes().first(element.bytes),
                     copy.target.remote, copy.target.offset + element.offset);
    if (!ticket.ok()) return CUDA_ERROR_INVALID_VALUE;
    element.write = *ticket;
    tell_written(element);
  }
  copy.sent += element.bytes;
  return CUDA_SUCCESS;
}

// What is smaller keeps its order with what has not been sent there yet.
bool CopyNotices::goes_beside(const CopyElement& element) const {
  return beside_ != nullptr && core_.responder.takes_notice(wire::kDeliveryBeside) &&
         beside_->takes(element.bytes);
}

void CopyNotices::send(CopyElement& element, bool beside) {
  const std::span<const std::byte> bytes = element.block->bytes().first(element.bytes);
  const uint64_t most = std::max<uint64_t>(1, max_bulk_bytes_);
  for (uint64_t at = 0; at < bytes.size(); at += most) {
    const auto piece = bytes.subspan(at, std::min<uint64_t>(most, bytes.size() - at));
    core_.output.count_notice();
    if (!beside) {
      send_in_frame(element, element.offset + at, piece);
      continue;
    }
    element.beside = beside_->send(element.copy->id, element.offset + at, piece);
    (void)core_.responder.notice(wire::kDeliveryBeside, static_cast<uint32_t>(element.beside));
  }
}

void CopyNotices::send_in_frame(const CopyElement& element, uint64_t offset,
                                std::span<const std::byte> bytes) {
  auto frame = notice<schema::Delivery>(core_, wire::kDelivery);
  auto body = frame.init<schema::Delivery>();
  body.setCopy(element.copy->id);
  body.setOffset(offset);
  (void)frame.send(0, std::span(&bytes, 1));
}

// What was written is there before the notice is.
void CopyNotices::tell_written(const CopyElement& element) {
  auto frame = notice<schema::Delivery>(core_, wire::kDelivery);
  auto body = frame.init<schema::Delivery>();
  body.setCopy(element.copy->id);
  body.setOffset(element.offset);
  body.setWritten(element.bytes);
  core_.output.count_notice();
  (void)frame.send(0);
}

bool CopyNotices::is_being_read(const CopyElement& element) const {
  if (element.beside != 0) return beside_ != nullptr && !beside_->has_sent(element.beside);
  if (element.write == 0) return false;
  transport::RemoteMemory& remote = *remote_staging_.remote();
  return remote.wait(element.write, transport::Clock::now()).code() == StatusCode::kTimeout;
}

void CopyNotices::keep(const CopyElement& element) {
  if (is_being_read(element))
    core_.pending.add([this, element] { return !is_being_read(element); });
}

void CopyNotices::ask(const CopyElement& element) {
  auto frame = notice<schema::Fetch>(core_, wire::kFetch);
  auto body = frame.init<schema::Fetch>();
  body.setCopy(element.copy->id);
  body.setOffset(element.offset);
  body.setBytes(element.bytes);
  element.copy->asked = element.offset + element.bytes;
  (void)frame.send(0);
}

void CopyNotices::landed(const OrderedCopy& copy) {
  auto frame = notice<schema::Landed>(core_, wire::kLanded);
  frame.init<schema::Landed>().setCopy(copy.id);
  (void)frame.send(0);
}

void CopyNotices::over(const OrderedCopy& copy, CUresult result) {
  if (copy.is_barrier() ? !copy.reached : copy.fetch && copy.asked < copy.bytes) {
    auto frame = notice<schema::Fetch>(core_, wire::kFetch);
    auto body = frame.init<schema::Fetch>();
    body.setCopy(copy.id);
    body.setResult(result);
    (void)frame.send(0);
  } else if (!copy.fetch && copy.sent < copy.bytes) {
    auto frame = notice<schema::Delivery>(core_, wire::kDelivery);
    auto body = frame.init<schema::Delivery>();
    body.setCopy(copy.id);
    body.setResult(result);
    (void)frame.send(0);
  }
}

}  // namespace fargpu::server
