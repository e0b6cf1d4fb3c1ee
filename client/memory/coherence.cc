#include "client/memory/coherence.h"

#include <algorithm>

#include "client/manual/common.h"

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

}  // namespace

Submission::Submission(Session& session) : session_(session) {
  if (!session.pages.any()) [[likely]]
    return;
  // Counted first: from its push on, the work may change what a pull has to bring.
  session.pages.begin_work();
  counted_ = true;
  ChannelWire wire(session);
  result_ = session.pages.push(wire);
}

Submission::~Submission() {
  if (counted_) session_.pages.end_work();
}

CUresult after_synchronisation(Session& session, std::optional<uint64_t> done) {
  if (!session.pages.any()) [[likely]]
    return CUDA_SUCCESS;
  ChannelWire wire(session);
  return session.pages.pull(wire, done);
}

void before_context_ends(Session& session, const Context& context) {
  if (!session.pages.any()) return;
  if (call_cuCtxSynchronize(session, context.wire_id) == CUDA_SUCCESS)
    (void)after_synchronisation(session);
}

std::optional<uint64_t> idle_mark(Session& session) {
  if (session.contexts.activated() != 1) return std::nullopt;
  return session.pages.mark();
}

}  // namespace fargpu::client
