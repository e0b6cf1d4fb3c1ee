// A session with a driver made by hand, for tests of copies that follow their stream: what the
// client sends, and the notices that it gets.
#pragma once

#include <algorithm>
#include <vector>

#include "common/wire/control.h"
#include "generated/schema/control.capnp.h"
#include "generated/schema/internal.capnp.h"
#include "generated/schema/opcodes.h"
#include "generated/schema/stream.capnp.h"
#include "server/copy/ordered_copies.h"
#include "tests/server/executor_fixture.h"
#include "tests/server/remote_transport.h"

namespace fargpu::server {

inline constexpr uint64_t kPiece = copy::kPieceBytes;
inline constexpr uint64_t kDevice = 0x7000;

inline FakeDriver& driver() { return FakeDriver::get(); }

struct Notice {
  uint16_t opcode = 0;
  uint64_t copy = 0, offset = 0, bytes = 0, written = 0;
  int32_t result = 0;
  std::vector<std::byte> bulk;
};

class OrderedCopiesTest : public ExecutorTest {
 protected:
  void begin() {
    start();
    driver().fail("cuMemHostRegister", CUDA_SUCCESS);
    for (auto& word : driver().words) word = 0;
    enter();
  }
  static copy::Completion follow(uint64_t id, int hold) {
    return {copy::Completion::Kind::kFollow, static_cast<copy::Hold>(hold), id, 0};
  }
  static copy::Location device() { return copy::Location::device({kDevice}); }
  uint32_t deliver(uint64_t id, uint64_t bytes, int hold = 1, uint16_t flags = 0,
                   uint16_t context = 1) {
    return send_copy({device(), copy::Location::frame(), {bytes}, follow(id, hold)}, 0, flags,
                     context);
  }
  uint32_t deliver_to(uint64_t id, uint64_t bytes, const transport::RemoteKey& key, uint64_t offset,
                      uint16_t flags = 0) {
    return send_copy({device(), copy::Location::in(key, offset), {bytes}, follow(id, 1)}, 0, flags);
  }
  uint32_t fetch(uint64_t id, uint64_t bytes, uint16_t flags = 0, uint16_t context = 1,
                 int hold = 1) {
    return send_copy({copy::Location::frame(), device(), {bytes}, follow(id, hold)}, 0, flags,
                     context);
  }
  uint32_t fetched(uint64_t id, uint64_t offset, const std::vector<std::byte>& bytes, uint64_t said,
                   uint16_t flags = wire::kWantReply) {
    alignas(8) std::byte memory[256];
    wire::SlotMessageBuilder builder(std::span<std::byte>(memory, sizeof memory));
    auto params = builder.initRoot<schema::FgFetchedParams>();
    params.setId(id);
    params.setOffset(offset);
    params.setBytes(said);
    return send(schema::op_fgFetched, std::span<const std::byte>(memory, builder.used_bytes()),
                flags, 0, bytes);
  }
  uint32_t fetched(uint64_t id, uint64_t offset, const std::vector<std::byte>& bytes) {
    return fetched(id, offset, bytes, bytes.size());
  }
  // A copy that brings its bytes and may be amended.
  uint32_t amended(uint64_t id, const std::string& text, uint16_t flags = 0,
                   copy::Order order = copy::Order::kStream, uint16_t context = 1) {
    return send_copy({copy::Location::frame(),
                      device(),
                      {text.size()},
                      {copy::Completion::Kind::kAmended, copy::Hold::kNever, id, 0},
                      order},
                     0, flags, context, std::as_bytes(std::span(text)));
  }
  uint32_t amend(uint64_t id, const std::string& text, uint16_t flags = 0) {
    alignas(8) std::byte memory[256];
    wire::SlotMessageBuilder builder(std::span<std::byte>(memory, sizeof memory));
    auto params = builder.initRoot<schema::FgAmendParams>();
    params.setId(id);
    params.setBytes(text.size());
    return send(schema::op_fgAmend, std::span<const std::byte>(memory, builder.used_bytes()), flags,
                0, std::as_bytes(std::span(text)));
  }
  static std::string source_text(size_t bytes) {
    return {static_cast<const char*>(driver().source.load()), bytes};
  }
  void expect_passed(uint64_t id) {
    const Notice passed = notice();
    EXPECT_EQ(passed.opcode, wire::kPassed);
    EXPECT_EQ(passed.copy, id);
  }
  uint32_t delivered(uint64_t id) {
    return send<schema::FgDeliveredParams>(schema::op_fgDelivered, [&](auto p) { p.setId(id); });
  }
  uint32_t meet(uint64_t id, uint16_t flags = 0, uint16_t context = 1) {
    return send<schema::FgMeetDeliveriesParams>(
        schema::op_fgMeetDeliveries, [&](auto p) { p.setId(id); }, flags, context);
  }
  uint32_t synchronise() {
    return send<schema::CuStreamSynchronizeParams>(schema::op_cuStreamSynchronize, [](auto) {});
  }
  Notice notice() {
    const Answer answer = next();
    EXPECT_EQ(answer.header.flags, wire::kNotice);
    Notice notice{answer.header.opcode, 0, 0, 0, 0, 0, answer.bulk};
    if (notice.opcode == wire::kPassed) notice.copy = answer.header.sequence;
    if (answer.body.empty()) return notice;
    wire::SegmentReader reader(answer.body);
    if (notice.opcode == wire::kDelivery) {
      const auto delivery = reader.getRoot<schema::Delivery>();
      notice.copy = delivery.getCopy();
      notice.offset = delivery.getOffset();
      notice.result = delivery.getResult();
      notice.written = delivery.getWritten();
    } else if (notice.opcode == wire::kLanded) {
      notice.copy = reader.getRoot<schema::Landed>().getCopy();
    } else {
      EXPECT_EQ(notice.opcode, wire::kFetch);
      const auto fetch = reader.getRoot<schema::Fetch>();
      notice.copy = fetch.getCopy();
      notice.offset = fetch.getOffset();
      notice.bytes = fetch.getBytes();
      notice.result = fetch.getResult();
    }
    return notice;
  }
  test::RemoteMemoryThatWrites remote_;
  // The last word given out, with which every session begins.
  static uint32_t opened() {
    return *std::max_element(driver().words.begin(), driver().words.end(),
                             [](const auto& a, const auto& b) { return a.load() < b.load(); });
  }
  static bool opened_soon(uint32_t gates) {
    return eventually([gates] { return opened() == gates; });
  }
};

}  // namespace fargpu::server
