// The front end's error about PTX that it cannot accept. One line for people, with the line of the
// PTX text.
#pragma once

#include <string>

namespace fargpu::sim::ptx {

struct Diagnostic {
  enum class Kind { kInvalid, kUnsupportedInstruction, kUnresolvedSymbol, kUnsupportedTarget };
  Kind kind = Kind::kInvalid;
  std::string message;
  int line = 0;  // 1-based
};

}  // namespace fargpu::sim::ptx
