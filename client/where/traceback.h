// A stack of Python as texts. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fargpu::client::where {

struct Frame {
  std::string file;
  uint32_t line = 0;
  std::string function;
};

// faulthandler's output for a thread, innermost frame first. Lines that are no frames, or that were
// cut, are left out.
std::vector<Frame> parse_traceback(std::string_view text);

// A file of Python itself or of an installed package, as its path says.
bool is_library(std::string_view file);

// "train.py:88 in step".
std::string to_text(const Frame& frame);
// The same; a library's file without the path up to site-packages, dist-packages or lib/python3.x.
std::string to_text_of_library(const Frame& frame);

}  // namespace fargpu::client::where
