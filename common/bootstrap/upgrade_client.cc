#include <fmt/core.h>
#include <kj/exception.h>
#include <sys/socket.h>

#include <algorithm>

#include "common/bootstrap/connect.h"
#include "common/bootstrap/unix_rendezvous.h"
#include "common/bootstrap/upgrade.h"
#include "common/bootstrap/upgrade_messages.h"
#include "common/bootstrap/upgrade_ways.h"
#include "common/wire/slot_message.h"
#include "generated/schema/control.capnp.h"

namespace fargpu::bootstrap {
namespace {

using transport::Clock;
using transport::Deadline;
using transport::Transport;

class Conversation {
 public:
  Conversation(int socket, Deadline deadline) : socket_(socket), deadline_(deadline) {}

  Result<UpgradeAnswer> ask(UpgradeStep step, std::optional<Upgrade> upgrade,
                            std::string reason = {}, size_t connections = 1, size_t bulk = 0) {
    return ask_upgrade(socket_,
                       {step, upgrade, std::move(reason), ++sequence_,
                        static_cast<uint16_t>(connections), static_cast<uint16_t>(bulk)},
                       deadline_);
  }

 private:
  const int socket_;
  const Deadline deadline_;
  uint32_t sequence_ = 1;  // the hello had 1
};

Result<std::unique_ptr<Transport>> connect_shm(int socket, const UpgradeAnswer& answer,
                                               const transport::StreamOptions& options,
                                               Deadline deadline) {
  Fd connection;
  if (answer.unix_name.empty()) {
    FARGPU_ASSIGN_OR_RETURN(connection, duplicate(socket));
  } else {
    FARGPU_ASSIGN_OR_RETURN(connection, connect_to_rendezvous(answer.unix_name, answer.cookie));
  }
  return shm_as_client(std::move(connection), options, deadline);
}

Result<std::unique_ptr<Transport>> establish(Upgrade upgrade, int socket,
                                             const UpgradeAnswer& answer,
                                             const transport::StreamOptions& options) {
  const Deadline deadline = Clock::now() + kStepTime;
  if (upgrade == Upgrade::kShm) return connect_shm(socket, answer, options, deadline);
  FARGPU_ASSIGN_OR_RETURN(Fd stream, duplicate(socket));
  return rdma_as_client(std::move(stream), answer, options, deadline);
}

// The transport, or why this upgrade cannot be had; `failed`: it looked possible and was tried. A
// Status of kLost or kProtocol about the socket itself comes back as the outer result.
struct Attempt {
  std::unique_ptr<Transport> transport;
  std::string why_not;
  bool failed = false;
};

Result<Attempt> attempt(Upgrade upgrade, int socket, Conversation& conversation,
                        const transport::StreamOptions& options) {
  if (upgrade == Upgrade::kRdma) {
    if (std::string why = why_no_rdma(socket); !why.empty())
      return Attempt{nullptr, std::move(why), false};
  }
  FARGPU_ASSIGN_OR_RETURN(const UpgradeAnswer prepared,
                          conversation.ask(UpgradeStep::kPrepare, upgrade));
  if (!prepared.ok)
    return Attempt{nullptr, "the server could not prepare it: " + prepared.reason, true};
  auto made = establish(upgrade, socket, prepared, options);
  if (!made.ok()) {
    FARGPU_RETURN_IF_ERROR(
        conversation.ask(UpgradeStep::kFailed, upgrade, made.status().message()).status());
    return Attempt{nullptr, made.status().message(), true};
  }
  FARGPU_ASSIGN_OR_RETURN(const UpgradeAnswer agreed,
                          conversation.ask(UpgradeStep::kDone, upgrade));
  if (!agreed.ok) return Attempt{nullptr, "the server could not use it: " + agreed.reason, true};
  return Attempt{std::move(*made), {}, false};
}

// As many of the wanted ones as can be had, in the order of their indices.
void open_further(const FurtherConnections& more, std::vector<Fd>& sockets,
                  std::vector<std::string>& failures) {
  const size_t wanted = more.wanted.frames + more.wanted.bulk;
  while (sockets.size() < wanted) {
    auto further = more.get(sockets.size(), Clock::now() + kStepTime);
    if (!further.ok()) {
      failures.push_back(fmt::format("connection {} of {}: {}", sockets.size() + 1, wanted,
                                     further.status().message()));
      return;
    }
    sockets.push_back(std::move(*further));
  }
}

}  // namespace

Result<std::vector<UpgradeOffer>> read_offers(std::span<const std::byte> welcome_body) {
  try {
    wire::SegmentReader reader(welcome_body);
    std::vector<UpgradeOffer> offers;
    for (const auto choice : reader.getRoot<schema::Welcome>().getUpgrades()) {
      if (const auto upgrade = parse_upgrade(choice.getTransport().cStr()))
        offers.push_back({*upgrade, choice.getWhy()});
    }
    return offers;
  } catch (const kj::Exception&) {
    return Status(StatusCode::kProtocol, "the server's answer to the hello is malformed");
  }
}

Result<Upgraded> upgrade_as_client(Fd socket, const TransportWish& wish,
                                   const std::vector<UpgradeOffer>& offers,
                                   const transport::StreamOptions& options, Deadline deadline,
                                   const FurtherConnections& more) {
  Conversation conversation(socket.get(), deadline);
  Upgraded result;
  std::string notes;
  for (const Upgrade upgrade : wish.upgrades) {
    const auto offer = std::find_if(offers.begin(), offers.end(), [upgrade](const UpgradeOffer& o) {
      return o.upgrade == upgrade;
    });
    Attempt made;
    if (offer == offers.end()) {
      made.why_not = "the server does not know it";
    } else if (!offer->why_not.empty()) {
      made.why_not = offer->why_not;
    } else {
      FARGPU_ASSIGN_OR_RETURN(made, attempt(upgrade, socket.get(), conversation, options));
    }
    if (made.transport != nullptr) {
      result.transport = std::move(made.transport);
      result.reason = reason_for(upgrade);
      return result;
    }
    const std::string note = fmt::format("{}: {}", to_string(upgrade), made.why_not);
    if (!notes.empty()) notes += "; ";
    notes += note;
    if (made.failed) result.failures.push_back(note);
  }
  if (wish.forced && !wish.upgrades.empty()) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("the wanted transport cannot be had: {}; --transport auto "
                              "(FARGPU_TRANSPORT) takes the best that can",
                              notes));
  }
  result.reason = wish.upgrades.empty() ? "asked for" : notes;
  std::vector<Fd> sockets;
  sockets.push_back(std::move(socket));
  open_further(more, sockets, result.failures);
  const size_t frames = std::min(sockets.size(), more.wanted.frames);
  if (!offers.empty() || more.most > 1) {
    FARGPU_RETURN_IF_ERROR(conversation
                               .ask(UpgradeStep::kStay, std::nullopt, result.reason, sockets.size(),
                                    sockets.size() - frames)
                               .status());
  }
  FARGPU_RETURN_IF_ERROR(stay(std::move(sockets), frames, options, result));
  return result;
}

}  // namespace fargpu::bootstrap
