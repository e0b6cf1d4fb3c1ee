// Lines for the user of the program that runs on the simulated GPU: why code was refused, why a
// kernel failed. A real driver prints no such lines, and programs rarely show the error codes.
#pragma once

#include <string>
#include <string_view>

namespace fargpu::sim {

// One line. In a worker, stderr is that of the program's process at the client, so the line goes
// there (each text once, at most ProgramReport::kMostLines of a process), and into the log at level
// info; elsewhere into the log as an error. FARGPU_LOG=off silences it. Thread safe.
void report_to_program(std::string_view text);

// The lines to show. Not thread safe.
class ProgramReport {
 public:
  static constexpr size_t kMostLines = 50;
  static constexpr size_t kMostBytes = 1000;  // of a line
  // The text as one line, with its newline; empty: it has been shown, or there were too many.
  std::string next(std::string_view text);

 private:
  size_t lines_ = 0;
  std::string shown_;  // all lines
};

}  // namespace fargpu::sim
