// Connection: a management session with one server. Used by any thread, for one call each; only
// answers arrive.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/settings/identities.h"
#include "client/settings/settings.h"
#include "common/base/status.h"
#include "common/bootstrap/job_ticket.h"
#include "common/rpc/channel.h"
#include "common/wire/opcode_set.h"

namespace fargpu::nvml {

// A GPU of the job, from the server's answer.
struct ServersDevice {
  std::string uuid;  // "GPU-..."
  std::string serial;
  uint32_t domain = 0, bus = 0, device = 0;  // PCI
};

class Connection final : public rpc::NoticeSink {
 public:
  // Connects and says hello. The Status' code is the kind of failure.
  static Result<std::unique_ptr<Connection>> open(const std::string& server,
                                                  const std::optional<bootstrap::JobTicket>& job,
                                                  const client::Settings& settings);
  // Says bye; nothing may be under way.
  ~Connection() override;

  const std::string& server() const { return server_; }
  uint64_t daemon() const { return daemon_; }
  const std::vector<ServersDevice>& devices() const { return devices_; }
  bool knows(uint16_t opcode) const { return known_.contains(opcode); }
  bool lost() const { return ended_ || channel_->lost(); }
  rpc::Channel& channel() { return *channel_; }
  // How long a call may wait for its answer.
  std::chrono::microseconds patience() const { return patience_; }
  // The server broke the rules, or did not answer in time: every further call fails.
  void end(const char* call);
  void give_up(const char* call);
  void abandon_after_fork() { channel_->abandon_after_fork(); }

  // NoticeSink
  Status on_notice(const wire::FrameHeader& header, rpc::Bytes body, rpc::Bytes bulk) override;
  void on_async_error(uint16_t, uint32_t, uint16_t, int32_t) override {}
  void on_lost(const Status& why) override;

 private:
  Connection(std::string server, std::chrono::microseconds patience)
      : server_(std::move(server)), patience_(patience) {}

  const std::string server_;
  const std::chrono::microseconds patience_;
  uint64_t daemon_ = 0;
  std::vector<ServersDevice> devices_;
  wire::OpcodeSet known_;
  std::atomic<bool> ended_{false};
  std::unique_ptr<rpc::Channel> channel_;
};

}  // namespace fargpu::nvml
