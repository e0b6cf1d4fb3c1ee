// TLS connections: whom a client trusts, peers that do not speak TLS or stop in the middle, ends
// and forks.
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <random>
#include <sstream>
#include <thread>

#include "common/bootstrap/connect.h"
#include "common/tls/tls_connection.h"
#include "common/tls/tls_tunnel.h"
#include "common/transport/tcp/tcp.h"
#include "tests/transport/tls_pairs.h"

namespace fargpu::test {
namespace {

using namespace std::chrono_literals;
using transport::Clock;

transport::Deadline soon() { return Clock::now() + 20s; }

struct Sockets {
  Sockets() {
    auto listener = transport::TcpListener::open({"127.0.0.1", 0});
    auto connected = transport::tcp_connect({"127.0.0.1", listener->port()}, soon());
    auto accepted = listener->accept(soon());
    EXPECT_TRUE(connected.ok() && accepted.ok());
    client = std::move(*connected);
    server = std::move(*accepted);
  }
  Fd client, server;
};

// A server for one handshake, and then a relay to `plain` until the end.
class Server {
 public:
  Server(Fd socket, const std::string& certificate, const std::string& key) {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    plain.reset(ends[0]);
    thread_ = std::thread([this, certificate, key, socket = std::move(socket),
                           theirs = Fd(ends[1])]() mutable {
      auto context = tls::TlsContext::server(certificate, key);
      ASSERT_TRUE(context.ok()) << context.status().message();
      auto connection = tls::TlsConnection::accept(*context, std::move(socket), Clock::now() + 5s);
      status = connection.status();
      if (connection.ok()) connection->relay(theirs);
    });
  }
  ~Server() { join(); }
  void join() {
    plain.reset();
    if (thread_.joinable()) thread_.join();
  }
  Fd plain;
  Status status;  // of the handshake; after join()

 private:
  std::thread thread_;
};

Status connect_with(const std::string& certificate, const std::string& key, const std::string& host,
                    const std::string& authority) {
  Sockets sockets;
  Server server(std::move(sockets.server), certificate, key);
  return tls::open_tunnel(std::move(sockets.client), host, authority, soon()).status();
}

TEST(Tls, TrustsAServerOfItsAuthorityByNameAndAddress) {
  const Certificates& c = Certificates::get();
  EXPECT_TRUE(connect_with(c.server(), c.server_key(), "localhost", c.authority()).ok());
  EXPECT_TRUE(connect_with(c.server(), c.server_key(), "127.0.0.1", c.authority()).ok());
}

TEST(Tls, RefusesEverybodyElseAndSaysWhy) {
  const Certificates& c = Certificates::get();
  const std::tuple<std::string, std::string, std::string, std::string, std::string> cases[] = {
      {c.server(), c.server_key(), "localhost", c.other_authority(), "unable to get local issuer"},
      {c.server(), c.server_key(), "localhost", "", "unable to get local issuer"},
      {c.elsewhere(), c.elsewhere_key(), "localhost", c.authority(), "hostname mismatch"},
      {c.elsewhere(), c.elsewhere_key(), "127.0.0.1", c.authority(), "IP address mismatch"},
      {c.server(), c.server_key(), "127.0.0.2", c.authority(), "IP address mismatch"},
      {c.expired(), c.expired_key(), "localhost", c.authority(), "expired"},
  };
  for (const auto& [certificate, key, host, authority, why] : cases) {
    const Status status = connect_with(certificate, key, host, authority);
    EXPECT_EQ(status.code(), StatusCode::kRefused) << host;
    EXPECT_NE(status.message().find(why), std::string::npos) << status.message();
  }
}

TEST(Tls, FilesThatAreWrongAreNamed) {
  const Certificates& c = Certificates::get();
  for (const auto& [certificate, key, named] :
       {std::tuple(std::string("/nonexistent.pem"), c.server_key(),
                   std::string("/nonexistent.pem")),
        std::tuple(c.server(), std::string("/nonexistent.key"), std::string("/nonexistent.key")),
        std::tuple(c.server(), c.authority(), c.authority()),
        std::tuple(c.server(), c.elsewhere_key(), c.elsewhere_key())}) {
    const auto context = tls::TlsContext::server(certificate, key);
    EXPECT_EQ(context.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(context.status().message().find(named), std::string::npos)
        << context.status().message();
  }
  EXPECT_EQ(tls::TlsContext::client("/nonexistent.pem").status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(tls::TlsContext::client(c.server_key()).status().code(), StatusCode::kInvalidArgument);
  const std::string cut = ::testing::TempDir() + "cut.pem." + std::to_string(::getpid());
  std::stringstream whole;
  whole << std::ifstream(c.authority()).rdbuf();
  std::string text = whole.str() + whole.str();
  ASSERT_TRUE(bool(std::ofstream(cut) << text));
  EXPECT_TRUE(tls::TlsContext::client(cut).ok());
  text[text.rfind("-----END") - 2] = '*';
  ASSERT_TRUE(bool(std::ofstream(cut) << text));
  EXPECT_EQ(tls::TlsContext::client(cut).status().code(), StatusCode::kInvalidArgument);
  ::unlink(cut.c_str());
}

TEST(Tls, PeerThatDoesNotSpeakItIsRefused) {
  const Certificates& c = Certificates::get();
  {
    Sockets sockets;
    const std::string answer = "HTTP/1.1 400 Bad Request\r\n\r\n";
    ASSERT_GT(::send(sockets.server.get(), answer.data(), answer.size(), 0), 0);
    EXPECT_EQ(tls::open_tunnel(std::move(sockets.client), "localhost", c.authority(), soon())
                  .status()
                  .code(),
              StatusCode::kProtocol);
  }
  Sockets sockets;
  Server server(std::move(sockets.server), c.server(), c.server_key());
  const std::string request(600, 'x');
  ASSERT_GT(::send(sockets.client.get(), request.data(), request.size(), 0), 0);
  server.join();
  EXPECT_EQ(server.status.code(), StatusCode::kProtocol) << server.status.message();
}

// A write to a connection that the peer has closed gives a signal that ends a program by default.
TEST(Tls, PeerThatHasGoneIsAnErrorAndNoSignal) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  Fd client(ends[0]);
  ::close(ends[1]);
  const auto tunnel =
      tls::open_tunnel(std::move(client), "localhost", Certificates::get().authority(), soon());
  EXPECT_EQ(tunnel.status().code(), StatusCode::kLost) << tunnel.status().message();
  sigset_t pending;
  ASSERT_EQ(::sigpending(&pending), 0);
  EXPECT_EQ(::sigismember(&pending, SIGPIPE), 0);
}

// Half a handshake, then silence or the end, and garbage after a good beginning.
TEST(Tls, HandshakeHasADeadline) {
  const Certificates& c = Certificates::get();
  for (const bool close : {false, true}) {
    Sockets sockets;
    auto context = tls::TlsContext::server(c.server(), c.server_key());
    const unsigned char record[] = {22, 3, 1, 2, 0, 1, 0, 1, 0xfc};
    ASSERT_EQ(::send(sockets.client.get(), record, sizeof record, 0),
              static_cast<ssize_t>(sizeof record));
    if (close) sockets.client.reset();
    const auto accepted =
        tls::TlsConnection::accept(*context, std::move(sockets.server), Clock::now() + 100ms);
    EXPECT_EQ(accepted.status().code(), close ? StatusCode::kLost : StatusCode::kTimeout)
        << accepted.status().message();
  }
  std::mt19937 random(3);
  for (int round = 0; round < 50; ++round) {
    Sockets sockets;
    auto context = tls::TlsContext::server(c.server(), c.server_key());
    std::vector<unsigned char> record(16 + random() % 600);
    for (unsigned char& byte : record) byte = static_cast<unsigned char>(random());
    const unsigned char front[] = {22, 3, 1, static_cast<unsigned char>((record.size() - 5) >> 8),
                                   static_cast<unsigned char>(record.size() - 5)};
    std::copy(std::begin(front), std::end(front), record.begin());
    ASSERT_GT(::send(sockets.client.get(), record.data(), record.size(), 0), 0);
    sockets.client.reset();
    EXPECT_FALSE(
        tls::TlsConnection::accept(*context, std::move(sockets.server), Clock::now() + 5s).ok());
  }
}

struct Tunnel {
  Tunnel() {
    const Certificates& c = Certificates::get();
    server = std::make_unique<Server>(std::move(sockets.server), c.server(), c.server_key());
    auto made = tls::open_tunnel(std::move(sockets.client), "localhost", c.authority(), soon());
    EXPECT_TRUE(made.ok()) << made.status().message();
    client = std::move(*made);
  }
  Sockets sockets;
  std::unique_ptr<Server> server;
  Fd client;
};

bool ends(int socket) {
  char byte;
  pollfd entry{socket, POLLIN, 0};
  return ::poll(&entry, 1, 10'000) == 1 && ::recv(socket, &byte, 1, 0) <= 0;
}

TEST(Tls, EitherEndIsTheEndOfBoth) {
  {
    Tunnel tunnel;
    tunnel.client.reset();
    EXPECT_TRUE(ends(tunnel.server->plain.get()));
  }
  Tunnel tunnel;
  ::shutdown(tunnel.server->plain.get(), SHUT_RDWR);
  EXPECT_TRUE(ends(tunnel.client.get()));
}

TEST(Tls, WhatWasWrittenBeforeTheEndArrives) {
  Tunnel tunnel;
  const std::vector<char> data(3 << 20, 'x');
  std::thread writer([&] {
    size_t done = 0;
    while (done < data.size()) {
      const ssize_t sent =
          ::send(tunnel.client.get(), data.data() + done, data.size() - done, MSG_NOSIGNAL);
      ASSERT_GT(sent, 0);
      done += static_cast<size_t>(sent);
    }
    tunnel.client.reset();
  });
  size_t got = 0;
  std::vector<char> piece(64 << 10);
  for (ssize_t n; (n = ::recv(tunnel.server->plain.get(), piece.data(), piece.size(), 0)) > 0;)
    got += static_cast<size_t>(n);
  writer.join();
  EXPECT_EQ(got, data.size());
}

// As much as the relay moves in one go and a little more, and then silence: nothing comes behind it
// to wake the relay.
TEST(Tls, EverythingArrivesAlthoughNothingFollows) {
  Tunnel tunnel;
  const int room = 1 << 20;
  ASSERT_EQ(::setsockopt(tunnel.client.get(), SOL_SOCKET, SO_SNDBUF, &room, sizeof room), 0);
  std::vector<char> got(1 << 20);
  for (int round = 0; round < 500; ++round) {
    const std::vector<char> data((256 << 10) + 1, static_cast<char>(round));
    // The first byte wakes the relay, and comes alone as often as not.
    ASSERT_EQ(::send(tunnel.client.get(), data.data(), 1, MSG_NOSIGNAL), 1);
    ASSERT_EQ(::send(tunnel.client.get(), data.data() + 1, data.size() - 1, MSG_NOSIGNAL),
              static_cast<ssize_t>(data.size() - 1));
    size_t arrived = 0;
    pollfd entry{tunnel.server->plain.get(), POLLIN, 0};
    while (arrived < data.size() && ::poll(&entry, 1, 10'000) == 1) {
      const ssize_t n = ::recv(entry.fd, got.data() + arrived, got.size() - arrived, 0);
      ASSERT_GT(n, 0);
      arrived += static_cast<size_t>(n);
    }
    ASSERT_EQ(arrived, data.size()) << "round " << round;
    EXPECT_TRUE(std::equal(data.begin(), data.end(), got.begin()));
  }
}

// A half-closed connection still brings the answer: how a refusal reaches a client.
TEST(Tls, EndOfOneDirectionLeavesTheOther) {
  Tunnel tunnel;
  ASSERT_EQ(::send(tunnel.server->plain.get(), "no", 2, 0), 2);
  ::shutdown(tunnel.server->plain.get(), SHUT_WR);
  char answer[2];
  ASSERT_EQ(::recv(tunnel.client.get(), answer, 2, MSG_WAITALL), 2);
  EXPECT_TRUE(ends(tunnel.client.get()));
}

// A child that lives on must not keep its parent's connection open.
TEST(Tls, ForkedChildHoldsNothing) {
  Tunnel tunnel;
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(tunnel.client.get());
    ::close(ready[1]);
    char byte;
    [[maybe_unused]] const ssize_t got = ::read(ready[0], &byte, 1);
    ::_exit(0);
  }
  tunnel.client.reset();
  EXPECT_TRUE(ends(tunnel.server->plain.get()));
  ::close(ready[1]);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  ::close(ready[0]);
}

TEST(Tls, AddressIsReadFromText) {
  const auto plain = bootstrap::parse_server("gpu1:14900"),
             encrypted = bootstrap::parse_server("tls://gpu1:14900");
  ASSERT_TRUE(plain.ok() && encrypted.ok());
  EXPECT_FALSE(plain->tls);
  EXPECT_TRUE(encrypted->tls);
  EXPECT_EQ(encrypted->to_string(), "tls://gpu1:14900");
  EXPECT_FALSE(bootstrap::parse_server("tls://").ok());
  EXPECT_FALSE(bootstrap::parse_server("tls:///run/socket").ok());
}

}  // namespace
}  // namespace fargpu::test
