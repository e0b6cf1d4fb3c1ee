// The contract of transport.h, for every kind of transport.
#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <thread>

#include "tests/transport/frames.h"
#include "tests/transport/transport_pairs.h"

namespace fargpu::test {
namespace {

using namespace std::chrono_literals;
using transport::Clock;
using transport::kNoDeadline;

class TransportSuite : public ::testing::TestWithParam<TransportKind> {
 protected:
  TransportSuite() : pair_(GetParam().make({})), client_(*pair_.client), server_(*pair_.server) {}

  // Receives at `end` until `count` frames have come or a minute has passed.
  static Status receive_frames(transport::Transport& end, CheckingHandler& handler, size_t count) {
    const auto deadline = Clock::now() + 60s;
    while (handler.headers.size() < count) {
      auto received = end.receive(handler, deadline);
      if (!received.ok()) return received.status();
      if (Clock::now() >= deadline) return Status(StatusCode::kTimeout, "frames missing");
    }
    return Status();
  }

  Status post_frame(uint32_t sequence, size_t body_bytes) {
    wire::FrameHeader header = header_of(static_cast<uint32_t>(body_bytes), 0);
    header.sequence = sequence;
    return client_.post(header, pattern(body_bytes, sequence));
  }

  // What `send` sends on a thread of its own arrives at the server whole and in order.
  template <typename Send>
  void expect_in_order(uint32_t count, CheckingHandler& handler, Send send) {
    std::thread sender(send);
    const Status status = receive_frames(server_, handler, count);
    sender.join();
    ASSERT_TRUE(status.ok()) << status.message();
    for (uint32_t i = 0; i < count; ++i) ASSERT_EQ(handler.headers[i].sequence, i + 1);
    EXPECT_EQ(handler.wrong, 0);
  }

  TransportPair pair_;
  transport::Transport& client_;
  transport::Transport& server_;
};

TEST_P(TransportSuite, DeliversInOrder) {
  constexpr uint32_t kFrames = 2000;
  CheckingHandler handler;
  expect_in_order(kFrames, handler, [&] {
    for (uint32_t i = 1; i <= kFrames; ++i) {
      EXPECT_TRUE(send_frame(client_, i, 8 * (i % 20), i % 7).ok());
      if (i % 13 == 0) {
        EXPECT_TRUE(client_.flush(kNoDeadline).ok());
      }
    }
    EXPECT_TRUE(client_.flush(kNoDeadline).ok());
  });
  EXPECT_EQ(handler.unaligned, 0);
  // An emulated link keeps frames in memory of its own.
  if (std::string_view(GetParam().name).find("emulated") == std::string_view::npos) {
    EXPECT_EQ(handler.unguarded, 0);
  }
}

// By turns with frames that are built in slots, and more of them than a ring or a buffer holds.
TEST_P(TransportSuite, PostsFramesThatAreThereAlready) {
  constexpr uint32_t kFrames = 20'000;
  CheckingHandler handler;
  expect_in_order(kFrames, handler, [&] {
    for (uint32_t i = 1; i <= kFrames; ++i) {
      const size_t body_bytes = 8 * (i % 250);
      const Status posted =
          i % 5 == 0 ? Status(StatusCode::kTimeout, "") : post_frame(i, body_bytes);
      if (posted.ok()) continue;
      EXPECT_EQ(posted.code(), StatusCode::kTimeout) << posted.message();
      EXPECT_TRUE(send_frame(client_, i, body_bytes, 0).ok());
    }
    EXPECT_TRUE(client_.flush(kNoDeadline).ok());
  });
  EXPECT_EQ(client_.statistics().frames_sent, kFrames);
}

TEST_P(TransportSuite, APostNeverWaits) {
  Status status;
  uint32_t posted = 0;
  while (status.ok() && posted < 10'000'000) {
    status = post_frame(posted + 1, 1024);
    if (status.ok()) ++posted;
  }
  ASSERT_EQ(status.code(), StatusCode::kTimeout) << status.message();
  CheckingHandler handler;
  std::thread flusher([&] { EXPECT_TRUE(client_.flush(Clock::now() + 20s).ok()); });
  EXPECT_TRUE(receive_frames(server_, handler, posted).ok());
  flusher.join();
  EXPECT_EQ(handler.wrong, 0);
  EXPECT_TRUE(post_frame(posted + 1, 1024).ok());
  // Also of a frame that is refused, or goes nowhere.
  EXPECT_EQ(client_.post(header_of(16, 0), pattern(8, 1)).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(client_.post(header_of(8, 8), pattern(8, 1)).code(), StatusCode::kInvalidArgument);
  client_.close();
  EXPECT_EQ(post_frame(1, 8).code(), StatusCode::kLost);
}

TEST_P(TransportSuite, CarriesEverySize) {
  const size_t bodies[] = {0, 8, 40, 4096, 65536, 1 << 20};
  const size_t bulks[] = {0, 1, 7, 8, 4095, 8192, 8193, 65537, 300'001};
  constexpr size_t kLarge = (5 << 20) + 3;
  std::thread sender([&] {
    uint32_t sequence = 0;
    for (size_t body : bodies) {
      for (size_t bulk : bulks) {
        EXPECT_TRUE(send_frame(client_, ++sequence, body, bulk).ok());
        EXPECT_TRUE(client_.flush(kNoDeadline).ok());
      }
    }
    EXPECT_TRUE(send_frame(client_, ++sequence, 8, kLarge).ok());
    EXPECT_TRUE(client_.flush(kNoDeadline).ok());
  });
  CheckingHandler handler;
  Status status = receive_frames(server_, handler, std::size(bodies) * std::size(bulks) + 1);
  sender.join();
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(handler.wrong, 0);
  EXPECT_EQ(handler.unaligned, 0);
}

TEST_P(TransportSuite, GathersBulkPieces) {
  std::thread sender([&] {
    for (uint32_t pieces : {1u, 2u, 17u, 300u}) {
      EXPECT_TRUE(send_frame(client_, pieces, 64, 100'001, pieces).ok());
      EXPECT_TRUE(
          send_frame(client_, pieces + 1000, 64, 200, pieces).ok());  // some pieces are empty
    }
    EXPECT_TRUE(client_.flush(kNoDeadline).ok());
  });
  CheckingHandler handler;
  Status status = receive_frames(server_, handler, 8);
  sender.join();
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(handler.wrong, 0);
}

TEST_P(TransportSuite, BothDirectionsAtOnce) {
  constexpr uint32_t kFrames = 3000;
  auto send_all = [](transport::Transport& end) {
    for (uint32_t i = 1; i <= kFrames; ++i) {
      const size_t bulk = i % 100 == 0 ? 200'000 : i % 50;
      EXPECT_TRUE(send_frame(end, i, 8 * (i % 33), bulk).ok());
      if (i % 10 == 0) {
        EXPECT_TRUE(end.flush(kNoDeadline).ok());
      }
    }
    EXPECT_TRUE(end.flush(kNoDeadline).ok());
  };
  std::thread client_sender(send_all, std::ref(client_)),
      server_sender(send_all, std::ref(server_));
  CheckingHandler at_client, at_server;
  std::thread client_receiver(
      [&] { EXPECT_TRUE(receive_frames(client_, at_client, kFrames).ok()); });
  EXPECT_TRUE(receive_frames(server_, at_server, kFrames).ok());
  client_sender.join();
  server_sender.join();
  client_receiver.join();
  for (CheckingHandler* handler : {&at_client, &at_server}) {
    EXPECT_EQ(handler->wrong, 0);
    EXPECT_EQ(handler->unaligned, 0);
    ASSERT_EQ(handler->headers.size(), kFrames);
    for (uint32_t i = 0; i < kFrames; ++i) ASSERT_EQ(handler->headers[i].sequence, i + 1);
  }
}

// Large and small bulk by turns, in pieces that end anywhere: what several connections share must
// not mix.
TEST_P(TransportSuite, LargeBulkAmongSmallFrames) {
  constexpr uint32_t kFrames = 200;
  CheckingHandler handler;
  expect_in_order(kFrames, handler, [&] {
    for (uint32_t i = 1; i <= kFrames; ++i) {
      const size_t bulk = i % 3 == 0 ? 700'001 + 4096 * i : i % 3 == 1 ? 262'143 + i % 5 : i % 9;
      EXPECT_TRUE(send_frame(client_, i, 8 * (i % 20), bulk, 1 + i % 11).ok());
    }
    EXPECT_TRUE(client_.flush(kNoDeadline).ok());
  });
}

TEST_P(TransportSuite, PollDeliversNothingWhenNothingIsThere) {
  CheckingHandler handler;
  auto received = server_.receive(handler, Clock::now() - 1s);
  ASSERT_TRUE(received.ok());
  EXPECT_EQ(*received, 0u);
}

TEST_P(TransportSuite, ReceiveReturnsAtItsDeadline) {
  CheckingHandler handler;
  const auto deadline = Clock::now() + 30ms;
  auto received = server_.receive(handler, deadline);
  ASSERT_TRUE(received.ok());
  EXPECT_EQ(*received, 0u);
  EXPECT_GE(Clock::now(), deadline);
}

TEST_P(TransportSuite, WakeEndsAReceive) {
  std::thread waker([&] {
    std::this_thread::sleep_for(20ms);
    server_.wake();
  });
  CheckingHandler handler;
  auto received = server_.receive(handler, kNoDeadline);
  waker.join();
  ASSERT_TRUE(received.ok());
  EXPECT_EQ(*received, 0u);
}

TEST_P(TransportSuite, WakeBeforeReceiveIsNotLost) {
  server_.wake();
  CheckingHandler handler;
  auto received = server_.receive(handler, kNoDeadline);
  ASSERT_TRUE(received.ok());
  EXPECT_EQ(*received, 0u);
}

TEST_P(TransportSuite, DescriptorBecomesReadable) {
  const int descriptor = server_.poll_descriptor();
  if (descriptor < 0) GTEST_SKIP() << "has no descriptor";
  pollfd entry{descriptor, POLLIN, 0};
  ASSERT_TRUE(server_.arm());
  EXPECT_EQ(::poll(&entry, 1, 0), 0);
  ASSERT_TRUE(send_frame(client_, 1, 8, 0).ok());
  ASSERT_TRUE(client_.flush(kNoDeadline).ok());
  EXPECT_EQ(::poll(&entry, 1, 10'000), 1);
  CheckingHandler handler;
  ASSERT_TRUE(receive_frames(server_, handler, 1).ok());
  ASSERT_TRUE(server_.arm());
  EXPECT_EQ(::poll(&entry, 1, 0), 0);
  server_.wake();
  EXPECT_EQ(::poll(&entry, 1, 10'000), 1);
  ASSERT_TRUE(server_.receive(handler, kNoDeadline).ok());
  ASSERT_TRUE(server_.arm());
  EXPECT_EQ(::poll(&entry, 1, 0), 0);
}

// A frame that comes while nobody is armed is either announced by arm() or by the descriptor.
TEST_P(TransportSuite, ArmMissesNothing) {
  const int descriptor = server_.poll_descriptor();
  if (descriptor < 0) GTEST_SKIP() << "has no descriptor";
  CheckingHandler handler;
  for (uint32_t round = 1; round <= 20; ++round) {
    if (round % 2 == 0) {
      (void)server_.arm();
    }
    ASSERT_TRUE(send_frame(client_, round, 8, 0).ok());
    ASSERT_TRUE(client_.flush(kNoDeadline).ok());
    while (handler.headers.size() < round) {
      if (server_.arm()) {
        pollfd entry{descriptor, POLLIN, 0};
        ASSERT_EQ(::poll(&entry, 1, 10'000), 1) << "round " << round;
      }
      ASSERT_TRUE(server_.receive(handler, Clock::now() - 1s).ok());
    }
  }
}

TEST_P(TransportSuite, CloseFromAnotherThreadEndsAReceive) {
  std::thread closer([&] {
    std::this_thread::sleep_for(20ms);
    server_.close();
  });
  CheckingHandler handler;
  auto received = server_.receive(handler, kNoDeadline);
  closer.join();
  EXPECT_EQ(received.status().code(), StatusCode::kLost);
}

TEST_P(TransportSuite, CloseFromAnotherThreadEndsASend) {
  std::thread closer([&] {
    std::this_thread::sleep_for(50ms);
    client_.close();
  });
  Status status;
  while (status.ok()) {  // nobody reads: fills up, then waits
    status = send_frame(client_, 1, 8, 100'000);
  }
  closer.join();
  EXPECT_EQ(status.code(), StatusCode::kLost);
}

TEST_P(TransportSuite, SendWaitsForASlowReaderUntilItsDeadline) {
  Status status;
  int sent = 0;
  while (status.ok() && sent < 100'000) {
    status = send_frame(client_, 1, 64 << 10, 0, 1, Clock::now() + 20ms);
    if (status.ok()) ++sent;
  }
  ASSERT_EQ(status.code(), StatusCode::kTimeout) << status.message();
  // Bounded memory: kernel buffers and ours, far below this.
  EXPECT_LT(sent, 2000);
  // Nothing was lost: all of it arrives, and the connection goes on.
  CheckingHandler handler;
  std::thread flusher([&] { EXPECT_TRUE(client_.flush(Clock::now() + 20s).ok()); });
  EXPECT_TRUE(receive_frames(server_, handler, sent).ok());
  flusher.join();
  EXPECT_EQ(handler.wrong, 0);
}

TEST_P(TransportSuite, PeerDeathIsSeenWithoutAKeepalive) {
  ASSERT_TRUE(client_.capabilities().survives_peer_death);
  pair_.server.reset();
  CheckingHandler handler;
  auto received = client_.receive(handler, Clock::now() + 20s);
  EXPECT_EQ(received.status().code(), StatusCode::kLost);
  // And for ever after, in every call.
  EXPECT_EQ(client_.receive(handler, kNoDeadline).status().code(), StatusCode::kLost);
  EXPECT_EQ(client_.reserve(32, kNoDeadline).status().code(), StatusCode::kLost);
  EXPECT_EQ(client_.flush(kNoDeadline).code(), StatusCode::kLost);
}

TEST_P(TransportSuite, FramesSentBeforeCloseStillArrive) {
  for (uint32_t i = 1; i <= 50; ++i) ASSERT_TRUE(send_frame(client_, i, 80, 11).ok());
  ASSERT_TRUE(client_.flush(kNoDeadline).ok());
  pair_.client.reset();
  CheckingHandler handler;
  EXPECT_TRUE(receive_frames(server_, handler, 50).ok());
  EXPECT_EQ(handler.wrong, 0);
  EXPECT_EQ(server_.receive(handler, kNoDeadline).status().code(), StatusCode::kLost);
}

TEST_P(TransportSuite, HandlersErrorClosesTheTransport) {
  ASSERT_TRUE(send_frame(client_, 1, 8, 0).ok());
  ASSERT_TRUE(client_.flush(kNoDeadline).ok());
  CheckingHandler handler;
  handler.fail_with = Status(StatusCode::kProtocol, "unwanted");
  auto received = server_.receive(handler, kNoDeadline);
  EXPECT_EQ(received.status().code(), StatusCode::kProtocol);
  EXPECT_EQ(server_.receive(handler, kNoDeadline).status().code(), StatusCode::kLost);
  EXPECT_EQ(client_.receive(handler, Clock::now() + 20s).status().code(), StatusCode::kLost);
}

TEST_P(TransportSuite, CapabilitiesHold) {
  const auto capabilities = client_.capabilities();
  EXPECT_EQ(capabilities.max_slot_bytes,
            sizeof(wire::FrameHeader) + wire::FrameLimits().max_body_bytes);
  EXPECT_TRUE(client_.reserve(capabilities.max_slot_bytes, kNoDeadline).ok());
  EXPECT_EQ(client_.reserve(capabilities.max_slot_bytes + 8, kNoDeadline).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(GetParam().name.rfind(capabilities.name, 0), 0u) << capabilities.name;
  EXPECT_NE(client_.describe().find(capabilities.name), std::string::npos);
  for (transport::Transport* end : {&client_, &server_}) {
    EXPECT_EQ(end->capabilities().same_host, end->descriptor_passing() != nullptr);
    EXPECT_EQ(end->capabilities().remote_memory, end->remote_memory() != nullptr);
  }
}

TEST_P(TransportSuite, WhatIsVisibleAtCommitNeedsAFlushOnlyForASleeper) {
  if (!client_.capabilities().visible_at_commit) {
    EXPECT_FALSE(client_.seen_without_flush());
    GTEST_SKIP() << "sees nothing before a flush";
  }
  CheckingHandler handler;
  const auto past = Clock::now() - 1s;
  ASSERT_TRUE(server_.receive(handler, past).ok());
  const auto calls = client_.statistics().system_calls;
  ASSERT_TRUE(send_frame(client_, 1, 8, 0).ok());
  EXPECT_TRUE(client_.seen_without_flush());
  ASSERT_TRUE(server_.receive(handler, past).ok());
  EXPECT_EQ(handler.headers.size(), 1u);
  EXPECT_EQ(client_.statistics().system_calls, calls);
  // Asleep: only the flush tells it.
  ASSERT_TRUE(server_.arm());
  ASSERT_TRUE(send_frame(client_, 2, 8, 0).ok());
  EXPECT_FALSE(client_.seen_without_flush());
  pollfd entry{server_.poll_descriptor(), POLLIN, 0};
  EXPECT_EQ(::poll(&entry, 1, 0), 0);
  ASSERT_TRUE(client_.flush(kNoDeadline).ok());
  EXPECT_EQ(::poll(&entry, 1, 10'000), 1);
  EXPECT_TRUE(client_.seen_without_flush());
}

TEST_P(TransportSuite, AnUncommittedSlotIsGivenBack) {
  auto first = client_.reserve(64, kNoDeadline);
  ASSERT_TRUE(first.ok());
  std::fill(first->begin(), first->end(), std::byte{0xff});
  ASSERT_TRUE(send_frame(client_, 1, 8, 0).ok());
  ASSERT_TRUE(client_.flush(kNoDeadline).ok());
  CheckingHandler handler;
  EXPECT_TRUE(receive_frames(server_, handler, 1).ok());
  EXPECT_EQ(handler.wrong, 0);
}

TEST_P(TransportSuite, RefusesAFrameWithWrongLengths) {
  wire::FrameHeader header;
  header.body_bytes = 16;
  auto slot = client_.reserve(sizeof header + 8, kNoDeadline);
  ASSERT_TRUE(slot.ok());
  std::memcpy(slot->data(), &header, sizeof header);
  EXPECT_EQ(client_.commit(sizeof header + 8, {}, kNoDeadline).code(),
            StatusCode::kInvalidArgument);
  EXPECT_TRUE(send_frame(client_, 1, 8, 0).ok());  // and lives on
}

TEST_P(TransportSuite, CountsWhatItMoved) {
  ASSERT_TRUE(send_frame(client_, 1, 8, 100).ok());
  ASSERT_TRUE(send_frame(client_, 2, 0, 0).ok());
  ASSERT_TRUE(client_.flush(kNoDeadline).ok());
  CheckingHandler handler;
  ASSERT_TRUE(receive_frames(server_, handler, 2).ok());
  EXPECT_EQ(client_.statistics().frames_sent, 2u);
  EXPECT_EQ(client_.statistics().bytes_sent, 2 * 32u + 8 + 100);
  EXPECT_EQ(server_.statistics().frames_received, 2u);
  EXPECT_EQ(server_.statistics().bytes_received, 2 * 32u + 8 + 100);
}

INSTANTIATE_TEST_SUITE_P(Kinds, TransportSuite, ::testing::ValuesIn(transport_kinds()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace fargpu::test
