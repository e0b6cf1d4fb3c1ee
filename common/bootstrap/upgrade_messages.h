// The frames of the upgrade conversation as plain values (Upgrade and UpgradeReply of
// schema/control.capnp). One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/bootstrap/transport_choice.h"
#include "common/transport/transport.h"

namespace fargpu::bootstrap {

enum class UpgradeStep { kPrepare, kDone, kFailed, kStay };

struct UpgradeRequest {
  UpgradeStep step = UpgradeStep::kStay;
  std::optional<Upgrade> upgrade;  // not of kStay
  std::string reason;              // printable
  uint32_t sequence = 0;
  uint16_t connections = 1;  // of kStay
  uint16_t bulk = 0;         // of kStay: of the connections, the last ones
};

struct UpgradeAnswer {
  bool ok = false;
  std::string reason{};
  std::string unix_name{};
  uint16_t port = 0;
  std::vector<std::byte> cookie{};
};

// The client: sends the request and waits for the answer. The worker: waits for a request; answers
// it. kProtocol for anything else on the socket.
Result<UpgradeAnswer> ask_upgrade(int socket, const UpgradeRequest& request,
                                  transport::Deadline deadline);
Result<UpgradeRequest> read_upgrade(int socket, transport::Deadline deadline);
Status answer_upgrade(int socket, uint32_t sequence, const UpgradeAnswer& answer,
                      transport::Deadline deadline);

}  // namespace fargpu::bootstrap
