#include "server/core/output.h"

#include <algorithm>
#include <chrono>
#include <span>
#include <vector>

#include "common/wire/control.h"

namespace fargpu::server {

Output::Output(rpc::Responder& responder, CapturedOutput& captured, const PrintingCode& code,
               uint64_t max_bulk_bytes)
    : responder_(responder),
      captured_(captured),
      code_(code),
      piece_bytes_(std::min<uint64_t>(max_bulk_bytes, 1u << 20)) {}

// Asking whether there is anything costs a system call. What does not come from device code is in
// no hurry, and hardly anything ever comes to stderr but what goes with an error: in between it is
// enough to look now and then.
Status Output::flush() {
  constexpr auto kNowAndThen = std::chrono::milliseconds(100);
  if (copies_) copies_();
  const auto now = transport::Clock::now();
  const bool looks = now - looked_at_ >= kNowAndThen;
  if (looks || may_come()) FARGPU_RETURN_IF_ERROR(send(captured_.out, wire::kOutput));
  if (!looks) return Status();
  looked_at_ = now;
  return send(captured_.err, wire::kErrorOutput);
}

// A transport that fails is noticed by the executor.
void Output::before_error() {
  (void)send(captured_.out, wire::kOutput);
  (void)send(captured_.err, wire::kErrorOutput);
}

Status Output::send(OutputCapture& capture, uint16_t opcode) {
  while (true) {
    const std::vector<std::byte> bytes = capture.take(piece_bytes_);
    if (bytes.empty()) return Status();
    const std::span<const std::byte> piece(bytes);
    ++notices_;
    FARGPU_RETURN_IF_ERROR(
        rpc::Responder::Frame(responder_, opcode, 0).send(0, std::span(&piece, 1)));
  }
}

}  // namespace fargpu::server
