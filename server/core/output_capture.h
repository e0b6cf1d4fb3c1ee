// The driver's output on this process's stdout (device printf) and stderr (a failed device-side
// assert): each is a file in memory here, so that writing never blocks (a pipe would, inside the
// driver, on the only thread that could empty it).
//
// install() once for each, before the driver is opened. take() on the executor's thread; writers
// may be any of the driver's threads.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/fd.h"
#include "common/base/status.h"

namespace fargpu::server {

class OutputCapture {
 public:
  // Nothing is captured: for tests.
  OutputCapture() = default;
  // Descriptor 1 or 2, and the stdio stream over it, from now on.
  static Result<OutputCapture> install(int descriptor);

  // The next bytes written, at most `limit`; empty when there are none. Of more than kMostWaiting
  // bytes the oldest are dropped, and a line says so.
  std::vector<std::byte> take(size_t limit);
  static constexpr uint64_t kMostWaiting = 64u << 20;

  int descriptor() const { return file_.get(); }

 private:
  explicit OutputCapture(Fd file) : file_(std::move(file)) {}
  Fd file_;
  uint64_t taken_ = 0;  // bytes from the beginning of the file that are gone
};

// Both of a worker.
struct CapturedOutput {
  OutputCapture out;
  OutputCapture err;
};

// Captures stdout and stderr. Our own log, and that of a simulated driver, goes on to where stderr
// led; so does the end of the captured output when the process aborts, since a library writes its
// reason there.
Result<CapturedOutput> capture_output();

}  // namespace fargpu::server
