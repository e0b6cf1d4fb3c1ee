// The messages between the daemon and its workers (schema/worker.capnp): encoded, parsed, and
// checked (versions, texts, lists). Pure functions, but for the id of the process, which older
// workers ask for.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/host/sha256.h"
#include "common/wire/frame.h"
#include "server/handover/control_socket.h"
#include "server/handover/inventory.h"
#include "server/handover/worker_options.h"

namespace fargpu::server {

// The field `version` of Start, Prepare, Probe and Started: the version that this release sends,
// and the oldest that it accepts.
inline constexpr uint16_t kWorkerProtocol = 5, kOldestWorkerProtocol = 1;

enum class WorkerMessage : uint16_t {
  kStart = 1,
  kProbe = 2,
  kStarted = 3,
  kReport = 4,
  kStop = 5,
  kResume = 6,
  kDrain = 7,
  kLastWords = 8,
  kManage = 9,
  kConnectPeer = 10,
  kPeerConnected = 11,
  kPrepare = 12,
  kSettled = 13,
  kClient = 14,
  kAwaitEnded = 15,
  kFindImage = 16,
  kBeginImage = 17,
  kKeepImage = 18,
  kEndImage = 19,
};
// Results of a reply.
inline constexpr int32_t kUnknownMessage = 1, kNoSuchSession = 2, kNoImage = 2;
// Workers are connected to each other from this version on.
inline constexpr uint16_t kPeerProtocol = 2;
// A worker says that its session has settled from this version of its daemon on.
inline constexpr uint16_t kAheadProtocol = 3;
// Each asks the other about clients that have ended from this version on.
inline constexpr uint16_t kEndedProtocol = 4;
// A worker has images from its daemon from this version of it on.
inline constexpr uint16_t kImageProtocol = 5;
inline WorkerMessage kind_of(const ReceivedMessage& message) {
  return static_cast<WorkerMessage>(message.header.opcode);
}

// The report of schema/worker.capnp.
struct WorkerReport {
  uint64_t calls = 0;
  std::vector<uint64_t> memory_bytes;  // per GPU of the session
  uint32_t contexts = 0, streams = 0;
  bool stopped = false, idle = false;
  uint32_t waits = 0, helper_calls = 0, host_functions = 0;
  bool stuck = false;
  uint16_t call = 0;
  bool client_gone = false, client_seen = false;
};

// kProtocol: malformed, or a text or list is too long. kVersion: the sender is too old.
// Start, or manage (WorkerOptions::management).
MessageBytes encode_start(const WorkerOptions& options);
Result<WorkerOptions> parse_start(std::span<const std::byte> body);
MessageBytes encode_prepare(const PrepareOptions& options);
Result<PrepareOptions> parse_prepare(std::span<const std::byte> body);
// Whether the driver is open. An error arrives at the daemon as kDriver with its text.
MessageBytes encode_prepared(const Status& status);
Status parse_prepared(std::span<const std::byte> body);
// Without a body.
MessageBytes encode_settled();
struct ProbeRequest {
  std::string driver;
  bool measures_contexts = false;
};
MessageBytes encode_probe(const ProbeRequest& request);
Result<ProbeRequest> parse_probe(std::span<const std::byte> body);
MessageBytes encode_started();
// The worker's version.
Result<uint16_t> check_started(const ReceivedMessage& message);
// An error arrives at the daemon as kDriver with its text.
MessageBytes encode_inventory(const Result<Inventory>& inventory);
// kNotFound when there is no GPU.
Result<Inventory> parse_inventory(std::span<const std::byte> body);
// A command without a body, or drain with its limit; `sequence` is the reply's.
MessageBytes encode_command(WorkerMessage command, uint32_t sequence);
MessageBytes encode_drain(uint32_t sequence, std::chrono::milliseconds limit);
Result<std::chrono::milliseconds> parse_drain(std::span<const std::byte> body);
// Replies to a command.
MessageBytes encode_report(const wire::FrameHeader& command, const WorkerReport& report);
MessageBytes encode_unknown(const wire::FrameHeader& command);
Result<WorkerReport> parse_report(const ReceivedMessage& reply);
// Why a worker ends. `limit`: of the configuration, by name, if one has ended the session.
struct LastWords {
  std::string reason{}, limit{};
};
MessageBytes encode_last_words(const LastWords& words);
// kConnectPeer with a sequence to be answered; kPeerConnected with 0.
MessageBytes encode_peer(WorkerMessage kind, uint64_t session, uint32_t sequence = 0);
Result<uint64_t> parse_peer(std::span<const std::byte> body);
MessageBytes encode_peer_answer(uint32_t sequence, int32_t result);
MessageBytes encode_await_ended(uint32_t sequence);
MessageBytes encode_await_ended_answer(uint32_t sequence);
// kFindImage with a sequence to be answered, kKeepImage with that of its upload.
MessageBytes encode_image_name(WorkerMessage kind, uint32_t sequence, const Sha256Digest& hash);
Result<Sha256Digest> parse_image_hash(std::span<const std::byte> body);
MessageBytes encode_begin_image(uint32_t upload, uint64_t bytes);
Result<uint64_t> parse_image_bytes(std::span<const std::byte> body);
MessageBytes encode_end_image(uint32_t upload);
// To any of these with a reply.
MessageBytes encode_image_answer(const wire::FrameHeader& question, bool yes);
// Printable.
Result<LastWords> parse_last_words(std::span<const std::byte> body);

}  // namespace fargpu::server
