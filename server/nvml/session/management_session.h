// The calls of a management session: takes frames in their order, and answers each at once. One
// thread; a call waits as long as the server's NVML does.
#pragma once

#include "common/rpc/responder.h"
#include "common/transport/transport.h"
#include "server/handover/session_statistics.h"
#include "server/nvml/desk.h"

namespace fargpu::server {

class ManagementSession final : public transport::FrameHandler {
 public:
  // All outlive the session.
  ManagementSession(Desk& desk, transport::Transport& transport, SessionStatistics& statistics)
      : desk_(desk), transport_(transport), statistics_(statistics), responder_(transport) {}

  // Until the client says bye (ok), is gone (kLost), or breaks the protocol.
  Status run();

  Result<std::span<std::byte>> bulk_buffer(const wire::FrameHeader& header,
                                           std::span<const std::byte> body) override;
  Status on_frame(const wire::FrameHeader& header, std::span<const std::byte> body,
                  std::span<std::byte> bulk) override;

 private:
  Status on_call(const wire::FrameHeader& header, std::span<const std::byte> body);

  Desk& desk_;
  transport::Transport& transport_;
  SessionStatistics& statistics_;
  rpc::Responder responder_;
  bool bye_ = false;
};

}  // namespace fargpu::server
