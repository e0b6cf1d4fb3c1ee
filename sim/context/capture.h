// Stream capture, as far as streams and events know it: work of a stream that takes part in a
// capture becomes nodes of a graph (sim/graph/stream_capture.h).
//
// All captures are guarded by one mutex, that of Captures. It is locked before the mutex of all
// graphs.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

namespace fargpu::sim {

class Capture;
class Context;
struct Event;
struct GreenContext;
struct Stream;

// The position of an event that was recorded in a captured stream.
struct CapturedPlace {
  std::weak_ptr<Capture> capture;
  std::vector<CUgraphNode> nodes;
  std::vector<CUgraphEdgeData> data;
};

class Capture {
 public:
  explicit Capture(CUstreamCaptureMode mode);
  virtual ~Capture() = default;
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  // Adds a node for work of a stream that takes part.
  virtual CUresult add(const Stream& stream, CUgraphNodeParams& params,
                       std::span<const CUlaunchAttribute> attributes) = 0;
  virtual std::shared_ptr<CapturedPlace> place(const Stream& stream) const = 0;
  // The stream takes part from now on, behind the place.
  virtual void join(const std::shared_ptr<Stream>& stream, const CapturedPlace& place) = 0;

  const uint64_t id;
  const CUstreamCaptureMode mode;
  const uint64_t thread;    // that began it
  bool into_given = false;  // its graph is the application's
  bool valid = true;
  std::vector<std::shared_ptr<Stream>> streams;  // that take part; the first one began it
};

class Captures {
 public:
  static Captures& get();
  std::mutex& mutex() { return mutex_; }
  // Without the mutex: there is a capture.
  bool any() const { return count_.load(std::memory_order_acquire) != 0; }

  // --- with the mutex
  void add(std::shared_ptr<Capture> capture);
  void remove(Capture& capture);
  // Ends captures that streams of the context began; other captures with streams of the context
  // become invalid.
  void remove_of(const Context& context);
  // The capture that the stream takes part in, or nullptr.
  std::shared_ptr<Capture> of(const Stream& stream) const;
  // Whether there is one of a blocking stream of the context, for which the legacy stream waits;
  // they become invalid with `ends`.
  bool blocking(const Context& context, bool ends) const;
  // Whether a stream of the green context takes part in one; they become invalid with `ends`.
  bool of_green(const GreenContext& green, bool ends) const;

  // --- without it: the behaviour of a call during captures (`capture` in the description). An
  // error ends the captures that are in its way. `event`: that of the call; one that stands for a
  // place in a capture is refused for that.
  CUresult unsafe(CUevent event = nullptr);
  CUresult unsafe_or_legacy(CUstream stream);
  CUresult forbidden(CUstream stream, bool ends);
  CUresult forbidden_everywhere();
  CUresult implicit();
  CUresult legacy(CUstream stream);  // implicit() if it is the legacy stream
  bool captured(CUstream stream);

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<Capture>> list_;
  std::atomic<size_t> count_{0};
};

// The mode of the calling thread.
CUstreamCaptureMode& thread_capture_mode();

// For calls that put work into a stream. nullopt: the stream is not captured, and the work goes its
// way. CUDA_ERROR_STREAM_CAPTURE_IMPLICIT: the legacy stream beside a captured one. Otherwise the
// result of capture(Capture&), or that the capture was invalidated.
std::optional<CUresult> if_captured(const Context& context, const std::shared_ptr<Stream>& stream,
                                    const std::function<CUresult(Capture&)>& capture);
// The same for work that is one node; fill() describes it, and runs only if it is needed.
std::optional<CUresult> capture_node(const Context& context, const std::shared_ptr<Stream>& stream,
                                     CUgraphNodeType type,
                                     const std::function<void(CUgraphNodeParams&)>& fill,
                                     std::span<const CUlaunchAttribute> attributes = {});

// cuStreamWaitEvent for an event that was recorded in a captured stream, or in one. nullopt: an
// ordinary wait.
std::optional<CUresult> captured_wait(const Context& context, const std::shared_ptr<Stream>& stream,
                                      Event& event);
// The answer to a query of an event with a position in a capture.
CUresult asked_place(const CapturedPlace& place, bool ends);
// The end of a stream ends its captures, and so does the end of a context.
void end_captures_of(const Stream& stream);
void end_captures_of(const Context& context);

// While one of these lives, the calling thread's work is not captured.
class BesideCaptures {
 public:
  BesideCaptures();
  ~BesideCaptures();
  BesideCaptures(const BesideCaptures&) = delete;
  BesideCaptures& operator=(const BesideCaptures&) = delete;
};

}  // namespace fargpu::sim
