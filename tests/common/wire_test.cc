// The wire format: golden bytes, limits, messages in foreign memory.
#include <gtest/gtest.h>
#include <test_messages.capnp.h>

#include <array>
#include <cstring>
#include <fstream>
#include <vector>

#include "common/wire/control.h"
#include "common/wire/fixed_message.h"
#include "common/wire/frame.h"
#include "common/wire/prepared_body.h"
#include "common/wire/slot_message.h"

namespace fargpu::wire {
namespace {

using test::Blob;
using test::Nothing;
using test::Number;
using test::Order;
using test::Pair;
using test::Tree;

std::vector<uint8_t> bytes_of(const FrameHeader& header) {
  std::vector<uint8_t> bytes(sizeof header);
  std::memcpy(bytes.data(), &header, sizeof header);
  return bytes;
}

TEST(Golden, HeaderBytes) {
  FrameHeader header;
  header.opcode = 0x1234;
  header.flags = kReply | kAsyncError;
  header.context = 0x0201;
  header.sequence = 0xa1b2c3d4;
  header.body_bytes = 0x00010008;
  header.bulk_bytes = 0x1122334455667788;
  header.result = -2;
  const std::vector<uint8_t> expected = {0x46, 0x47, 0x34, 0x12,  // "FG", opcode
                                         0x09, 0x00, 0x01, 0x02,  // flags, context
                                         0xd4, 0xc3, 0xb2, 0xa1,  // sequence
                                         0x08, 0x00, 0x01, 0x00,  // body_bytes
                                         0x88, 0x77, 0x66, 0x55,
                                         0x44, 0x33, 0x22, 0x11,   // bulk_bytes
                                         0xfe, 0xff, 0xff, 0xff,   // result
                                         0x00, 0x00, 0x00, 0x00};  // reserved
  EXPECT_EQ(bytes_of(header), expected);
}

TEST(Golden, FlagsAndControlOpcodesNeverChange) {
  EXPECT_EQ(kReply, 1);
  EXPECT_EQ(kWantReply, 2);
  EXPECT_EQ(kNotice, 4);
  EXPECT_EQ(kAsyncError, 8);
  EXPECT_EQ(kHello, 1);
  EXPECT_EQ(kPing, 2);
  EXPECT_EQ(kBye, 3);
  EXPECT_EQ(kOutput, 4);
  EXPECT_EQ(kHostCall, 5);
  EXPECT_EQ(kHostCallDone, 6);
  EXPECT_EQ(kCopied, 10);
  EXPECT_EQ(kStatus, 7);
  EXPECT_EQ(kUpgrade, 8);
  EXPECT_EQ(kJoin, 9);
  EXPECT_EQ(kAlive, 11);
  EXPECT_EQ(kErrorOutput, 12);
  EXPECT_EQ(kSessionEnd, 22);
  EXPECT_EQ(kFirstApiOpcode, 64);
}

TEST(Golden, BodyBytes) {
  alignas(8) std::array<std::byte, 256> slot;
  slot.fill(std::byte{0xab});  // a used slot: nothing of it may shine through
  SlotMessageBuilder builder(slot);
  auto blob = builder.initRoot<Blob>();
  const kj::byte data[] = {1, 2, 3, 4, 5};
  blob.setData(kj::arrayPtr(data, 5));
  const uint8_t expected[] = {
      0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 0x00,  // root: struct, no data, one pointer
      0x01, 0x00, 0x00, 0x00, 0x2a, 0x00, 0x00, 0x00,  // list of 5 bytes, next word
      0x01, 0x02, 0x03, 0x04, 0x05, 0x00, 0x00, 0x00};
  ASSERT_EQ(builder.used_bytes(), sizeof expected);
  EXPECT_EQ(std::memcmp(slot.data(), expected, sizeof expected), 0);
}

TEST(CheckHeader, AcceptsWhatFits) {
  FrameHeader header;
  EXPECT_TRUE(check_header(header, {}).ok());
  header.flags = kKnownFlags;
  header.opcode = 0xffff;
  header.result = -1;
  header.body_bytes = FrameLimits().max_body_bytes;
  header.bulk_bytes = FrameLimits().max_bulk_bytes;
  EXPECT_TRUE(check_header(header, {}).ok());
}

TEST(CheckHeader, NamesWhatIsWrong) {
  using Change = void (*)(FrameHeader&);
  const std::pair<Change, const char*> cases[] = {
      {[](FrameHeader& header) { header.magic = 0x4745; }, "0x4745"},
      {[](FrameHeader& header) { header.flags = 0x12; }, "0x0010"},
      {[](FrameHeader& header) { header.reserved = 0x77; }, "0x77"},
      {[](FrameHeader& header) { header.body_bytes = 9; }, "9 bytes, not a multiple of 8"},
      {[](FrameHeader& header) { header.body_bytes = (1 << 20) + 8; },
       "1048584 bytes, the limit is 1048576"},
      {[](FrameHeader& header) { header.bulk_bytes = (64 << 20) + 1; },
       "67108865 bytes of bulk data, the limit is 67108864"},
  };
  for (auto [change, text] : cases) {
    FrameHeader header;
    header.opcode = 321;
    change(header);
    const Status status = check_header(header, {});
    EXPECT_EQ(status.code(), StatusCode::kProtocol);
    EXPECT_NE(status.message().find(text), std::string::npos) << status.message();
  }
}

TEST(SlotMessage, RoundTrip) {
  alignas(8) std::array<std::byte, 64> slot;
  SlotMessageBuilder builder(slot);
  builder.initRoot<Number>().setValue(0x0123456789abcdef);
  EXPECT_EQ(builder.used_bytes(), 16u);
  EXPECT_FALSE(builder.overflowed());
  SegmentReader reader{std::span(slot).first(16)};
  EXPECT_EQ(reader.getRoot<Number>().getValue(), 0x0123456789abcdefu);
}

TEST(SlotMessage, NothingBuiltUsesNothing) {
  alignas(8) std::array<std::byte, 64> slot;
  SlotMessageBuilder builder(slot);
  EXPECT_EQ(builder.used_bytes(), 0u);
}

TEST(SlotMessage, OverflowThrowsAndStaysInside) {
  alignas(8) std::array<std::byte, 128> memory;
  memory.fill(std::byte{0xcd});
  {
    SlotMessageBuilder builder{std::span(memory).first(64)};
    auto blob = builder.initRoot<Blob>();
    EXPECT_THROW(blob.initData(64), kj::Exception);
    EXPECT_TRUE(builder.overflowed());
  }
  for (std::byte byte : std::span(memory).subspan(64)) EXPECT_EQ(byte, std::byte{0xcd});
}

TEST(SlotMessage, EmptySlotThrows) {
  SlotMessageBuilder builder({});
  EXPECT_THROW(builder.initRoot<Number>(), kj::Exception);
  EXPECT_TRUE(builder.overflowed());
}

TEST(SlotMessage, SlotIsNotTouchedAfterwards) {
  alignas(8) std::array<std::byte, 64> slot;
  {
    SlotMessageBuilder builder(slot);
    builder.initRoot<Number>().setValue(42);
  }
  SegmentReader reader{std::span(slot).first(16)};
  EXPECT_EQ(reader.getRoot<Number>().getValue(), 42u);
}

TEST(FixedMessage, IsWhatABuilderMakes) {
  alignas(8) std::array<std::byte, 128> slot;
  const auto expect_same = [&](SlotMessageBuilder& builder, std::span<const std::byte> bytes) {
    ASSERT_EQ(bytes.size(), builder.used_bytes());
    EXPECT_EQ(std::memcmp(bytes.data(), slot.data(), bytes.size()), 0);
  };
  FixedMessage<Number> number;
  number.root().setValue(0x0123456789abcdef);
  SlotMessageBuilder of_number(slot);
  of_number.initRoot<Number>().setValue(0x0123456789abcdef);
  expect_same(of_number, number.bytes());
  const FixedMessage<Nothing> nothing;
  SlotMessageBuilder of_nothing(slot);
  of_nothing.initRoot<Nothing>();
  expect_same(of_nothing, nothing.bytes());
  // A number and two fields behind it, of which one is there.
  for (const size_t index : {0u, 1u}) {
    for (const size_t size : {1u, 8u, 13u, 40u}) {
      const std::vector<std::byte> data(size, std::byte{0x5a});
      const capnp::Data::Reader bytes(reinterpret_cast<const kj::byte*>(data.data()), size);
      FixedMessage<Pair, 40> pair;
      pair.root().setValue(7);
      std::memcpy(pair.data(), data.data(), size);
      pair.set_data(index, size);
      SlotMessageBuilder builder(slot);
      auto built = builder.initRoot<Pair>();
      built.setValue(7);
      index == 0 ? built.setFirst(bytes) : built.setSecond(bytes);
      expect_same(builder, pair.bytes());
    }
  }
  FixedMessage<Pair, 40> empty;
  SlotMessageBuilder builder(slot);
  builder.initRoot<Pair>();
  expect_same(builder, empty.bytes());
}

TEST(PreparedBody, IsWhatABuilderMakes) {
  const auto fill = [](Order::Builder order, uint64_t value) {
    order.setKind(7);
    order.setValue(value);
  };
  const auto prepared = PreparedBody::make<Order>(fill);
  for (const uint64_t value : {uint64_t{0}, uint64_t{1} << 40, uint64_t{0x0123456789abcdef}}) {
    alignas(8) std::array<std::byte, 64> slot;
    SlotMessageBuilder builder(slot);
    fill(builder.initRoot<Order>(), value);
    const auto body = prepared.with(value);
    ASSERT_EQ(body.bytes().size(), builder.used_bytes());
    EXPECT_EQ(std::memcmp(body.bytes().data(), slot.data(), body.bytes().size()), 0) << value;
  }
}

TEST(SegmentReader, EmptyAndTruncatedBodiesThrow) {
  EXPECT_THROW(SegmentReader(std::span<const std::byte>()).getRoot<Number>(), kj::Exception);
  alignas(8) std::array<std::byte, 128> slot;
  SlotMessageBuilder builder(slot);
  auto blob = builder.initRoot<Blob>();
  blob.initData(40);
  const size_t whole = builder.used_bytes();
  for (size_t cut = 0; cut < whole; cut += 8) {
    SegmentReader reader{std::span(slot).first(cut)};
    EXPECT_THROW(reader.getRoot<Blob>().getData(), kj::Exception) << cut;
  }
}

TEST(SegmentReader, OtherSegmentsDoNotExist) {
  // A far pointer to segment 1.
  const uint64_t body[] = {0x0000000100000002};
  SegmentReader reader{std::as_bytes(std::span(body))};
  EXPECT_THROW(reader.getRoot<Number>().getValue(), kj::Exception);
}

int depth_of(Tree::Reader tree) {
  return tree.getChildren().size() == 0 ? 1 : 1 + depth_of(tree.getChildren()[0]);
}

TEST(SegmentReader, LimitsNesting) {
  for (int levels : {3, 20}) {
    alignas(8) std::array<std::byte, 4096> slot;
    SlotMessageBuilder builder(slot);
    auto tree = builder.initRoot<Tree>();
    for (int i = 1; i < levels; ++i) tree = tree.initChildren(1)[0];
    SegmentReader reader{std::span(slot).first(builder.used_bytes())};
    if (levels == 3) {
      EXPECT_EQ(depth_of(reader.getRoot<Tree>()), 3);
    } else {
      EXPECT_THROW(depth_of(reader.getRoot<Tree>()), kj::Exception);
    }
  }
}

TEST(SegmentReader, LimitsTraversal) {
  // One blob of 800 bytes, read again and again: a small message must not cost unbounded work.
  alignas(8) std::array<std::byte, 1024> slot;
  SlotMessageBuilder builder(slot);
  builder.initRoot<Blob>().initData(800);
  SegmentReader reader{std::span(slot).first(builder.used_bytes())};
  auto blob = reader.getRoot<Blob>();
  EXPECT_THROW(
      {
        for (int i = 0; i < 100; ++i) blob.getData();
      },
      kj::Exception);
}

}  // namespace
}  // namespace fargpu::wire
