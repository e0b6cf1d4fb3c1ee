// A server for channel tests: a thread that receives frames on one end of a transport and answers
// by a script.
//
// The script runs on the server's thread for every request; it replies through the Responder, or
// not. What it answered is flushed after each batch. stop() (or destruction) closes the server's
// end and joins.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "common/rpc/responder.h"
#include "common/transport/transport.h"

namespace fargpu::test {

struct ReceivedFrame {
  wire::FrameHeader header;
  std::span<const std::byte> body;
  std::span<std::byte> bulk;
};

class ScriptedServer final : public transport::FrameHandler {
 public:
  using Script = std::function<Status(rpc::Responder&, const ReceivedFrame&)>;

  ScriptedServer(std::unique_ptr<transport::Transport> transport, Script script);
  ~ScriptedServer() override;

  void stop();
  // Frames are neither read nor answered while paused: pause(true) returns when the thread has
  // stopped reading.
  void pause(bool paused);
  uint64_t frames() const { return frames_; }
  Status end_status();  // why the loop ended; after stop()
  transport::Transport& transport() { return *transport_; }

  Result<std::span<std::byte>> bulk_buffer(const wire::FrameHeader& header,
                                           std::span<const std::byte> body) override;
  Status on_frame(const wire::FrameHeader& header, std::span<const std::byte> body,
                  std::span<std::byte> bulk) override;

 private:
  void run();

  std::unique_ptr<transport::Transport> transport_;
  rpc::Responder responder_;
  Script script_;
  std::vector<std::byte> bulk_;
  std::atomic<uint64_t> frames_{0};
  std::atomic<bool> stop_{false}, paused_{false}, resting_{false}, ended_{false};
  Status end_;
  std::thread thread_;
};

}  // namespace fargpu::test
