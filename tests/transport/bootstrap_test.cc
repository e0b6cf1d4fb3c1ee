// The conversation that chooses a session's transport: both halves, against each other and against
// a peer that breaks the rules.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <map>
#include <mutex>
#include <thread>

#include "common/bootstrap/connect.h"
#include "common/bootstrap/unix_rendezvous.h"
#include "common/bootstrap/upgrade.h"
#include "common/bootstrap/upgrade_messages.h"
#include "common/transport/tcp/tcp.h"
#include "tests/transport/frames.h"

namespace fargpu {
namespace {

using bootstrap::Upgrade;
using bootstrap::Upgraded;
using transport::Clock;

transport::Deadline soon() { return Clock::now() + std::chrono::seconds(20); }

struct Sockets {
  Fd client, worker;
};

Sockets tcp_sockets() {
  auto listener = transport::TcpListener::open({"127.0.0.1", 0});
  EXPECT_TRUE(listener.ok());
  auto client = transport::tcp_connect({"127.0.0.1", listener->port()}, soon());
  auto worker = listener->accept(soon());
  EXPECT_TRUE(client.ok() && worker.ok());
  return {std::move(*client), std::move(*worker)};
}

Sockets unix_sockets() {
  int ends[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  return {Fd(ends[0]), Fd(ends[1])};
}

struct Outcome {
  Result<Upgraded> client{Status(StatusCode::kLost, "not run")};
  Result<Upgraded> worker{Status(StatusCode::kLost, "not run")};
};

// Both halves, as a session would have them.
Outcome converse(Sockets sockets, const bootstrap::TransportWish& wish,
                 const bootstrap::WorkerRules& rules,
                 const bootstrap::FurtherConnections& at_client = {},
                 const bootstrap::FurtherConnections& at_worker = {}) {
  const auto offers = bootstrap::make_offers(sockets.worker.get(), wish.upgrades, rules);
  Outcome outcome;
  std::thread worker([&] {
    outcome.worker = upgrade_as_worker(std::move(sockets.worker), offers, {}, soon(), at_worker);
  });
  outcome.client =
      upgrade_as_client(std::move(sockets.client), wish, offers, {}, soon(), at_client);
  worker.join();
  return outcome;
}

// A frame each way.
void expect_carries_frames(transport::Transport& from, transport::Transport& to) {
  auto slot = from.reserve(sizeof(wire::FrameHeader), soon());
  ASSERT_TRUE(slot.ok()) << slot.status().message();
  wire::FrameHeader header;
  header.opcode = 77;
  std::memcpy(slot->data(), &header, sizeof header);
  ASSERT_TRUE(from.commit(sizeof header, {}, soon()).ok());
  ASSERT_TRUE(from.flush(soon()).ok());
  struct Handler final : transport::FrameHandler {
    Result<std::span<std::byte>> bulk_buffer(const wire::FrameHeader&,
                                             std::span<const std::byte>) override {
      return Status(StatusCode::kProtocol, "no bulk here");
    }
    Status on_frame(const wire::FrameHeader& header, std::span<const std::byte>,
                    std::span<std::byte>) override {
      opcode = header.opcode;
      return {};
    }
    int opcode = 0;
  } handler;
  for (size_t frames = 0; frames == 0;) {
    auto received = to.receive(handler, soon());
    ASSERT_TRUE(received.ok()) << received.status().message();
    frames = *received;
  }
  EXPECT_EQ(handler.opcode, 77);
}

void expect_works(const Outcome& outcome, const std::string& name) {
  ASSERT_TRUE(outcome.client.ok()) << outcome.client.status().message();
  ASSERT_TRUE(outcome.worker.ok()) << outcome.worker.status().message();
  EXPECT_EQ(outcome.client->transport->capabilities().name, name);
  EXPECT_EQ(outcome.worker->transport->capabilities().name, name);
  expect_carries_frames(*outcome.client->transport, *outcome.worker->transport);
  expect_carries_frames(*outcome.worker->transport, *outcome.client->transport);
}

TEST(SplitServers, CommasSeparateServers) {
  const auto servers = bootstrap::split_servers(" gpu1 , tls://gpu2:1,/run/socket");
  ASSERT_TRUE(servers.ok()) << servers.status().message();
  EXPECT_EQ(*servers, (std::vector<std::string>{"gpu1", "tls://gpu2:1", "/run/socket"}));
  EXPECT_EQ(bootstrap::split_servers("gpu1:14900")->size(), 1u);
}

TEST(SplitServers, WhatMakesNoSenseIsNamed) {
  for (const auto& [list, expected] :
       {std::pair{"", "a server is missing"}, std::pair{"gpu1,", "a server is missing"},
        std::pair{",gpu1", "a server is missing"}, std::pair{"gpu1, ,gpu2", "a server is missing"},
        std::pair{"gpu1,gpu2,gpu1:14900", "gpu1:14900 is named twice"},
        std::pair{"gpu1,gpu2:port", "gpu2:port"}}) {
    const Status status = bootstrap::split_servers(list).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << list;
    EXPECT_NE(status.message().find(expected), std::string::npos) << status.message();
  }
}

TEST(SplitServers, ThereMayBeSixteen) {
  std::string list = "gpu1";
  for (int i = 2; i <= 16; ++i) list.append(",gpu").append(std::to_string(i));
  const auto most = bootstrap::split_servers(list);
  ASSERT_TRUE(most.ok()) << most.status().message();
  EXPECT_EQ(most->size(), bootstrap::kMaxServers);
  const Status more = bootstrap::split_servers(list + ",gpu17").status();
  EXPECT_EQ(more.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(more.message().find("17 servers are named; a program may have 16"), std::string::npos)
      << more.message();
}

TEST(DistinctServers, OneWithTwoNamesIsRefused) {
  bootstrap::DistinctServers servers;
  EXPECT_TRUE(servers.add("gpu1:14900", 7).ok());
  EXPECT_TRUE(servers.add("gpu2:14900", 8).ok());
  const Status again = servers.add("unix:/run/socket", 7);
  EXPECT_EQ(again.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(again.message().find("gpu1:14900 and unix:/run/socket are one server"),
            std::string::npos)
      << again.message();
  // Older ones do not say who they are.
  EXPECT_TRUE(servers.add("gpu3:14900", 0).ok());
  EXPECT_TRUE(servers.add("gpu4:14900", 0).ok());
}

TEST(Bootstrap, WishIsReadFromText) {
  EXPECT_EQ(bootstrap::parse_wish("")->upgrades.size(), 2u);
  EXPECT_FALSE(bootstrap::parse_wish("auto")->forced);
  EXPECT_TRUE(bootstrap::parse_wish("tcp")->upgrades.empty());
  EXPECT_TRUE(bootstrap::parse_wish("shm")->forced);
  EXPECT_EQ(bootstrap::parse_wish("rdma")->upgrades, std::vector{Upgrade::kRdma});
  EXPECT_EQ(bootstrap::parse_wish("carrier pigeon").status().code(), StatusCode::kInvalidArgument);
}

TEST(Bootstrap, NothingWishedStaysWithoutAWord) {
  const Outcome outcome = converse(tcp_sockets(), *bootstrap::parse_wish("tcp"), {});
  expect_works(outcome, "tcp");
  EXPECT_EQ(outcome.client->reason, "asked for");
}

TEST(Bootstrap, OtherHostStaysOnTcpAndSaysWhy) {
  const bootstrap::WorkerRules rules{.allowed = {Upgrade::kShm}, .same_host = false};
  const Outcome outcome = converse(tcp_sockets(), *bootstrap::parse_wish("auto"), rules);
  expect_works(outcome, "tcp");
  EXPECT_NE(outcome.client->reason.find("shm: the server is on another host"), std::string::npos)
      << outcome.client->reason;
  EXPECT_NE(outcome.client->reason.find("rdma: switched off"), std::string::npos)
      << outcome.client->reason;
  EXPECT_EQ(outcome.worker->reason, outcome.client->reason);
  EXPECT_TRUE(outcome.client->failures.empty()) << "what was never possible is no failure";
}

TEST(Bootstrap, SameHostTakesSharedMemoryOverTcp) {
  const bootstrap::WorkerRules rules{.allowed = {Upgrade::kShm}, .same_host = true};
  expect_works(converse(tcp_sockets(), *bootstrap::parse_wish("auto"), rules), "shm");
}

TEST(Bootstrap, UnixSocketTakesSharedMemoryOverItself) {
  // No host identity needed: the socket is proof enough, as for a container that shares nothing
  // else.
  const bootstrap::WorkerRules rules{.allowed = {Upgrade::kShm}, .same_host = false};
  expect_works(converse(unix_sockets(), *bootstrap::parse_wish("shm"), rules), "shm");
}

TEST(Bootstrap, ForcedWishThatCannotBeHadIsAnError) {
  Sockets sockets = tcp_sockets();
  const auto wish = *bootstrap::parse_wish("shm");
  const auto offers =
      bootstrap::make_offers(sockets.worker.get(), wish.upgrades, {.same_host = false});
  auto client = upgrade_as_client(std::move(sockets.client), wish, offers, {}, soon());
  ASSERT_FALSE(client.ok());
  EXPECT_EQ(client.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(client.status().message().find("another host"), std::string::npos);
  // The worker sees the connection go.
  auto worker = upgrade_as_worker(std::move(sockets.worker), offers, {}, soon());
  EXPECT_EQ(worker.status().code(), StatusCode::kLost) << worker.status().message();
}

TEST(Bootstrap, ClientThatCannotReachTheUnixSocketGoesOnOverTcp) {
  Sockets sockets = tcp_sockets();
  const std::vector<bootstrap::UpgradeOffer> offers{{Upgrade::kShm, ""}};
  Result<Upgraded> worker(Status(StatusCode::kLost, "not run"));
  std::thread thread(
      [&] { worker = upgrade_as_worker(std::move(sockets.worker), offers, {}, soon()); });
  // By hand, as a client in another network namespace would have it: prepared, failed, stay.
  const int socket = sockets.client.get();
  auto prepared = bootstrap::ask_upgrade(
      socket, {bootstrap::UpgradeStep::kPrepare, Upgrade::kShm, "", 2}, soon());
  ASSERT_TRUE(prepared.ok() && prepared->ok);
  EXPECT_FALSE(prepared->unix_name.empty());
  auto failed = bootstrap::ask_upgrade(
      socket, {bootstrap::UpgradeStep::kFailed, Upgrade::kShm, "no way", 3}, soon());
  ASSERT_TRUE(failed.ok() && failed->ok);
  auto stay = bootstrap::ask_upgrade(
      socket, {bootstrap::UpgradeStep::kStay, std::nullopt, "shm: no way", 4}, soon());
  ASSERT_TRUE(stay.ok() && stay->ok);
  thread.join();
  ASSERT_TRUE(worker.ok()) << worker.status().message();
  EXPECT_STREQ(worker->transport->capabilities().name, "tcp");
  EXPECT_EQ(worker->reason, "shm: no way");
  EXPECT_EQ(worker->failures.size(), 1u);
}

TEST(Bootstrap, StrangerAtTheRendezvousIsTurnedAway) {
  auto rendezvous = bootstrap::UnixRendezvous::open();
  ASSERT_TRUE(rendezvous.ok());
  bootstrap::Cookie wrong = rendezvous->cookie();
  wrong[3] ^= std::byte{1};
  auto stranger = bootstrap::connect_to_rendezvous(rendezvous->name(), wrong);
  ASSERT_TRUE(stranger.ok());
  EXPECT_EQ(rendezvous->accept(Clock::now() + std::chrono::milliseconds(200)).status().code(),
            StatusCode::kTimeout);
  auto client = bootstrap::connect_to_rendezvous(rendezvous->name(), rendezvous->cookie());
  ASSERT_TRUE(client.ok());
  EXPECT_TRUE(rendezvous->accept(soon()).ok());
  EXPECT_FALSE(bootstrap::connect_to_rendezvous("", rendezvous->cookie()).ok());
  for (const std::string& name :
       {std::string(200, 'x'), "fargpu-" + std::string(200, '0'), std::string("fargpu-"),
        std::string("fargpu-0x"), std::string("/tmp/.X11-unix/X0")})
    EXPECT_EQ(bootstrap::connect_to_rendezvous(name, rendezvous->cookie()).status().code(),
              StatusCode::kInvalidArgument)
        << name;
  EXPECT_FALSE(bootstrap::connect_to_rendezvous(rendezvous->name(), {}).ok());
}

// What a client must not do; the worker ends the session with kProtocol.
using Script = std::vector<bootstrap::UpgradeRequest>;
class BrokenRules : public testing::TestWithParam<Script> {};

TEST_P(BrokenRules, EndTheSession) {
  Sockets sockets = unix_sockets();
  const std::vector<bootstrap::UpgradeOffer> offers{{Upgrade::kRdma, "not here"},
                                                    {Upgrade::kShm, ""}};
  Result<Upgraded> worker(Status(StatusCode::kLost, "not run"));
  std::thread thread(
      [&] { worker = upgrade_as_worker(std::move(sockets.worker), offers, {}, soon()); });
  for (const auto& request : GetParam())
    (void)bootstrap::ask_upgrade(sockets.client.get(), request, soon());
  thread.join();
  EXPECT_EQ(worker.status().code(), StatusCode::kProtocol) << worker.status().message();
}

using bootstrap::UpgradeStep;
INSTANTIATE_TEST_SUITE_P(All, BrokenRules,
                         testing::Values(Script{{UpgradeStep::kDone, Upgrade::kShm, "", 2}},
                                         Script{{UpgradeStep::kFailed, Upgrade::kShm, "", 2}},
                                         Script{{UpgradeStep::kPrepare, Upgrade::kRdma, "", 2}},
                                         Script{{UpgradeStep::kPrepare, std::nullopt, "", 2}}));

// Further connections as client, daemon and worker would make them: the worker finds what the
// client has opened.
struct Further {
  explicit Further(size_t most, const bootstrap::ConnectionsPlan& wanted, size_t can = 16) {
    at_client = {most, wanted, [this, can](size_t index, transport::Deadline) -> Result<Fd> {
                   if (index >= can) return Status(StatusCode::kRefused, "no more");
                   Sockets sockets = tcp_sockets();
                   std::lock_guard lock(mutex);
                   opened[index] = std::move(sockets.worker);
                   return std::move(sockets.client);
                 }};
    at_worker = {most, {}, [this](size_t index, transport::Deadline) -> Result<Fd> {
                   std::lock_guard lock(mutex);
                   if (!opened[index].valid()) return Status(StatusCode::kTimeout, "did not come");
                   return std::move(opened[index]);
                 }};
  }
  std::mutex mutex;
  std::map<size_t, Fd> opened;
  bootstrap::FurtherConnections at_client, at_worker;
};

TEST(Bootstrap, StayingSessionTakesFurtherConnections) {
  Further further(4, {3});
  for (const char* wish : {"tcp", "auto"}) {
    const bootstrap::WorkerRules rules{.allowed = {}, .same_host = false};
    const Outcome outcome = converse(tcp_sockets(), *bootstrap::parse_wish(wish), rules,
                                     further.at_client, further.at_worker);
    expect_works(outcome, "tcp");
    for (const auto& end : {outcome.client->transport.get(), outcome.worker->transport.get()}) {
      EXPECT_NE(end->describe().find("by 3 connections"), std::string::npos) << end->describe();
    }
  }
}

TEST(Bootstrap, FurtherConnectionThatCannotBeHadIsDoneWithout) {
  Further further(4, {4}, 2);
  const Outcome outcome = converse(tcp_sockets(), *bootstrap::parse_wish("tcp"), {},
                                   further.at_client, further.at_worker);
  expect_works(outcome, "tcp");
  EXPECT_NE(outcome.worker->transport->describe().find("by 2 connections"), std::string::npos);
  ASSERT_EQ(outcome.client->failures.size(), 1u);
  EXPECT_NE(outcome.client->failures[0].find("connection 3 of 4: no more"), std::string::npos)
      << outcome.client->failures[0];
}

TEST(Bootstrap, StayingSessionHasABulkConnection) {
  for (const size_t connections : {1, 2}) {
    Further further(4, {connections, connections});
    Outcome outcome = converse(tcp_sockets(), *bootstrap::parse_wish("tcp"), {}, further.at_client,
                               further.at_worker);
    ASSERT_TRUE(outcome.client.ok() && outcome.worker.ok());
    for (const auto& end : {&*outcome.client, &*outcome.worker}) {
      EXPECT_NE(end->describe().find(" with a bulk connection"), std::string::npos);
      ASSERT_NE(end->bulk, nullptr);
      EXPECT_EQ(end->transport->describe().find("by 2") != std::string::npos, connections == 2);
      EXPECT_EQ(end->bulk->describe().find("by 2") != std::string::npos, connections == 2);
    }
    // The same connections on both ends, for frames and for bulk.
    for (const auto member : {&Upgraded::transport, &Upgraded::bulk}) {
      transport::Transport& from = *((*outcome.client).*member);
      transport::Transport& to = *((*outcome.worker).*member);
      ASSERT_TRUE(test::send_frame(from, 5, 8, 1 << 20).ok());
      ASSERT_TRUE(from.flush(soon()).ok());
      test::CheckingHandler handler;
      ASSERT_TRUE(to.receive(handler, soon()).ok());
      EXPECT_EQ(handler.headers.size(), 1u);
      EXPECT_EQ(handler.wrong, 0u);
    }
  }
}

TEST(Bootstrap, BulkConnectionThatCannotBeHadIsDoneWithout) {
  Further further(4, {1, 1}, 1);
  const Outcome outcome = converse(tcp_sockets(), *bootstrap::parse_wish("tcp"), {},
                                   further.at_client, further.at_worker);
  expect_works(outcome, "tcp");
  EXPECT_EQ(outcome.client->bulk, nullptr);
  EXPECT_EQ(outcome.worker->bulk, nullptr);
  ASSERT_EQ(outcome.client->failures.size(), 1u);
  EXPECT_NE(outcome.client->failures[0].find("connection 2 of 2: no more"), std::string::npos)
      << outcome.client->failures[0];
}

TEST(Bootstrap, BulkConnectionLeavesOneForFrames) {
  for (const uint16_t bulk : {2, 3, 65535}) {
    Further further(4, {1});
    Sockets sockets = tcp_sockets();
    Result<Upgraded> worker(Status(StatusCode::kLost, "not run"));
    std::thread thread([&] {
      worker = upgrade_as_worker(std::move(sockets.worker), {}, {}, soon(), further.at_worker);
    });
    (void)bootstrap::ask_upgrade(sockets.client.get(),
                                 {bootstrap::UpgradeStep::kStay, std::nullopt, "", 2, 2, bulk},
                                 soon());
    thread.join();
    EXPECT_EQ(worker.status().code(), StatusCode::kProtocol);
  }
}

TEST(Bootstrap, ConnectionsArePlanned) {
  const auto plan = [](const char* wish, size_t most, bool far, bool bulk) {
    const auto made = bootstrap::parse_connections(wish)->plan(most, far, bulk);
    return std::pair(made.frames, made.bulk);
  };
  using Plan = std::pair<size_t, size_t>;
  constexpr bool kNear = false, kFar = true;
  EXPECT_EQ(plan("auto", 8, kNear, true), Plan(1, 1));
  EXPECT_EQ(plan("auto", 2, kNear, true), Plan(1, 1));
  EXPECT_EQ(plan("auto", 8, kFar, true), Plan(4, 4));
  EXPECT_EQ(plan("auto", 2, kFar, true), Plan(1, 1));
  EXPECT_EQ(plan("auto", 5, kFar, true), Plan(3, 2));
  EXPECT_EQ(plan("2", 8, kNear, true), Plan(2, 2));
  EXPECT_EQ(plan("16", 16, kNear, true), Plan(8, 8));
  EXPECT_EQ(plan("1", 8, kFar, true), Plan(1, 0)) << "one connection was asked for";
  // Servers that do not know bulk connections.
  EXPECT_EQ(plan("auto", 8, kNear, false), Plan(1, 0));
  EXPECT_EQ(plan("auto", 8, kFar, false), Plan(4, 0));
  EXPECT_EQ(plan("4", 2, kNear, false), Plan(2, 0));
}

TEST(Bootstrap, SharedMemoryNeedsNoFurtherConnections) {
  Further further(4, {4});
  const bootstrap::WorkerRules rules{.allowed = {Upgrade::kShm}, .same_host = true};
  expect_works(converse(tcp_sockets(), *bootstrap::parse_wish("auto"), rules, further.at_client,
                        further.at_worker),
               "shm");
  EXPECT_TRUE(further.opened.empty());
}

TEST(Bootstrap, MoreConnectionsThanOfferedOrOpenedEndTheSession) {
  for (const auto& [connections, code] :
       {std::pair(3, StatusCode::kProtocol), std::pair(2, StatusCode::kTimeout)}) {
    Further further(2, {1});
    Sockets sockets = tcp_sockets();
    Result<Upgraded> worker(Status(StatusCode::kLost, "not run"));
    std::thread thread([&] {
      worker = upgrade_as_worker(std::move(sockets.worker), {}, {}, soon(), further.at_worker);
    });
    (void)bootstrap::ask_upgrade(
        sockets.client.get(),
        {bootstrap::UpgradeStep::kStay, std::nullopt, "", 2, static_cast<uint16_t>(connections)},
        soon());
    thread.join();
    EXPECT_EQ(worker.status().code(), code) << worker.status().message();
  }
}

TEST(Bootstrap, ConnectionsAreReadFromText) {
  EXPECT_EQ(bootstrap::parse_connections("")->connections, 0u);
  EXPECT_EQ(bootstrap::parse_connections("auto")->connections, 0u);
  EXPECT_EQ(bootstrap::parse_connections("1")->at_most(), 1u);
  EXPECT_EQ(bootstrap::parse_connections("16")->at_most(), 16u);
  EXPECT_EQ(bootstrap::parse_connections("4")->at_most(*bootstrap::parse_wish("shm")), 1u);
  EXPECT_EQ(bootstrap::parse_connections("4")->at_most(*bootstrap::parse_wish("tcp")), 8u);
  EXPECT_EQ(bootstrap::parse_connections("auto")->at_most(), 8u);
  for (const char* wrong : {"0", "17", "-1", "many"}) {
    EXPECT_EQ(bootstrap::parse_connections(wrong).status().code(), StatusCode::kInvalidArgument)
        << wrong;
  }
}

TEST(Bootstrap, KeysAreRandomAndComparedWhole) {
  const auto one = bootstrap::make_session_key(), other = bootstrap::make_session_key();
  ASSERT_TRUE(one.ok() && other.ok());
  EXPECT_NE(*one, *other);
  EXPECT_TRUE(bootstrap::same_key(*one, *one));
  EXPECT_FALSE(bootstrap::same_key(*one, *other));
  EXPECT_FALSE(bootstrap::same_key(*one, std::span(*one).first(15)));
  EXPECT_FALSE(bootstrap::same_key(*one, {}));
}

TEST(Bootstrap, SilentClientIsNotWaitedForForEver) {
  Sockets sockets = unix_sockets();
  const std::vector<bootstrap::UpgradeOffer> offers{{Upgrade::kShm, ""}};
  auto worker = upgrade_as_worker(std::move(sockets.worker), offers, {},
                                  Clock::now() + std::chrono::milliseconds(100));
  EXPECT_EQ(worker.status().code(), StatusCode::kTimeout);
}

}  // namespace
}  // namespace fargpu
