#include "server/daemon/door.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <boost/asio/io_context.hpp>
#include <memory>
#include <vector>

#include "common/wire/control.h"

namespace fargpu::server {
namespace {

class DoorTest : public testing::Test {
 protected:
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
        [this](const Handshake& left) { door_.leave(left); });
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
  Door door_{3};
  boost::asio::io_context loop_;
  std::vector<std::shared_ptr<Handshake>> asked_;
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

TEST(AddressOf, IsTheHost) {
  EXPECT_EQ(address_of("10.1.2.3:4567"), "10.1.2.3");
  EXPECT_EQ(address_of("unix"), "unix");
  EXPECT_EQ(address_of("[::1]:80"), address_of("[::1]:81"));
  EXPECT_EQ(address_of("[::ffff:10.0.0.1]:80"), address_of("[::ffff:10.0.0.1]:81"));
  EXPECT_NE(address_of("[::ffff:10.0.0.1]:80"), address_of("[::ffff:10.0.0.2]:80"));
  EXPECT_EQ(address_of("[2001:db8:1:2:3:4:5:6]:80"), address_of("[2001:db8:1:2:6:5:4:3]:80"));
  EXPECT_NE(address_of("[2001:db8:1:2:3:4:5:6]:80"), address_of("[2001:db8:1:3:3:4:5:6]:80"));
}

}  // namespace
}  // namespace fargpu::server
