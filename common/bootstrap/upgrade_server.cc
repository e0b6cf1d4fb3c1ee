#include <fmt/core.h>
#include <sys/socket.h>

#include <algorithm>

#include "common/bootstrap/unix_rendezvous.h"
#include "common/bootstrap/upgrade.h"
#include "common/bootstrap/upgrade_messages.h"
#include "common/bootstrap/upgrade_ways.h"
#include "common/transport/poll.h"

namespace fargpu::bootstrap {
namespace {

using transport::Clock;
using transport::Deadline;
using transport::Transport;

bool is_unix(int socket) {
  int domain = 0;
  socklen_t length = sizeof domain;
  return ::getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0 && domain == AF_UNIX;
}

// Something to read, or the client's end: either way it is done with its part.
bool client_has_spoken(int socket) {
  pollfd entry{socket, POLLIN, 0};
  const auto ready = transport::poll_until(std::span(&entry, 1), Clock::now());
  return !ready.ok() || *ready > 0;
}

// Accepts in slices, so that a client that has given up is not waited for: it tells on the
// session's socket.
template <typename Accept>
auto accept_unless_given_up(int socket, Accept accept) -> decltype(accept(Deadline())) {
  constexpr auto kSlice = std::chrono::milliseconds(20);
  const Deadline last = Clock::now() + kStepTime;
  for (;;) {
    auto accepted = accept(Clock::now() + kSlice);
    if (accepted.ok() || accepted.status().code() != StatusCode::kTimeout || Clock::now() >= last)
      return accepted;
    // One last look: the client may have connected just before it spoke.
    if (client_has_spoken(socket)) return accept(Clock::now());
  }
}

class WorkerUpgrade {
 public:
  WorkerUpgrade(int socket, const transport::StreamOptions& options, Deadline deadline)
      : socket_(socket), options_(options), deadline_(deadline) {}

  Result<UpgradeRequest> next() { return read_upgrade(socket_, deadline_); }
  Status answer(const UpgradeRequest& request, const UpgradeAnswer& answer) {
    return answer_upgrade(socket_, request.sequence, answer, deadline_);
  }

  // Answers a kPrepare. A refusal ends the matter; after a yes the client's verdict is still to
  // come. A Status is about the session's socket.
  struct Prepared {
    bool refused = false;
    Result<std::unique_ptr<Transport>> made;
  };
  Result<Prepared> prepare(const UpgradeRequest& request) {
    return *request.upgrade == Upgrade::kShm ? prepare_shm(request) : prepare_rdma(request);
  }

 private:
  Result<Prepared> prepare_shm(const UpgradeRequest& request) {
    // A relay passes no descriptors on.
    if (is_unix(socket_) && options_.behind.empty()) {
      auto connection = duplicate(socket_);
      if (!connection.ok()) return refuse(request, connection.status());
      FARGPU_RETURN_IF_ERROR(answer(request, {.ok = true}));
      return Prepared{false,
                      shm_as_worker(std::move(*connection), options_, Clock::now() + kStepTime)};
    }
    auto rendezvous = UnixRendezvous::open();
    if (!rendezvous.ok()) return refuse(request, rendezvous.status());
    UpgradeAnswer where{.ok = true, .unix_name = rendezvous->name()};
    where.cookie.assign(rendezvous->cookie().begin(), rendezvous->cookie().end());
    FARGPU_RETURN_IF_ERROR(answer(request, where));
    auto connection =
        accept_unless_given_up(socket_, [&](Deadline slice) { return rendezvous->accept(slice); });
    if (!connection.ok()) return Prepared{false, connection.status()};
    return Prepared{false,
                    shm_as_worker(std::move(*connection), options_, Clock::now() + kStepTime)};
  }

  Result<Prepared> prepare_rdma(const UpgradeRequest& request) {
    auto listener = RdmaListening::open(socket_, options_);
    if (!listener.ok()) return refuse(request, listener.status());
    FARGPU_RETURN_IF_ERROR(answer(request, (*listener)->where()));
    return Prepared{false, accept_unless_given_up(socket_, [&](Deadline slice) {
                      return (*listener)->accept(slice);
                    })};
  }

  Result<Prepared> refuse(const UpgradeRequest& request, const Status& why) {
    FARGPU_RETURN_IF_ERROR(answer(request, {.ok = false, .reason = why.message()}));
    return Prepared{true, why};
  }

  const int socket_;
  const transport::StreamOptions& options_;
  const Deadline deadline_;
};

Status out_of_turn() { return {StatusCode::kProtocol, "upgrade: a step out of turn"}; }

}  // namespace

std::vector<UpgradeOffer> make_offers(int socket, const std::vector<Upgrade>& wished,
                                      const WorkerRules& rules) {
  std::vector<UpgradeOffer> offers;
  for (const Upgrade upgrade : wished) {
    std::string why_not;
    if (std::find(rules.allowed.begin(), rules.allowed.end(), upgrade) == rules.allowed.end()) {
      why_not = "switched off in the server's configuration";
    } else if (upgrade == Upgrade::kShm) {
      const bool unix_socket = is_unix(socket) && !rules.encrypted;
      if (!rules.same_host && !unix_socket) why_not = "the server is on another host";
    } else if (rules.encrypted) {
      why_not = "the session is encrypted, and rdma is not";
    } else {
      why_not = why_no_rdma(socket);
      if (!why_not.empty()) why_not = "on the server: " + why_not;
    }
    offers.push_back({upgrade, std::move(why_not)});
  }
  return offers;
}

Result<Upgraded> upgrade_as_worker(Fd socket, const std::vector<UpgradeOffer>& offers,
                                   const transport::StreamOptions& options, Deadline deadline,
                                   const FurtherConnections& more) {
  Upgraded result;
  if (offers.empty() && more.most <= 1) {
    result.reason = "asked for by the client";
    FARGPU_ASSIGN_OR_RETURN(result.transport, transport::from_fd(std::move(socket), options));
    return result;
  }
  WorkerUpgrade worker(socket.get(), options, deadline);
  // Each offer can be tried once.
  std::vector<UpgradeOffer> left = offers;
  for (;;) {
    FARGPU_ASSIGN_OR_RETURN(const UpgradeRequest request, worker.next());
    if (request.step == UpgradeStep::kStay) {
      if (request.connections > more.most) return out_of_turn();
      std::vector<Fd> further;
      for (size_t index = 1; index < request.connections; ++index) {
        FARGPU_ASSIGN_OR_RETURN(Fd next, more.get(index, Clock::now() + kStepTime));
        further.push_back(std::move(next));
      }
      FARGPU_RETURN_IF_ERROR(worker.answer(request, {.ok = true}));
      result.reason = request.reason;
      further.insert(further.begin(), std::move(socket));
      FARGPU_RETURN_IF_ERROR(
          stay(std::move(further), request.connections - request.bulk, options, result));
      return result;
    }
    if (request.step != UpgradeStep::kPrepare) return out_of_turn();
    const auto offer = std::find_if(left.begin(), left.end(), [&](const UpgradeOffer& o) {
      return o.upgrade == *request.upgrade && o.why_not.empty();
    });
    if (offer == left.end()) return out_of_turn();
    left.erase(offer);
    FARGPU_ASSIGN_OR_RETURN(auto prepared, worker.prepare(request));
    auto& made = prepared.made;
    const auto failed = [&](const std::string& why) {
      result.failures.push_back(fmt::format("{}: {}", to_string(*request.upgrade), why));
    };
    if (!made.ok()) failed(made.status().message());
    if (prepared.refused) continue;
    FARGPU_ASSIGN_OR_RETURN(const UpgradeRequest verdict, worker.next());
    if (verdict.upgrade != request.upgrade) return out_of_turn();
    if (verdict.step == UpgradeStep::kDone) {
      const std::string why = made.ok() ? "" : made.status().message();
      FARGPU_RETURN_IF_ERROR(worker.answer(verdict, {.ok = made.ok(), .reason = why}));
      if (!made.ok()) continue;
      result.transport = std::move(*made);
      result.reason = reason_for(*request.upgrade);
      return result;
    }
    if (verdict.step != UpgradeStep::kFailed) return out_of_turn();
    if (made.ok()) failed("on the client: " + verdict.reason);
    FARGPU_RETURN_IF_ERROR(worker.answer(verdict, {.ok = true}));
  }
}

}  // namespace fargpu::bootstrap
