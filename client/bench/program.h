// A fargpu-measure process that answers questions, one at a time. One thread.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "client/bench/figures/exchange.h"
#include "common/base/fd.h"

namespace fargpu::bench {

using Deadline = std::chrono::steady_clock::time_point;

class Program final {
 public:
  // Starts `command` (a path and its arguments) with exactly these variables, and reads its first
  // line. kSystem: it cannot be started; kNotFound: it says that it cannot measure (the reason is
  // the message); the errors of ask().
  using Environment = std::map<std::string, std::string>;
  static Result<Program> start(const std::vector<std::string>& command,
                               const Environment& environment, Deadline deadline);
  Program(Program&& other) noexcept;
  Program& operator=(Program&&) = delete;
  ~Program();  // its input ends; a process that does not end then is killed

  // The program's data about itself.
  const Json& about() const { return about_; }
  // kLost: it died; kTimeout: it did not answer, and is killed; kDriver: it says why it failed.
  // After the first two, only its end is left.
  Result<Answer> ask(const Question& question, Deadline deadline);

 private:
  Program() = default;
  Result<Json> read_line(Deadline deadline);
  Status write_line(const std::string& line);

  pid_t pid_ = -1;
  Fd input_, output_;
  std::string read_;  // and not yet part of a line
  Json about_;
};

}  // namespace fargpu::bench
