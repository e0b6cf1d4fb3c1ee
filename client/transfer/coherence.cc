#include "client/transfer/coherence.h"

#include <algorithm>
#include <vector>

#include "client/entry/call_target.h"
#include "client/transfer/exposure.h"

namespace fargpu::client {
namespace {

class ChannelWire final : public Pages::Wire {
 public:
  explicit ChannelWire(Session& session) : session_(session) {}
  size_t limit() const override { return std::min<uint64_t>(session_.piece_bytes(), kMost); }
  CUresult push(std::span<const std::byte> runs) override {
    return call_fgPagesPush(session_, 0, runs.data(), runs.size());
  }
  CUresult fetch(uint64_t from, std::span<std::byte> buffer, Fetched* fetched) override {
    unsigned long long next = 0, pushes = 0;
    const CUresult result = call_fgPagesFetch(session_, 0, from, buffer.size(), &next, &pushes,
                                              &fetched->bytes, buffer.data());
    fetched->next = next;
    fetched->pushes = pushes;
    return result;
  }

 private:
  // Enough to fill a link.
  static constexpr size_t kMost = 4u << 20;
  Session& session_;
};

// Exposed memory may hold pointers to memory that is hidden yet: lists, tables. That is exposed and
// sent, too, until nothing new is found.
CUresult push_all(Session& session, ChannelWire& wire) {
  constexpr uint64_t kWord = sizeof(uint64_t);
  while (session.hidden_memory.any()) {
    std::vector<uint64_t> found;
    CUresult result = session.pages.push(
        wire,
        [&](uint64_t address, std::span<const std::byte> bytes) {
          const size_t skip = (kWord - address % kWord) % kWord;
          if (skip >= bytes.size()) return;
          session.hidden_memory.scan(bytes.data() + skip, bytes.size() - skip, [&](uint64_t base) {
            if (found.empty()) session.exposures.begin();
            found.push_back(base);
          });
        },
        [&] { return found.empty() && session.exposures.none(); });
    if (found.empty()) {
      if (result != CUDA_SUCCESS || session.exposures.none()) return result;
      session.exposures.wait_for_others();
      return session.pages.push(wire);
    }
    for (const uint64_t base : found) {
      if (result == CUDA_SUCCESS) result = expose_region_at(session, base);
    }
    session.exposures.end();
    if (result != CUDA_SUCCESS) return result;
  }
  return session.pages.push(wire);
}

}  // namespace

CUresult before_wait(Session& session) {
  if (!session.pages.any()) [[likely]]
    return CUDA_SUCCESS;
  ChannelWire wire(session);
  return push_all(session, wire);
}

CUresult after_synchronisation(Session& session, std::optional<uint64_t> done) {
  if (!session.pages.any()) [[likely]]
    return CUDA_SUCCESS;
  ChannelWire wire(session);
  return session.pages.pull(wire, done);
}

void before_context_ends(Session& session, const Context& context) {
  if (!session.pages.any()) return;
  (void)call_cuCtxSynchronize(session, context.wire_id);
}

std::optional<uint64_t> idle_mark(Session& session) {
  if (session.contexts.activated() != 1) return std::nullopt;
  return session.pages.mark();
}

}  // namespace fargpu::client
