// StreamState: the client's state of one stream of the worker.
//
// The record of a stream has one, and so has each context for its legacy stream. Pending operations
// share it, because a stream may be destroyed while a thread waits for space in it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "client/stream/functions_ahead.h"
#include "client/stream/host_turns.h"
#include "client/stream/queue_limit.h"
#include "client/stream/stream_queue.h"

namespace fargpu::client {

struct StreamState {
  StreamQueue queue;                      // how far the application is ahead of the GPU
  QueueLimit::Share share;                // operations that may be waiting behind host functions
  std::atomic<uint64_t> capture{0};       // the capture that it takes part in; 0: none
  std::atomic<bool> non_blocking{false};  // the legacy stream and it do not wait for each other
  HostTurns::Share turns;                 // changes from host functions to device work
  // Of a stream that does not wait for the legacy stream; of that one, those of all that do.
  FunctionsAhead functions;

  // The queue as marks hold it: with the state.
  static std::shared_ptr<StreamQueue> queue_of(const std::shared_ptr<StreamState>& state) {
    return {state, &state->queue};
  }
  // Likewise as functions hold it.
  static std::shared_ptr<HostTurns::Share> turns_of(const std::shared_ptr<StreamState>& state) {
    return {state, &state->turns};
  }
};

}  // namespace fargpu::client
