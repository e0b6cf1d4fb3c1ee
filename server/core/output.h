// Output: output that the client must receive before it learns the GPU's progress: bytes of
// finished copies to the host, and output of device code and driver. One thread (the executor's).
#pragma once

#include <cstdint>
#include <functional>

#include "common/base/status.h"
#include "common/rpc/responder.h"
#include "common/transport/transport.h"
#include "server/core/output_capture.h"
#include "server/core/printing_code.h"

namespace fargpu::server {

class Output {
 public:
  // All outlive this. `max_bulk_bytes`: most that one frame to the client may carry.
  Output(rpc::Responder& responder, CapturedOutput& captured, const PrintingCode& code,
         uint64_t max_bulk_bytes);
  // `copies` sends the bytes of copies that are done.
  void flush_first(std::function<void()> copies) { copies_ = std::move(copies); }

  // Whether the driver must be made to write the output of device code.
  bool may_come() const { return code_.may_print(); }
  // Sends it: before the reply of a synchronising call.
  Status flush();
  // Before an error is answered: the driver's output about it is sent to the client first.
  void before_error();
  // A notice with bytes of a copy is being sent.
  void count_notice() { ++notices_; }
  // How many notices with either the session has had.
  uint32_t notices() const { return notices_; }

 private:
  // Sends captured output in notices of this opcode.
  Status send(OutputCapture& capture, uint16_t opcode);

  rpc::Responder& responder_;
  CapturedOutput& captured_;
  const PrintingCode& code_;
  const uint64_t piece_bytes_;
  std::function<void()> copies_;
  uint32_t notices_ = 0;
  transport::Clock::time_point looked_at_{};
};

}  // namespace fargpu::server
