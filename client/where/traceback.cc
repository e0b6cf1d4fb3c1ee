#include "client/where/traceback.h"

#include <charconv>
#include <optional>

namespace fargpu::client::where {
namespace {

constexpr std::string_view kBegin = "  File \"", kLine = "\", line ", kIn = " in ";

std::optional<Frame> parse_line(std::string_view line) {
  if (!line.starts_with(kBegin)) return std::nullopt;
  line.remove_prefix(kBegin.size());
  const size_t end = line.rfind(kLine);
  if (end == std::string_view::npos) return std::nullopt;
  Frame frame;
  frame.file = line.substr(0, end);
  line.remove_prefix(end + kLine.size());
  const auto [behind, error] = std::from_chars(line.data(), line.data() + line.size(), frame.line);
  if (error != std::errc()) return std::nullopt;
  line.remove_prefix(static_cast<size_t>(behind - line.data()));
  if (!line.starts_with(kIn)) return std::nullopt;
  frame.function = line.substr(kIn.size());
  return frame;
}

// Where the part begins that names the library's file; npos: it is none.
size_t begin_in_library(std::string_view file) {
  for (const std::string_view folder : {"/site-packages/", "/dist-packages/"}) {
    if (const size_t at = file.rfind(folder); at != std::string_view::npos)
      return at + folder.size();
  }
  // Python's own: .../lib/python3.12/threading.py.
  constexpr std::string_view kOwn = "/lib/python3.";
  const size_t at = file.rfind(kOwn);
  if (at == std::string_view::npos) return at;
  const size_t end = file.find('/', at + kOwn.size());
  return end == std::string_view::npos ? end : end + 1;
}

std::string to_text(std::string_view file, const Frame& frame) {
  return std::string(file) + ":" + std::to_string(frame.line) + " in " + frame.function;
}

}  // namespace

std::vector<Frame> parse_traceback(std::string_view text) {
  std::vector<Frame> frames;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    if (end == std::string_view::npos) break;  // it was cut
    if (auto frame = parse_line(text.substr(0, end))) frames.push_back(std::move(*frame));
    text.remove_prefix(end + 1);
  }
  return frames;
}

bool is_library(std::string_view file) {
  return file.starts_with("<frozen ") || begin_in_library(file) != std::string_view::npos;
}

std::string to_text(const Frame& frame) { return to_text(frame.file, frame); }

std::string to_text_of_library(const Frame& frame) {
  const std::string_view file = frame.file;
  const size_t begin = begin_in_library(file);
  return to_text(begin == std::string_view::npos ? file : file.substr(begin), frame);
}

}  // namespace fargpu::client::where
