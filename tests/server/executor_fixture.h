// An executor on a thread of its own, with a driver made by hand, and the client's end of its
// loopback connection.
//
// The driver's functions note their names, in order; some can be made to fail, to wait, or to say
// "not ready". One session at a time in a process.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/copy/copy.h"
#include "common/rpc/handle_kind.h"
#include "common/transport/loopback/loopback.h"
#include "common/wire/slot_message.h"
#include "generated/server/driver_table.h"
#include "schema/support/sizes.h"
#include "server/worker/bulk_receiver.h"
#include "server/worker/executor.h"
#include "server/worker/session_worker.h"

namespace fargpu::server {

// What the fake driver does, and did. Every member is used under the mutex.
class FakeDriver {
 public:
  static FakeDriver& get();
  static DriverTable table();

  void reset();
  void note(const std::string& call);
  std::vector<std::string> calls();
  bool saw(const std::string& call);
  size_t count(const std::string& call);

  // The call returns this instead of CUDA_SUCCESS.
  void fail(const std::string& call, CUresult result);
  CUresult result_of(const std::string& call, CUresult otherwise = CUDA_SUCCESS);
  // Where the last copy to the device reads, and the words that streams wait for.
  std::atomic<const void*> source{nullptr};
  std::array<std::atomic<uint32_t>, 1024> words{};
  // The call (or event query) does not end before open(). Events are "event" (all) and "event N",
  // in the order of their creation from 1; "created stream" is what is in the stream that
  // cuStreamCreate made.
  void shut(const std::string& gate);
  void open(const std::string& gate);
  void open_all();
  void pass(const std::string& gate);
  bool is_shut(const std::string& gate);
  // The call takes this long.
  void slow(const std::string& call, std::chrono::milliseconds time);
  void take_time(const std::string& call);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> calls_;
  std::map<std::string, CUresult> results_;
  std::map<std::string, bool> shut_;
  std::map<std::string, std::chrono::milliseconds> slow_;
};

struct Answer {
  wire::FrameHeader header;
  std::vector<std::byte> body, bulk;
};

class ExecutorTest : public ::testing::Test, private transport::FrameHandler {
 protected:
  // With output: what is written to `output_` is captured as if device code had printed it, and
  // there is code that may.
  void start(bool with_output = false, uint64_t memory_bytes = 0);
  void TearDown() override;

  // Sends one request; its sequence number.
  uint32_t send(uint16_t opcode, std::span<const std::byte> body = {},
                uint16_t flags = wire::kWantReply, uint16_t context = 1,
                std::span<const std::byte> bulk = {});
  template <typename Params>
  uint32_t send(uint16_t opcode, const std::function<void(typename Params::Builder)>& fill,
                uint16_t flags = wire::kWantReply, uint16_t context = 1) {
    alignas(8) std::byte memory[1024];
    wire::SlotMessageBuilder builder(std::span<std::byte>(memory, sizeof memory));
    fill(builder.template initRoot<Params>());
    return send(opcode, std::span<const std::byte>(memory, builder.used_bytes()), flags, context);
  }
  // fgCopy in `stream`.
  uint32_t send_copy(const copy::Copy& copy, uint64_t stream = 0, uint16_t flags = wire::kWantReply,
                     uint16_t context = 1, std::span<const std::byte> src = {});
  // The next frame of the server; an assertion fails when there is none within the limit.
  Answer next();
  // The next frame, which must be the reply to `sequence`; its result.
  CUresult result(uint32_t sequence, uint16_t flags = wire::kReply);
  void expect_answer(uint32_t sequence, CUresult expected) {
    EXPECT_EQ(result(sequence), expected);
  }
  // Nothing comes before the answer to this ping.
  void expect_silence();
  void hang_up() { client_->close(); }
  // The client's end from now on.
  void use(std::unique_ptr<transport::Transport> client) { client_ = std::move(client); }
  // How the executor ended; waits for it.
  Status end();
  // Context 1 on device 0, of which the fake driver's notes say nothing any more.
  void enter();
  static bool eventually(const std::function<bool()>& condition);

  // Before start(): what the worker's end of the connection is made into.
  std::function<std::unique_ptr<transport::Transport>(std::unique_ptr<transport::Transport>)> wrap_;
  // Before start(): the session has a bulk connection, whose client's end is then `beside_`.
  bool with_bulk_connection_ = false;
  std::unique_ptr<transport::Transport> beside_;
  // Before start(): the daemon, and a socket that ends when the client does. None usually.
  SessionCommands::Source daemon_;
  int peer_ = -1;
  // Likewise: which opcodes of session control the client says that it knows.
  uint64_t client_control_ = ~uint64_t{0};
  // Says that the worker lives, as its watch does.
  // Only tries: the executor may hold the channel.
  void say_alive();
  bool hears_something();
  // What stands for the driver's stdout and stderr.
  int output_ = -1;
  int errors_ = -1;

 private:
  Result<std::span<std::byte>> bulk_buffer(const wire::FrameHeader& header,
                                           std::span<const std::byte> body) override;
  Status on_frame(const wire::FrameHeader& header, std::span<const std::byte> body,
                  std::span<std::byte> bulk) override;

  DriverTable table_;
  std::unique_ptr<transport::Transport> client_, server_, bulk_server_;
  SessionStatistics statistics_;
  CapturedOutput capture_;
  std::unique_ptr<SessionWorker> worker_;
  std::thread thread_;
  std::optional<Status> ended_;
  std::vector<std::byte> bulk_;
  std::vector<Answer> answers_;
  uint32_t sequence_ = 0;
};

}  // namespace fargpu::server
