// StreamState: what the client knows of one stream of the worker.
//
// The record of a stream has one, and so has each context for its legacy stream. It is shared with
// what is under way, because a stream may be destroyed while a thread waits for room in it. What a
// capture adds to a stream belongs here.
#pragma once

#include <memory>

#include "client/stream/queue_limit.h"
#include "client/stream/stream_queue.h"

namespace fargpu::client {

struct StreamState {
  StreamQueue queue;        // how far the application is ahead of the GPU
  QueueLimit::Share share;  // operations that may be waiting behind host functions

  // The queue as marks hold it: with the state.
  static std::shared_ptr<StreamQueue> queue_of(const std::shared_ptr<StreamState>& state) {
    return {state, &state->queue};
  }
};

}  // namespace fargpu::client
