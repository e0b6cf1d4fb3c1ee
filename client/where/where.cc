#include "client/where/where.h"

#include <optional>
#include <vector>

#include "client/where/native_call_site.h"
#include "client/where/python_dump.h"
#include "client/where/python_frames.h"

namespace fargpu::client::where {
namespace {

constexpr const char* kNotKnown = " (line of Python not known)";

// The innermost frame of the program's own; where there is none, the innermost.
CallSite call_site_of(const std::vector<Frame>& frames) {
  const Frame* own = &frames.front();
  for (const Frame& frame : frames) {
    if (is_library(frame.file)) continue;
    own = &frame;
    break;
  }
  CallSite site;
  site.text = is_library(own->file) ? to_text_of_library(*own) : to_text(*own);
  if (own != &frames.front()) site.library = to_text_of_library(frames.front());
  return site;
}

}  // namespace

void start() {
  begin_native();
  if (const PythonApi* const api = python_api(); api != nullptr && api->runs()) ask_for_dumps(*api);
}

CallSite here() {
  const PythonApi* const api = python_api();
  const bool in_python = api != nullptr && api->runs() && api->of_this_thread() != nullptr;
  std::optional<std::vector<Frame>> frames;
  if (in_python) {
    ask_for_dumps(*api);
    if (api->held()) frames = frames_with_gil(*api);
    if (!frames) frames = dumped_frames();
    if (frames && !frames->empty()) return call_site_of(*frames);
  }
  CallSite site;
  site.text = native_call_site();
  if (site.text.empty()) site.text = "a place that its stack does not tell";
  if (in_python && !frames) site.text += kNotKnown;
  return site;
}

void forget_after_fork() {
  forget_natives_after_fork();
  forget_dumps_after_fork();
}

}  // namespace fargpu::client::where
