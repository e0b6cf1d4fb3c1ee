// What device code prints: the driver writes it to this process's stdout, which is a file in memory
// here, so that writing never blocks (a pipe would, inside the driver, on the only thread that
// could empty it).
//
// install() once, before the driver is opened. take() on the executor's thread; writers may be any
// of the driver's threads.
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
  // stdout (descriptor 1, and the stdio stream) from now on.
  static Result<OutputCapture> install();

  // The next bytes printed, at most `limit`; empty when there are none.
  std::vector<std::byte> take(size_t limit);

 private:
  explicit OutputCapture(Fd file) : file_(std::move(file)) {}
  Fd file_;
  uint64_t taken_ = 0;  // bytes from the beginning of the file that are gone
};

}  // namespace fargpu::server
