// The wait for a stream: by the worker's reply, and by a word that the stream itself writes where
// that can tell earlier (client/memory/stream_words.h).
#pragma once

#include <cuda.h>

#include <memory>

#include "client/entry/call_target.h"
#include "client/memory/stream_words.h"

namespace fargpu::client {

// What cuStreamSynchronize does. Any thread.
CUresult wait_for_stream(Session& session, uint16_t context, CUstream stream);

// The words for a wait for `stream`; null: it ends by its reply.
std::shared_ptr<StreamWords> words_for(Session& session, CUstream stream);
// The same as wait_for_stream(), with a word that there is.
CUresult wait_by_word(Session& session, uint16_t context, CUstream stream, StreamWords::Word& word);

}  // namespace fargpu::client
