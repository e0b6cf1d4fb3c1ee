// Where in the program the calling thread makes a call of the driver, for reports. No lock is held
// while Python is asked, and none of Python's is waited for: a thread that gave its GIL away is
// looked at without it (python_dump.h).
//
// Any thread, on its way out of a call. A look costs microseconds: see docs/tools.md.
#pragma once

#include <string>

namespace fargpu::client::where {

struct CallSite {
  // "train.py:88 in step" of Python, "app: step(float)" or "app+0x12ab" of native code.
  std::string text;
  // The innermost line of Python, where that is a library's: "torch/_tensor.py:12 in item".
  std::string library;
};

// Once, before the first look.
void start();
CallSite here();
// In a forked child, whose other threads do not exist.
void forget_after_fork();

}  // namespace fargpu::client::where
