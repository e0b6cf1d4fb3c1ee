#include "client/manual/stream/stream_wait.h"

#include "client/entry/call.h"
#include "client/entry/known_done.h"
#include "client/entry/streams.h"
#include "client/entry/to_wire.h"
#include "client/hostmem/stream_words.h"
#include "client/process/session.h"
#include "client/transfer/submission.h"
#include "common/rpc/thread_calls.h"
#include "common/wire/fixed_message.h"
#include "generated/client/work/stream.h"
#include "generated/schema/internal.capnp.h"
#include "generated/schema/opcodes.h"

namespace fargpu::client {
namespace {

CUresult wait_by_word(Session& session, uint16_t context, CUstream stream,
                      StreamWords::Word& word) {
  return without_exception([&]() -> CUresult {
    Synchronisation done(session, context, Synchronisation::Of::kStream, stream);
    if (done.result() != CUDA_SUCCESS) {
      word.ended_well();  // nothing was sent
      return done.result();
    }
    const transport::WatchedWord watched = word.watched();
    wire::FixedMessage<schema::FgStreamSynchronizeParams> message;
    auto params = message.root();
    params.setStream(done.stream());
    params.setWord(word.address());
    params.setOnDevice(word.device_address());
    params.setValue(watched.value);
    rpc::Reply reply;
    const Status answered = session.channel().call_body(schema::op_fgStreamSynchronize, context,
                                                        message.bytes(), reply, &watched);
    if (!answered.ok()) return from_status(answered);
    if (reply.result != CUDA_SUCCESS) return static_cast<CUresult>(reply.result);
    word.ended_well();
    return done.finish();
  });
}

// Null: the wait ends by its reply.
std::shared_ptr<StreamWords> words_for(Session& session, CUstream stream) {
  // Then only the reply would do, and what registers memory may wait for a function; calls that are
  // counted are to look as over any link.
  if (session.awaits_notices() || rpc::counted() || green_of(stream) != nullptr) return nullptr;
  Context* const owner = context_of(stream);
  if (owner == nullptr || owner->session != &session) return nullptr;
  return session.stream_words.get(*owner);
}

}  // namespace

CUresult wait_for_stream(Session& session, uint16_t context, CUstream stream) {
  if (is_known_done(session, context, stream)) return CUDA_SUCCESS;
  const KnownDone known(session);
  const auto words = words_for(session, stream);
  StreamWords::Word word(words.get());
  const CUresult result = word ? wait_by_word(session, context, stream, word)
                               : call_cuStreamSynchronize(session, context, stream);
  if (result == CUDA_SUCCESS) known.waited(context, stream);
  return result;
}

}  // namespace fargpu::client
