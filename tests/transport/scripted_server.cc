#include "tests/transport/scripted_server.h"

#include "common/wire/control.h"

namespace fargpu::test {

ScriptedServer::ScriptedServer(std::unique_ptr<transport::Transport> transport, Script script)
    : transport_(std::move(transport)), responder_(*transport_), script_(std::move(script)) {
  thread_ = std::thread([this] { run(); });
}

ScriptedServer::~ScriptedServer() { stop(); }

void ScriptedServer::stop() {
  if (!thread_.joinable()) return;
  stop_ = true;
  transport_->close();
  thread_.join();
}

void ScriptedServer::pause(bool paused) {
  paused_ = paused;
  transport_->wake();
  while (paused && !resting_ && !ended_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

Status ScriptedServer::end_status() { return end_; }

void ScriptedServer::run() {
  while (!stop_) {
    resting_ = paused_.load();
    if (resting_) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      continue;
    }
    auto received = transport_->receive(*this, transport::kNoDeadline);
    if (received.ok()) {
      if (Status flushed = responder_.flush(); flushed.ok()) continue;
    }
    end_ = received.status();
    break;
  }
  ended_ = true;
}

Result<std::span<std::byte>> ScriptedServer::bulk_buffer(const wire::FrameHeader& header,
                                                         std::span<const std::byte>) {
  bulk_.resize(header.bulk_bytes);
  return std::span(bulk_);
}

Status ScriptedServer::on_frame(const wire::FrameHeader& header, std::span<const std::byte> body,
                                std::span<std::byte> bulk) {
  ++frames_;
  if (header.opcode == wire::kPing) return responder_.reply(header, 0);
  if (header.opcode == wire::kBye) {
    transport_->close();
    return Status();
  }
  return script_(responder_, {header, body, bulk});
}

}  // namespace fargpu::test
