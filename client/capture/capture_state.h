// Common state of the parts of captures: each capture's state, and the mutex that guards it.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "client/capture/captures.h"
#include "client/entry/streams.h"
#include "client/object/context.h"

namespace fargpu::client::capture {

struct Member {
  Context* context = nullptr;
  std::shared_ptr<StreamState> state;
  Position position;
};

struct Capture {
  uint64_t id = 0;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  uint64_t thread = 0;
  uint64_t origin = 0;  // the stream that began it
  CUgraph graph = nullptr;
  bool into_given = false;  // the graph is the application's
  bool active = true;
  std::map<uint64_t, Member> members;  // by stream
  // Captured nodes that no other one depends on: at the end the origin must have them all.
  std::vector<CUgraphNode> last;

  void leave();  // its streams are captured no more
};

struct All {
  std::mutex mutex;
  std::vector<std::unique_ptr<Capture>> captures;
  std::vector<CUgraph> abandoned;  // graphs of captures whose stream has been destroyed
  uint64_t ids = 0;                // a capture's id is never used again
};

All& all();
// A number that no other thread gets.
uint64_t this_thread();

// A stream as the application named it.
struct Named {
  uint64_t id = kLegacyStreamId;
  Context* context = nullptr;
  std::shared_ptr<StreamState> state;
  bool is_legacy() const { return id == kLegacyStreamId; }
  bool is_captured() const {
    return !is_legacy() && state->capture.load(std::memory_order_acquire) != 0;
  }
};

CUresult find(CUstream stream, Named* named);
Event* find_event(CUevent event);  // nullptr: there is none

// The mutex. Captures whose stream is no more end first; other streams have left theirs.
class Lock {
 public:
  Lock();

 private:
  const std::lock_guard<std::mutex> lock_;
};

// With it. nullptr: there is none.
Capture* with_id(uint64_t id);
Capture* of(const Named& stream);
// Whether the legacy stream of the context and the capture would wait for each other.
bool is_blocked(const Capture& capture, const Context* context);

}  // namespace fargpu::client::capture
