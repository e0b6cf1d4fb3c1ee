// A small helper process; this process becomes the program by exec. The companion is not the
// program's child, is in no terminal and no process group of the program, and has none of its files
// open, or only its stderr.
#pragma once

#include <functional>
#include <string>

#include "common/base/fd.h"
#include "common/base/status.h"

namespace fargpu::cli {

class Companion {
 public:
  Companion(Fd program, Fd answer) : program_(std::move(program)), answer_(std::move(answer)) {}
  // Readable when the program has ended.
  const Fd& program() const { return program_; }
  // The result of start_companion() in the other process. Once.
  void answer(const Result<std::string>& result);
  void wait_for_the_program() const;

  enum class Stderr { kClose, kKeep };
  // Closes the program's descriptors, because readers of its pipes wait for their end. `name`
  // appears in lists of processes.
  void leave_the_program(const char* name, Stderr what);

 private:
  Fd program_, answer_;
};

// Whether start_companion() works here. Not where orphans become children of this process (the
// first of a container is the usual case): the companion would be a child of the program, which
// might wait for it for ever. Nor where the system has no pidfd_open(), or forbids it: the
// companion could not notice the program's end.
bool can_become_the_program();

// Runs `body` in a companion, which ends with it, and waits for its answer, of at most 2 KiB.
// kSystem: the companion could not be started, or died without an answer. Call while there is one
// thread.
Result<std::string> start_companion(const std::function<void(Companion&)>& body);

}  // namespace fargpu::cli
