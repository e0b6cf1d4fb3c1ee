#include "client/transfer/coherence.h"

#include <chrono>
#include <thread>
#include <vector>

#include "client/entry/call_target.h"
#include "client/entry/streams.h"
#include "client/transfer/exposure.h"
#include "common/host/thread.h"

namespace fargpu::client {
namespace {

// Exposed memory may hold pointers to memory that is hidden yet: lists, tables. That is exposed and
// sent, too, until nothing new is found. Every push looks, since what one thread has sent is not
// new to another.
CUresult push_all(Session& session) {
  constexpr uint64_t kWord = sizeof(uint64_t);
  for (;;) {
    std::vector<uint64_t> found;
    // What all pushes have found by now is exposed and was sent. Asked inside of the push: what
    // another thread exposes afterwards has yet to be sent.
    bool is_all = false;
    CUresult result = session.pages.push(
        [&](uint64_t address, std::span<const std::byte> bytes) {
          const size_t skip = (kWord - address % kWord) % kWord;
          if (skip >= bytes.size()) return;
          session.hidden_memory.scan(bytes.data() + skip, bytes.size() - skip, [&](uint64_t base) {
            if (found.empty()) session.exposures.begin();
            found.push_back(base);
          });
        },
        [&] { return is_all = found.empty() && session.exposures.none(); });
    if (found.empty()) {
      if (result != CUDA_SUCCESS || is_all) return result;
      // What others have exposed may hold further pointers.
      if (session.exposures.wait_for_others()) continue;
      return session.pages.push();
    }
    for (const uint64_t base : found) {
      if (result == CUDA_SUCCESS) result = expose_region_at(session, base);
    }
    session.exposures.end();
    if (result != CUDA_SUCCESS) return result;
  }
}

void send_values(Session& session) {
  constexpr auto kLookEvery = std::chrono::milliseconds(1);
  for (;; std::this_thread::sleep_for(kLookEvery)) {
    session.value_waits.await();
    if (session.pages.any_word_changed() && before_wait(session) == CUDA_SUCCESS)
      (void)session.channel().flush();
  }
}

}  // namespace

CUresult before_wait(Session& session) {
  if (!session.observers.any(Observers::kMirrors)) [[likely]]
    return CUDA_SUCCESS;
  return push_all(session);
}

CUresult after_synchronisation(Session& session, std::optional<uint64_t> done) {
  if (!session.observers.any(Observers::kMirrors)) [[likely]]
    return CUDA_SUCCESS;
  return session.pages.pull(done);
}

void watch_values(Session& session, CUstream stream) {
  if (session.value_waits.add(StreamMark(session, stream).queue()))
    Thread([&session] { send_values(session); }).detach();  // as long as the process
}

void before_context_ends(Session& session, const Context& context) {
  if (!session.observers.any(Observers::kMirrors)) return;
  (void)await_context(session, context.wire_id);
  (void)session.pages.keep_all_open(context.wire_id);
}

std::optional<uint64_t> idle_mark(Session& session) {
  if (session.contexts.activated() != 1) return std::nullopt;
  return session.pages.mark();
}

}  // namespace fargpu::client
