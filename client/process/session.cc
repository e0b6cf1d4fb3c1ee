#include "client/process/session.h"

#include <algorithm>
#include <string>

#include "client/call/trace.h"
#include "client/managed/managed_state.h"
#include "client/process/process.h"
#include "client/timeline/session_timeline.h"
#include "common/base/log.h"
#include "common/transport/link/emulated_link.h"
#include "common/wire/control.h"
#include "common/wire/slot_message.h"
#include "generated/client/wire/internal.h"
#include "generated/schema/control.capnp.h"
#include "generated/schema/opcodes.h"

namespace fargpu::client {

namespace {

uint64_t bytes_of_piece(const Snapshot& snapshot) {
  // Large enough to fill a link, small enough to overlap with the worker's copies.
  constexpr uint64_t kPiece = 16u << 20;
  const uint64_t bytes = std::min(kPiece, snapshot.max_bulk_bytes);
  // Whole elements of whatever array.
  constexpr uint64_t kElement = 16;
  return bytes < kElement ? std::max<uint64_t>(1, bytes) : bytes / kElement * kElement;
}

Status malformed_notice(const char* name) {
  return {StatusCode::kProtocol, std::string("the server sent a malformed ") + name};
}

// Devices that have no number yet are numbered from `first` on.
Snapshot numbered(Snapshot snapshot, int first) {
  for (Device& device : snapshot.devices) {
    if (device.ordinal < 0)
      device.ordinal = first + static_cast<int>(&device - snapshot.devices.data());
  }
  return snapshot;
}

int first_of(const Snapshot& snapshot, int otherwise) {
  const auto& devices = snapshot.devices;
  return devices.empty() || devices.front().ordinal < 0 ? otherwise : devices.front().ordinal;
}

}  // namespace

Session::Session(const SessionIdentity& identity, Settings given_settings, Link::Server server,
                 Snapshot given_snapshot)
    : Link(std::move(server), given_settings.zero_copy),
      number(identity.number),
      first_device(first_of(given_snapshot, identity.first_device)),
      settings(std::move(given_settings)),
      snapshot(numbered(std::move(given_snapshot), first_device)),
      tables(identity.tables),
      handles(identity.tables.handles),
      contexts(identity.tables.contexts),
      device_memory(identity.tables.device_memory),
      host_memory(identity.tables.host_memory),
      reservations(identity.tables.reservations),
      output(identity.tables.output),
      pages(*this, observers, bytes_of_piece(snapshot), gated_host.accesses()),
      managed_state(std::make_unique<ManagedState>(observers)),
      managed(managed_state->memory),
      amendable_copies([this](uint64_t copy, std::span<const std::byte> bytes) {
        wire::fgAmend(*this, 0, copy, bytes.data(), bytes.size());
      }),
      piece_size_(bytes_of_piece(snapshot)),
      next_buffer_id_(identity.tables.next_buffer_id) {
  pages.amend_before_sending(amendable_copies);
  for (const Device& device : snapshot.devices)
    contexts.add_primary(device.ordinal, device.worker_ordinal, owner());
}

// Before what its notices come to.
Session::~Session() { set_channel(nullptr); }

const Device* Session::find_device(int ordinal) const {
  for (const Device& device : snapshot.devices) {
    if (device.ordinal == ordinal) return &device;
  }
  return nullptr;
}

void Session::attach(std::unique_ptr<transport::Transport> transport,
                     std::unique_ptr<transport::Transport> bulk, rpc::ChannelOptions options) {
  if (settings.link) {
    const auto way = std::make_shared<transport::LinkWay>();
    transport = transport::emulate_link(std::move(transport), *settings.link, way);
    if (bulk != nullptr) bulk = transport::emulate_link(std::move(bulk), *settings.link, way);
  }
  packs_images_ = settings.compression == wire::Compression::kZstd ||
                  (settings.compression == wire::Compression::kAuto &&
                   transport->capabilities().crosses_network);
  if (trace::chrome()) {
    lanes = std::make_unique<timeline::SessionTimeline>(*this, number, settings.server,
                                                        settings.trace_records);
    options.frames = lanes->observer();
  }
  set_channel(
      std::make_unique<rpc::Channel>(std::move(transport), *this, options, std::move(bulk)));
}

Status Session::on_notice(const wire::FrameHeader& header, rpc::Bytes body, rpc::Bytes bulk) {
  switch (header.opcode) {
    case wire::kOutput:
    case wire::kErrorOutput:
      output.append(bulk, header.opcode == wire::kErrorOutput);
      outputs_received.fetch_add(1, std::memory_order_relaxed);
      return {};
    case wire::kAlive:  // the channel has noted that bytes came
      worker_in.store(header.sequence, std::memory_order_relaxed);
      return {};
    case wire::kHostCall:
      try {
        wire::SegmentReader reader(body);
        const auto call = reader.getRoot<schema::HostCall>();
        if (call.getCancelled()) {
          host_calls.cancel(call.getId());
        } else {
          host_calls.due(call.getId(), static_cast<CUresult>(call.getStatus()));
        }
        return {};
      } catch (const kj::Exception&) {
        return malformed_notice("HostCall");
      }
    case wire::kQueueReached:
      try {
        wire::SegmentReader reader(body);
        queue_marks.reached(reader.getRoot<schema::QueueReached>().getTicket());
        return {};
      } catch (const kj::Exception&) {
        return {StatusCode::kProtocol, "the server sent a malformed QueueReached"};
      }
    case wire::kCopied:
      try {
        wire::SegmentReader reader(body);
        const auto copied = reader.getRoot<schema::Copied>();
        staging_rings.copied(copied.getTicket(), copied.getResult(), copied.getOutputs());
        return {};
      } catch (const kj::Exception&) {
        return malformed_notice("Copied");
      }
    case wire::kDelivery:
      return on_delivery(body, bulk);
    case wire::kFetch:
      return on_fetch(body);
    case wire::kLanded:
      return on_landed(body);
    case wire::kPassed:
      amendable_copies.passed(header.sequence);
      return {};
    default:
      return {StatusCode::kProtocol,
              "the server sent an unknown notice, opcode " + std::to_string(header.opcode)};
  }
}

Result<std::span<std::byte>> Session::notice_buffer(const wire::FrameHeader& header,
                                                    rpc::Bytes body) {
  if (header.opcode != wire::kDelivery) return std::span<std::byte>();
  try {
    wire::SegmentReader reader(body);
    const auto delivery = reader.getRoot<schema::Delivery>();
    return ordered_copies.target(delivery.getCopy(), delivery.getOffset(), header.bulk_bytes);
  } catch (const kj::Exception&) {
    return malformed_notice("Delivery");
  }
}

Status Session::on_delivery(rpc::Bytes body, rpc::Bytes bulk) {
  try {
    wire::SegmentReader reader(body);
    const auto delivery = reader.getRoot<schema::Delivery>();
    FARGPU_RETURN_IF_ERROR(ordered_copies.on_delivery(delivery.getCopy(), delivery.getOffset(),
                                                      static_cast<CUresult>(delivery.getResult()),
                                                      bulk, delivery.getWritten()));
    if (!bulk.empty() || delivery.getWritten() != 0)
      outputs_received.fetch_add(1, std::memory_order_relaxed);
    return {};
  } catch (const kj::Exception&) {
    return malformed_notice("Delivery");
  }
}

Status Session::on_fetch(rpc::Bytes body) {
  try {
    wire::SegmentReader reader(body);
    const auto fetch = reader.getRoot<schema::Fetch>();
    return ordered_copies.on_fetch(fetch.getCopy(), fetch.getOffset(), fetch.getBytes(),
                                   static_cast<CUresult>(fetch.getResult()));
  } catch (const kj::Exception&) {
    return malformed_notice("Fetch");
  }
}

Status Session::on_landed(rpc::Bytes body) {
  try {
    wire::SegmentReader reader(body);
    return ordered_copies.on_landed(reader.getRoot<schema::Landed>().getCopy());
  } catch (const kj::Exception&) {
    return malformed_notice("Landed");
  }
}

void Session::on_async_error(uint16_t opcode, uint32_t sequence, uint16_t wire_context,
                             int32_t result) {
  const auto error = static_cast<CUresult>(result);
  Context* context = wire_context == 0 ? nullptr : find_context(wire_context);
  log::debug("asynchronous call {} (opcode {}) failed with {} in context {}", sequence, opcode,
             result, wire_context);
  int none = CUDA_SUCCESS;
  if (context == nullptr) {
    kept.compare_exchange_strong(none, error);
  } else if (is_sticky(error)) {
    context->sticky.compare_exchange_strong(none, error);
  } else {
    context->kept.compare_exchange_strong(none, error);
  }
}

void Session::on_lost(const Status& why) {
  Process& process = Process::get();
  const bool is_news = process.lose(*this);
  ordered_copies.lost();
  value_waits.lost();
  host_calls.lost(CUDA_ERROR_DEVICE_UNAVAILABLE);
  if (is_news) process.tell_lost(*this, why);
}

}  // namespace fargpu::client
