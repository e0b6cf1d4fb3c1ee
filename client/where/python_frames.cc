#include "client/where/python_frames.h"

namespace fargpu::client::where {
namespace {

constexpr int kDeepest = 256;

// A reference that is given back.
class Owned {
 public:
  Owned(const PythonApi& api, PyObject* object) : api_(api), object_(object) {}
  ~Owned() {
    if (object_ != nullptr) api_.decrease(object_);
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;

  PyObject* get() const { return object_; }
  void replace(PyObject* with) {
    if (object_ != nullptr) api_.decrease(object_);
    object_ = with;
  }

 private:
  const PythonApi& api_;
  PyObject* object_;
};

// Python 3.11 makes objects of frames as they are asked for, and its collector runs wherever an
// object is made: finalizers of the program would run inside of this call, and give the GIL away.
class NoCollector {
 public:
  explicit NoCollector(const PythonApi& api)
      : api_(api), was_on_(api.stop_collector != nullptr && api.stop_collector() != 0) {}
  ~NoCollector() {
    if (was_on_) api_.start_collector();
  }
  NoCollector(const NoCollector&) = delete;
  NoCollector& operator=(const NoCollector&) = delete;

 private:
  const PythonApi& api_;
  const bool was_on_;
};

// As faulthandler writes it: one place has one name.
std::string text_of(const PythonApi& api, PyObject* object, const char* name) {
  const Owned value(api, api.attribute(object, name));
  if (value.get() == nullptr) return "?";
  const Owned ascii(api, api.encode(value.get(), "ascii", "backslashreplace"));
  const char* const text = ascii.get() != nullptr ? api.bytes(ascii.get()) : nullptr;
  return text != nullptr ? text : "?";
}

Frame read(const PythonApi& api, PyObject* frame) {
  const Owned code(api, api.code(frame));
  const int line = api.line(frame);
  return {text_of(api, code.get(), "co_filename"), line > 0 ? static_cast<uint32_t>(line) : 0,
          text_of(api, code.get(), "co_name")};
}

}  // namespace

std::optional<std::vector<Frame>> frames_with_gil(const PythonApi& api) {
  if (api.frame_of == nullptr || api.error() != nullptr) return std::nullopt;
  const NoCollector quiet(api);
  std::vector<Frame> frames;
  Owned frame(api, api.frame_of(api.current()));
  while (frame.get() != nullptr && frames.size() < kDeepest) {
    frames.push_back(read(api, frame.get()));
    if (!is_library(frames.back().file)) break;
    frame.replace(api.back(frame.get()));
  }
  if (api.error() != nullptr) api.clear_error();  // of ours: memory ran out, a name is no text
  return frames;
}

}  // namespace fargpu::client::where
