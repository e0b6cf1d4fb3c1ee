// The link emulator keeps to its own settings.
#include "common/transport/emulated_link.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/transport/frames.h"
#include "tests/transport/transport_pairs.h"

namespace fargpu::test {
namespace {

using namespace std::chrono_literals;
using transport::Clock;
using transport::kNoDeadline;
using transport::parse_link;

TEST(LinkSettings, ReadsWhatPeopleWrite) {
  auto both = parse_link("rtt=20us,bandwidth=100Gbps");
  ASSERT_TRUE(both.ok());
  EXPECT_EQ(both->rtt, 20us);
  EXPECT_EQ(both->bits_per_second, 100e9);
  EXPECT_EQ(both->to_string(), "rtt=20us bandwidth=100Gbps");
  auto rtt = parse_link("rtt=1.5ms");
  ASSERT_TRUE(rtt.ok());
  EXPECT_EQ(rtt->rtt, 1500us);
  EXPECT_EQ(rtt->bits_per_second, 0);
  EXPECT_EQ(rtt->to_string(), "rtt=1.5ms");
  auto bandwidth = parse_link("bandwidth=2.5Gbps");
  ASSERT_TRUE(bandwidth.ok());
  EXPECT_EQ(bandwidth->bits_per_second, 2.5e9);
  EXPECT_EQ(bandwidth->rtt, 0us);
  EXPECT_TRUE(parse_link("bandwidth=64Kbps,rtt=0s").ok());
}

TEST(LinkSettings, NamesThePartThatIsWrong) {
  for (const char* text :
       {"", "rtt", "rtt=", "rtt=20", "rtt=20us,", "rtt=-1us", "rtt=nan", "rtt=11s",
        "rtt=20us bandwidth=1Gbps", "loss=3", "bandwidth=1", "bandwidth=1GB/s", "bandwidth=0Gbps",
        "bandwidth=1e99Gbps", "bandwidth=1000Tbps", "bandwidth=inf"}) {
    auto parsed = parse_link(text);
    EXPECT_EQ(parsed.status().code(), StatusCode::kInvalidArgument) << text;
    EXPECT_NE(parsed.status().message().find("rtt=20us,bandwidth=100Gbps"), std::string::npos)
        << parsed.status().message();
  }
  EXPECT_NE(parse_link("rtt=20us,bandwidth=fast").status().message().find("'bandwidth=fast'"),
            std::string::npos);
}

// The server's end, plain: echoes frames without bulk, counts bulk, and answers the request "1"
// with bulk.
class Echo final : public transport::FrameHandler {
 public:
  explicit Echo(std::unique_ptr<transport::Transport> end) : end_(std::move(end)) {
    thread_ = std::thread([this] {
      while (end_->receive(*this, kNoDeadline).ok()) {
      }
    });
  }
  ~Echo() override {
    end_->close();
    thread_.join();
  }
  Result<std::span<std::byte>> bulk_buffer(const wire::FrameHeader& header, Bytes) override {
    bulk_.resize(header.bulk_bytes);
    return std::span(bulk_);
  }
  Status on_frame(const wire::FrameHeader& header, Bytes, std::span<std::byte> bulk) override {
    if (!bulk.empty()) {
      received += bulk.size();
      return Status();
    }
    FARGPU_RETURN_IF_ERROR(
        send_frame(*end_, header.sequence, 0, header.sequence > 1 ? header.sequence : 0));
    return end_->flush(kNoDeadline);
  }
  std::atomic<uint64_t> received{0};

 private:
  std::unique_ptr<transport::Transport> end_;
  std::vector<std::byte> bulk_;
  std::thread thread_;
};

constexpr auto kRtt = 20ms;
constexpr double kBitsPerSecond = 200e6;
constexpr size_t kBytes = 2'500'000;
constexpr auto kPassing = std::chrono::duration<double>(kBytes * 8 / kBitsPerSecond);  // 100 ms
// A busy machine can make anything late, but hardly ten times in a row.
constexpr int kAttempts = 10;
constexpr double kTolerance = 1.05;

class EmulatedLinkTest : public ::testing::TestWithParam<TransportKind> {
 protected:
  EmulatedLinkTest() {
    TransportPair pair = GetParam().make({});
    server_ = std::make_unique<Echo>(std::move(pair.server));
    client_ =
        transport::emulate_link(std::move(pair.client), *parse_link("rtt=20ms,bandwidth=200Mbps"));
  }

  // Sends a request and waits for its answer.
  std::chrono::duration<double> ask(uint32_t bulk_bytes) {
    const auto begin = Clock::now();
    CheckingHandler handler;
    EXPECT_TRUE(send_frame(*client_, std::max(bulk_bytes, 1u), 0, 0).ok());
    EXPECT_TRUE(client_->flush(kNoDeadline).ok());
    while (handler.headers.empty()) {
      if (!client_->receive(handler, Clock::now() + 60s).ok()) break;
    }
    EXPECT_EQ(handler.wrong, 0);
    return Clock::now() - begin;
  }

  // The shortest of some measurements; each must be at least `expected`, and this one hardly more.
  template <typename Measure>
  void expect_time(std::chrono::duration<double> expected, Measure measure) {
    double best = 1e9;
    for (int i = 0; i < kAttempts && best > expected.count() * kTolerance; ++i) {
      const double seconds = measure().count();
      EXPECT_GE(seconds, expected.count() * 0.999);
      best = std::min(best, seconds);
    }
    EXPECT_LE(best, expected.count() * kTolerance);
  }

  std::unique_ptr<Echo> server_;
  std::unique_ptr<transport::Transport> client_;
};

TEST_P(EmulatedLinkTest, RoundTrip) {
  expect_time(kRtt, [&] { return ask(0); });
}

TEST_P(EmulatedLinkTest, BandwidthToTheServer) {
  expect_time(kPassing, [&]() -> std::chrono::duration<double> {
    const uint64_t goal = server_->received + kBytes;
    const auto begin = Clock::now();
    for (int i = 0; i < 10; ++i) {
      EXPECT_TRUE(send_frame(*client_, 1, 0, kBytes / 10).ok());
      EXPECT_TRUE(client_->flush(kNoDeadline).ok());
    }
    while (server_->received < goal) std::this_thread::sleep_for(100us);
    return Clock::now() - begin;
  });
}

TEST_P(EmulatedLinkTest, BandwidthFromTheServer) {
  expect_time(kRtt + kPassing, [&] { return ask(kBytes); });
}

// What is under way in one direction does not slow down the other, nor is a round trip paid per
// frame.
TEST_P(EmulatedLinkTest, FramesFollowEachOtherWithinOneRoundTrip) {
  constexpr uint32_t kFrames = 20;
  expect_time(kRtt, [&]() -> std::chrono::duration<double> {
    const auto begin = Clock::now();
    for (uint32_t i = 0; i < kFrames; ++i) EXPECT_TRUE(send_frame(*client_, 1, 0, 0).ok());
    EXPECT_TRUE(client_->flush(kNoDeadline).ok());
    CheckingHandler handler;
    while (handler.headers.size() < kFrames) {
      if (!client_->receive(handler, Clock::now() + 60s).ok()) break;
    }
    return Clock::now() - begin;
  });
}

TEST_P(EmulatedLinkTest, SaysWhatItIs) {
  EXPECT_NE(client_->describe().find("emulated link rtt=20ms bandwidth=200Mbps"), std::string::npos)
      << client_->describe();
}

std::vector<TransportKind> plain_kinds() {
  std::vector<TransportKind> kinds = transport_kinds();
  std::erase_if(kinds, [](const TransportKind& kind) {
    return kind.name != "loopback" && kind.name != "tcp" && kind.name != "shm";
  });
  return kinds;
}

INSTANTIATE_TEST_SUITE_P(Kinds, EmulatedLinkTest, ::testing::ValuesIn(plain_kinds()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace fargpu::test
