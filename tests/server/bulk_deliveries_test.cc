// A session with a bulk connection: large deliveries go there, and the executor never waits for
// them.
#include "server/copy/bulk_deliveries.h"

#include <gmock/gmock.h>

#include <deque>

#include "generated/schema/internal.capnp.h"
#include "tests/server/ordered_copies_fixture.h"

namespace fargpu::server {
namespace {

using ::testing::HasSubstr;
using transport::Clock;

class Frames final : public transport::FrameHandler {
 public:
  Result<std::span<std::byte>> bulk_buffer(const wire::FrameHeader& header,
                                           std::span<const std::byte>) override {
    bulk_.resize(header.bulk_bytes);
    return std::span(bulk_);
  }
  Status on_frame(const wire::FrameHeader& header, std::span<const std::byte> body,
                  std::span<std::byte> bulk) override {
    all.push_back({header, {body.begin(), body.end()}, {bulk.begin(), bulk.end()}});
    return {};
  }
  std::deque<Answer> all;

 private:
  std::vector<std::byte> bulk_;
};

class BulkDeliveriesTest : public OrderedCopiesTest {
 protected:
  BulkDeliveriesTest() { with_bulk_connection_ = true; }

  void expect_number(uint32_t number) {
    const Answer answer = next();
    EXPECT_EQ(answer.header.opcode, wire::kDeliveryBeside);
    EXPECT_EQ(answer.header.flags, wire::kNotice);
    EXPECT_EQ(answer.header.sequence, number);
    EXPECT_TRUE(answer.body.empty() && answer.bulk.empty());
  }
  // The next frame on the bulk connection.
  void expect_beside(uint32_t number, uint64_t copy, uint64_t offset, uint64_t bytes) {
    if (frames_.all.empty()) {
      const auto received = beside_->receive(frames_, Clock::now() + std::chrono::seconds(20));
      ASSERT_TRUE(received.ok()) << received.status().message();
    }
    ASSERT_FALSE(frames_.all.empty());
    const Answer frame = std::move(frames_.all.front());
    frames_.all.pop_front();
    EXPECT_EQ(frame.header.opcode, wire::kDelivery);
    EXPECT_EQ(frame.header.flags, wire::kNotice);
    EXPECT_EQ(frame.header.sequence, number);
    wire::SegmentReader reader(frame.body);
    const auto delivery = reader.getRoot<schema::Delivery>();
    EXPECT_EQ(delivery.getCopy(), copy);
    EXPECT_EQ(delivery.getOffset(), offset);
    ASSERT_EQ(frame.bulk.size(), bytes);
    EXPECT_EQ(frame.bulk.front(), std::byte(kDevice + offset));
    EXPECT_EQ(frame.bulk.back(), std::byte(kDevice + offset + bytes - 1));
  }

 private:
  Frames frames_;
};

TEST_F(BulkDeliveriesTest, LargeOnesGoThereAndTheNumberComesBeforeTheReply) {
  begin();
  driver().shut("event");
  deliver(1, 2 * kPiece, 0);
  deliver(2, 1000, 0);
  const uint32_t waiting = synchronise();
  expect_silence();
  driver().open("event");
  expect_number(1);
  expect_number(2);
  expect_number(3);
  expect_answer(waiting, CUDA_SUCCESS);
  expect_beside(1, 1, 0, kPiece);
  expect_beside(2, 1, kPiece, kPiece);
  expect_beside(3, 2, 0, 1000);
}

TEST_F(BulkDeliveriesTest, SmallOnesComeInFramesWhenNothingIsBeforeThem) {
  begin();
  deliver(1, copy::kBulkFrom - 1, 0);
  EXPECT_EQ(notice().opcode, wire::kDelivery);
  deliver(2, copy::kBulkFrom, 0);
  expect_number(1);
  expect_beside(1, 2, 0, copy::kBulkFrom);
  // The thread has sent it, and is about to say so.
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  deliver(3, 100, 0);
  const Notice small = notice();
  EXPECT_EQ(small.opcode, wire::kDelivery);
  EXPECT_EQ(small.copy, 3u);
}

TEST_F(BulkDeliveriesTest, AClientThatDoesNotKnowItGetsFrames) {
  client_control_ = ~(uint64_t{1} << wire::kDeliveryBeside);
  begin();
  deliver(1, kPiece, 0);
  const Notice delivery = notice();
  EXPECT_EQ(delivery.opcode, wire::kDelivery);
  EXPECT_EQ(delivery.bulk.size(), kPiece);
}

// Nobody reads there: calls are answered, and blocks are used again when they have been sent. The
// connection holds one of them.
TEST_F(BulkDeliveriesTest, TheExecutorGoesOnAndTheBytesStay) {
  begin();
  constexpr uint64_t kBytes = OrderedCopies::kStagingBytes;
  constexpr auto kPieces = static_cast<uint32_t>(kBytes / kPiece);
  deliver(1, kBytes);
  deliver(2, 3 * kPiece);
  for (uint32_t number = 1; number <= kPieces + 1; ++number) expect_number(number);
  for (int i = 0; i < 20; ++i) expect_silence();
  EXPECT_EQ(opened(), 1u) << "the second block is still to be sent";
  for (uint32_t number = 1; number <= kPieces; ++number)
    expect_beside(number, 1, (number - 1) * kPiece, kPiece);
  EXPECT_TRUE(opened_soon(3));
  for (uint32_t i = 0; i < 3; ++i) expect_beside(kPieces + 1 + i, 2, i * kPiece, kPiece);
  expect_number(kPieces + 2);
  expect_number(kPieces + 3);
}

TEST_F(BulkDeliveriesTest, AContextThatGoesLeavesBytesUnderWay) {
  begin();
  expect_answer(send<schema::FgContextCreateParams>(schema::op_fgContextCreate,
                                                    [](auto p) { p.setContext(300); }),
                CUDA_SUCCESS);
  deliver(1, 3 * kPiece, 0, 0, 300);
  for (uint32_t number = 1; number <= 3; ++number) expect_number(number);
  expect_answer(send<schema::FgContextDestroyParams>(schema::op_fgContextDestroy,
                                                     [](auto p) { p.setContext(300); }),
                CUDA_SUCCESS);
  // The memory is not given to others.
  const uint32_t filled = fetch(2, kPiece, wire::kWantReply);
  expect_answer(filled, CUDA_SUCCESS);
  EXPECT_EQ(notice().opcode, wire::kFetch);
  expect_answer(fetched(2, 0, std::vector<std::byte>(kPiece, std::byte{0xee})), CUDA_SUCCESS);
  for (uint32_t number = 1; number <= 3; ++number)
    expect_beside(number, 1, (number - 1) * kPiece, kPiece);
}

TEST_F(BulkDeliveriesTest, TheEndOfTheConnectionEndsTheSession) {
  begin();
  deliver(1, 4 * kPiece, 0);
  for (uint32_t number = 1; number <= 4; ++number) expect_number(number);
  beside_->close();
  const Status status = end();
  EXPECT_EQ(status.code(), StatusCode::kLost);
  EXPECT_THAT(status.message(), HasSubstr("bulk connection has ended"));
}

TEST_F(BulkDeliveriesTest, AByeDoesNotWaitForBytes) {
  begin();
  deliver(1, 4 * kPiece, 0);
  for (uint32_t number = 1; number <= 4; ++number) expect_number(number);
  send(wire::kBye, {}, 0);
  EXPECT_TRUE(end().ok());
}

}  // namespace
}  // namespace fargpu::server
