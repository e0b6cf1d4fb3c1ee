#include "server/daemon/door.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <boost/asio/io_context.hpp>
#include <memory>
#include <vector>

#include "common/wire/control.h"
#include "server/daemon/listeners.h"

namespace fargpu::server {
namespace {

class DoorTest : public testing::Test {
 protected:
  explicit DoorTest(uint32_t most = 3) : door_(most) {}
  // The peer's end of a connection that has come through the door.
  Fd enter(const std::string& peer) {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    if (!door_.make_room()) {
      ::close(ends[0]);
      return Fd(ends[1]);
    }
    const auto handshake = std::make_shared<Handshake>(
        loop_, Fd(ends[0]), peer, std::chrono::minutes(1),
        [this](const std::shared_ptr<Handshake>& asked) { asked_.push_back(asked); },
        [this](const Handshake& left) { door_.leave(left); }, decrypt_);
    door_.enter(*handshake);
    handshake->start();
    turn();
    return Fd(ends[1]);
  }
  void say(const Fd& peer, size_t bytes) {
    wire::FrameHeader header;
    header.opcode = wire::kHello;
    header.body_bytes = 8;
    std::vector<std::byte> frame(sizeof header + 8);
    std::memcpy(frame.data(), &header, sizeof header);
    EXPECT_EQ(::send(peer.get(), frame.data(), bytes, MSG_NOSIGNAL), static_cast<ssize_t>(bytes));
    turn();
  }
  void turn() {
    loop_.restart();
    loop_.poll();
  }
  bool is_open(const Fd& peer) {
    turn();
    pollfd entry{peer.get(), POLLIN | POLLRDHUP, 0};
    return ::poll(&entry, 1, 0) == 0;
  }

  static constexpr size_t kHeader = sizeof(wire::FrameHeader), kAll = kHeader + 8;
  Door door_;
  boost::asio::io_context loop_;
  std::vector<std::shared_ptr<Handshake>> asked_;
  Handshake::Decrypt decrypt_;
};

TEST_F(DoorTest, TheOldestSilentOneLeaves) {
  const Fd first = enter("10.0.0.1:1"), second = enter("10.0.0.1:2"), third = enter("10.0.0.1:3");
  say(first, kHeader);       // a part of its hello
  say(second, kHeader / 2);  // as good as nothing
  const Fd fourth = enter("10.0.0.1:4");
  EXPECT_TRUE(is_open(first));
  EXPECT_FALSE(is_open(second));
  EXPECT_TRUE(is_open(third) && is_open(fourth));
  const Fd fifth = enter("10.0.0.1:5");
  EXPECT_FALSE(is_open(third));
  EXPECT_EQ(door_.count(), 3u);
}

TEST_F(DoorTest, OfTheAddressThatHasMost) {
  const Fd alone = enter("10.0.0.1:1"), one = enter("10.0.0.2:1"), two = enter("10.0.0.2:2");
  for (int port = 3; port < 100; ++port) (void)enter("10.0.0.2:" + std::to_string(port));
  EXPECT_TRUE(is_open(alone));
  EXPECT_FALSE(is_open(one) || is_open(two));
  say(alone, kAll);
  EXPECT_EQ(asked_.size(), 1u);
}

// A newcomer is silent for a round trip.
TEST_F(DoorTest, HalfSentHellosOfAnAddressDoNotKeepOthersOut) {
  std::vector<Fd> half;
  for (int port = 1; port <= 3; ++port) {
    half.push_back(enter("10.0.0.2:" + std::to_string(port)));
    say(half.back(), kHeader);
  }
  const Fd newcomer = enter("10.0.0.1:1");
  EXPECT_FALSE(is_open(half[0]));
  for (int port = 4; port < 10; ++port) {
    half.push_back(enter("10.0.0.2:" + std::to_string(port)));
    say(half.back(), kHeader);
  }
  EXPECT_TRUE(is_open(newcomer));
}

TEST_F(DoorTest, OfAddressesWithEquallyManyTheOneThatCameFirst) {
  std::vector<Fd> others;
  for (int host = 2; host <= 4; ++host)
    others.push_back(enter("10.0.0." + std::to_string(host) + ":1"));
  const Fd newcomer = enter("10.0.0.1:1");
  EXPECT_FALSE(is_open(others[0]));
  const Fd last = enter("10.0.0.9:1");
  EXPECT_FALSE(is_open(others[1]));
  EXPECT_TRUE(is_open(others[2]) && is_open(newcomer) && is_open(last));
}

TEST_F(DoorTest, ThoseThatStayDoNotCount) {
  const Fd other = enter("10.0.0.2:1"), asking = enter("10.0.0.1:1");
  say(asking, kAll);
  const Fd newcomer = enter("10.0.0.1:2"), last = enter("10.0.0.3:1");
  EXPECT_FALSE(is_open(other));
  EXPECT_TRUE(is_open(asking) && is_open(newcomer) && is_open(last));
}

TEST_F(DoorTest, WhoseHelloIsDealtWithStays) {
  const Fd one = enter("10.0.0.1:1"), two = enter("10.0.0.1:2"), three = enter("10.0.0.1:3");
  for (const Fd* peer : {&one, &two, &three}) say(*peer, kAll);
  ASSERT_EQ(asked_.size(), 3u);
  EXPECT_FALSE(is_open(enter("10.0.0.2:1")));
  EXPECT_FALSE(door_.evict());
  // Answered: it may go.
  asked_[1]->reply_and_close(std::vector<std::byte>(8));
  turn();
  const Fd four = enter("10.0.0.2:2");
  EXPECT_TRUE(is_open(four));
  EXPECT_EQ(door_.count(), 3u);
}

TEST_F(DoorTest, ThoseThatGoMakeRoom) {
  {
    const Fd one = enter("10.0.0.1:1"), two = enter("10.0.0.1:2");
    EXPECT_EQ(door_.count(), 2u);
  }
  turn();
  EXPECT_EQ(door_.count(), 0u);
  EXPECT_FALSE(door_.evict());
}

class RelaysTest : public DoorTest {
 protected:
  RelaysTest() : DoorTest(300) {
    decrypt_ = [](Fd socket) {
      char first = 0;
      EXPECT_EQ(::recv(socket.get(), &first, 1, 0), 1);
      return Result<Fd>(std::move(socket));
    };
  }
  Fd enter_encrypted(const std::string& peer) {
    Fd result = enter(peer);
    EXPECT_EQ(::send(result.get(), "\x16", 1, MSG_NOSIGNAL), 1);
    turn();
    return result;
  }
};

TEST_F(RelaysTest, TheSameLeave) {
  std::vector<Fd> others;
  for (int i = 0; i < 255; ++i)
    others.push_back(enter_encrypted("10.1.0." + std::to_string(i) + ":1"));
  const Fd newcomer = enter_encrypted("10.0.0.1:1"), plain = enter("10.0.0.0:1");
  EXPECT_TRUE(door_.make_room_for_relay());
  EXPECT_FALSE(is_open(others[0]));
  EXPECT_TRUE(is_open(newcomer) && is_open(plain));
  others[0] = enter_encrypted("10.1.0.255:2");
  others.push_back(enter_encrypted("10.1.0.255:1"));
  say(others[0], kHeader);
  EXPECT_TRUE(door_.make_room_for_relay());
  EXPECT_FALSE(is_open(others.back()));  // the silent one
}

TEST(AddressOf, IsTheHost) {
  EXPECT_EQ(address_of("10.1.2.3:4567"), "10.1.2.3");
  EXPECT_EQ(address_of("unix"), "unix");
  EXPECT_EQ(address_of("[::1]:80"), address_of("[::1]:81"));
  EXPECT_EQ(address_of("[::ffff:10.0.0.1]:80"), address_of("[::ffff:10.0.0.1]:81"));
  EXPECT_NE(address_of("[::ffff:10.0.0.1]:80"), address_of("[::ffff:10.0.0.2]:80"));
  EXPECT_EQ(address_of("[2001:db8:1:2:3:4:5:6]:80"), address_of("[2001:db8:1:2:6:5:4:3]:80"));
  EXPECT_NE(address_of("[2001:db8:1:2:3:4:5:6]:80"), address_of("[2001:db8:1:3:3:4:5:6]:80"));
  EXPECT_EQ(address_of("[2001:db8::1]:80"), address_of("[2001:db8:0:0:5:6:7:8]:80"));
  EXPECT_EQ(address_of("[2001:db8::1]:80"), address_of("[2001:db8::2:0:0:1]:80"));
  EXPECT_NE(address_of("[2001:db8::1]:80"), address_of("[2001:db8:0:1::1]:80"));
  EXPECT_EQ(address_of("[fe80::1%eth0]:80"), address_of("[fe80::2]:80"));
  EXPECT_EQ(address_of("[::ffff:10.0.0.1]:80"), address_of("10.0.0.1:80"));
}

class ListenersTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(listeners_.add("127.0.0.1:0").ok()); }
  // Of this process.
  static int listening() {
    for (int each = 0; each < 1024; ++each) {
      int accepts = 0;
      socklen_t size = sizeof accepts;
      if (::getsockopt(each, SOL_SOCKET, SO_ACCEPTCONN, &accepts, &size) == 0 && accepts != 0)
        return each;
    }
    return -1;
  }

  static std::vector<Fd> connect(int count) {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    auto* const name = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(::getsockname(listening(), name, &size), 0);
    std::vector<Fd> peers;
    for (int i = 0; i < count; ++i) {
      peers.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      EXPECT_EQ(::connect(peers.back().get(), name, size), 0);
    }
    return peers;
  }

  int asked_for_room_ = 0, accepted_ = 0;
  boost::asio::io_context loop_;
  Listeners listeners_{loop_, [this](const Fd&, const std::string&) { ++accepted_; },
                       [this] { return ++asked_for_room_ < 5; }};
};

TEST_F(ListenersTest, RoomIsMadeWithoutADescriptor) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "a sanitizer opens a pipe to look at an object";
#endif
  const auto peers = connect(1);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{2, before.rlim_max};  // poll() needs as many as it is given
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  loop_.run_for(std::chrono::milliseconds(100));
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(asked_for_room_, 5);
}

// Those that are there already get their turn between two batches.
TEST_F(ListenersTest, AcceptsInBatches) {
  const auto peers = connect(150);
  std::vector<int> at_turns;
  while (accepted_ < 150) {
    ASSERT_GT(loop_.run_one_for(std::chrono::seconds(5)), 0u);
    at_turns.push_back(accepted_);
  }
  EXPECT_EQ(at_turns, (std::vector{64, 128, 150}));
}

TEST_F(ListenersTest, AnotherFailureCostsNobody) {
  ASSERT_EQ(::shutdown(listening(), SHUT_RDWR), 0);  // accept() fails: it does not listen
  loop_.run_for(std::chrono::milliseconds(100));
  EXPECT_EQ(asked_for_room_, 0);
}

}  // namespace
}  // namespace fargpu::server
