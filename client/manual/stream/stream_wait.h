// The wait for a stream: by the worker's reply, and by a word that the stream itself writes where
// that can tell earlier (client/hostmem/stream_words.h).
#pragma once

#include <cuda.h>

#include "client/entry/call_target.h"

namespace fargpu::client {

// The implementation of cuStreamSynchronize. Any thread.
CUresult wait_for_stream(Session& session, uint16_t context, CUstream stream);

}  // namespace fargpu::client
