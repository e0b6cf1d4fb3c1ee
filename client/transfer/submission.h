// The two ways in which a call is ordered with the work of streams. Generated calls hold one of
// these where the description says so (schema/README.md), hand-written code where it sends messages
// by itself.
//
//   Submission       the call puts work into a stream: `works`, `queues`, or `capture: captured`
//   Synchronisation  a success of the call says that work is done: `synchronises`
//
// Both live on the stack of the calling thread, around the sending and, if the call waits, the
// answer. Any thread. Both cost two loads for memory while no host memory has a mirror in the
// worker and none is managed.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "client/entry/call.h"
#include "client/entry/streams.h"
#include "client/process/session.h"
#include "generated/schema/opcodes.h"

namespace fargpu::client {

// An operation in a process with host functions: no mark covers it before it was sent, and
// HostTurns counts it while the order of its frame is open.
class BeingSent {
 public:
  BeingSent() = default;
  ~BeingSent() {
    if (stream_ != nullptr) [[unlikely]]
      end();
  }
  BeingSent(const BeingSent&) = delete;
  BeingSent& operator=(const BeingSent&) = delete;
  // Counts it in its stream. False: the stream's queue has no room for it.
  bool begin(const ResolvedStream& stream);
  bool begun() const { return stream_ != nullptr; }
  // When it has waited for all else, right before it is sent.
  void enter(Session& session, const ResolvedStream& stream);
  // It came to nothing.
  void give_back();

 private:
  void sent();
  void end();

  std::shared_ptr<StreamState> stream_;  // it may be destroyed meanwhile
  HostTurns* turns_ = nullptr;           // until it was sent
  HostTurns::Of of_ = HostTurns::Of::kApart;
  uint32_t position_ = 0;
};

// Work on its way into a stream. There is no other way in. What a captured stream is given does not
// come here: it became a node of a graph in the entry (client/call/capture.h).
//
// The constructor does in this order what the work needs, and may wait in 1 and 3:
//   1. kHostMemory: managed memory becomes the device's. What the application wrote by now to
//      memory that the worker mirrors is sent, and the stream waits for deliveries
//      (client/transfer/ordered_copy.h).
//   2. The stream is found: a default stream by the current context and thread, another one must be
//      live.
//   3. kQueuePlace: it takes a place in the driver's queue of the stream, as soon as there is one.
//      That comes after 1, because the stream may wait for what was written.
class Submission {
 public:
  // kPassing: a driver makes nothing of it for which a host function in another stream would wait.
  // So once there was a function, it takes no place in a legacy stream (HostTurns).
  enum Needs : unsigned { kNothing = 0, kHostMemory = 1, kQueuePlace = 2, kPassing = 4 };
  // `context`: wire id of the frame's context.
  Submission(Session& session, uint16_t context, CUstream stream, unsigned needs);
  // Only 1, around several frames of one stream that use the same host memory. What the frames' own
  // submissions and waits would send again is not looked for.
  Submission(Session& session, CUstream stream);
  // Only 1, for what enters no stream: no deliveries are awaited.
  explicit Submission(Session& session);
  ~Submission() {
    if (counted_) [[unlikely]]
      end_use();
    if (managed_) [[unlikely]]
      end_managed_use();
  }
  Submission(const Submission&) = delete;
  Submission& operator=(const Submission&) = delete;

  // Not CUDA_SUCCESS: the work must not be sent.
  CUresult result() const { return result_; }
  // The stream's id on the wire.
  uint64_t stream() const { return stream_; }
  // Passes on what the sending returned.
  CUresult ended(CUresult result) {
    if (result != CUDA_SUCCESS && sending_.begun()) [[unlikely]]
      sending_.give_back();
    return result;
  }

 private:
  void take_place(uint16_t context, CUstream stream, const ResolvedStream& resolved);
  // Apart from take_place(), so that that needs no more than its registers.
  [[gnu::noinline]] void take_counted_place(uint16_t context, CUstream stream,
                                            const ResolvedStream& resolved);
  [[gnu::noinline]] void wait_for_place(uint16_t context, CUstream stream,
                                        const ResolvedStream& resolved, bool has_room);
  void use_host_memory();
  void use_host_memory(CUstream stream);
  void end_use();
  void use_managed_memory();
  void end_managed_use();

  Session& session_;
  CUresult result_ = CUDA_SUCCESS;
  bool counted_ = false;
  bool managed_ = false;
  bool covers_ = false;
  uint64_t stream_ = 0;
  BeingSent sending_;
};

// Sends work: `message(stream)` is given the stream's id on the wire.
template <typename Message>
CUresult submit(Session& session, uint16_t context, CUstream stream, unsigned needs,
                Message&& message) {
  return without_exception([&]() -> CUresult {
    Submission work(session, context, stream, needs);
    return work.result() == CUDA_SUCCESS ? work.ended(message(work.stream())) : work.result();
  });
}
// The same where the message is made by hand: `body(stream)` has bytes().
template <typename Body>
CUresult send_work(const CallTarget& target, uint16_t opcode, CUstream stream, Body&& body,
                   unsigned more_needs = Submission::kNothing) {
  if (!target.session.knows(opcode)) [[unlikely]]
    return target.session.unknown(schema::opcode_name(opcode));
  const unsigned needs = Submission::kHostMemory | Submission::kQueuePlace | more_needs;
  return submit(target.session, target.context, stream, needs, [&](uint64_t id) -> CUresult {
    const auto& message = body(id);
    int32_t result = CUDA_SUCCESS;
    const Status sent =
        target.session.channel().send_body(opcode, target.context, message.bytes(), &result);
    return sent.ok() ? static_cast<CUresult>(result) : from_status(sent);
  });
}

// Before a submission that takes `places` in the driver's queue of its stream: all but the one that
// the submission takes itself.
CUresult take_places(Session& session, uint64_t places, CUstream stream);

// A point after which the application may rely on work being done. The constructor sends what the
// application wrote, since a stream may wait for it; finish() brings what device code wrote.
class Synchronisation {
 public:
  // What is done afterwards: some work; all that was in the stream, or in the frame's context,
  // before. Of the last two the client notes that the streams' queues have room.
  enum class Of : uint8_t { kSome, kStream, kContext };
  Synchronisation(Session& session, uint16_t context, Of of, CUstream stream = nullptr);
  Synchronisation(const Synchronisation&) = delete;
  Synchronisation& operator=(const Synchronisation&) = delete;

  // Not CUDA_SUCCESS: the call must not be sent.
  CUresult result() const { return result_; }
  // kStream: the stream's id on the wire.
  uint64_t stream() const { return stream_; }
  // After the answer that it is done.
  CUresult finish();

 private:
  Session& session_;
  CUresult result_ = CUDA_SUCCESS;
  uint64_t stream_ = 0;
  // Our own hold on it: the stream may be destroyed meanwhile.
  std::shared_ptr<StreamState> state_;
  uint32_t position_ = 0;
  std::optional<uint64_t> mark_;
  std::optional<uint64_t> managed_mark_;
};

// Waits: `message(stream)` is given the stream's id on the wire (kStream).
template <typename Message>
CUresult synchronise(Session& session, uint16_t context, Synchronisation::Of of, CUstream stream,
                     Message&& message) {
  return without_exception([&]() -> CUresult {
    Synchronisation done(session, context, of, stream);
    CUresult result = done.result();
    if (result == CUDA_SUCCESS) result = message(done.stream());
    return result == CUDA_SUCCESS ? done.finish() : result;
  });
}
// For all work of a stream, of a context.
CUresult await_stream(Session& session, uint16_t context, CUstream stream);
CUresult await_context(Session& session, uint16_t context);

}  // namespace fargpu::client
