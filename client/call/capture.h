// What a call has to do with stream captures, as generated entries ask it before anything else of
// the call happens: `capture` of the description (schema/README.md). Implemented in client/capture.
//
// Any thread. Costs a load while nothing is captured.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>

namespace fargpu::client::capture {

// The captures of the process that have begun and not ended.
inline constinit std::atomic<unsigned> open{0};
inline bool any() { return open.load(std::memory_order_relaxed) != 0; }

// By the names of the description.
enum class Class : uint8_t {
  kFree,  // of calls that have a stream
  kCaptured,
  kCapturedUnsafe,
  kUnsafe,
  kRefused,
  kForbidden,
  kForbiddenUnsafe,
  kForbiddenEverywhere,
  kImplicit,
};

struct Judgement {
  CUresult result = CUDA_SUCCESS;  // else the call fails with it; captures have ended as they must
  bool captured = false;           // the call becomes part of a graph: captured_cuX() does it
};

// `operand`: the call's stream; of kUnsafe its event, if it has one; of kForbiddenEverywhere its
// context. nullptr: the default stream, none, the current context.
Judgement judge(Class of_call, const void* operand);

}  // namespace fargpu::client::capture
