// The worker's side of one region of mapped memory.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <utility>
#include <vector>

#include "client/hostmem/block_states.h"
#include "common/pages/agreement.h"
#include "common/pages/byte_runs.h"
#include "common/wire/slot_message.h"
#include "generated/schema/internal.capnp.h"
#include "generated/schema/opcodes.h"
#include "tests/client/loopback_link.h"

namespace fargpu::client {

class PagesWorker {
 public:
  // `on_demand`: fetches of everything leave the region out.
  PagesWorker(uint64_t address, size_t bytes, bool on_demand = false)
      : on_demand_(on_demand),
        memory_(bytes),
        agreed_(address, bytes),
        link([this](rpc::Responder& responder, const test::ReceivedFrame& request) {
          return serve(responder, request);
        }) {}

  // As they are when all that was sent has come.
  std::vector<std::byte>& memory() {
    link.settle();
    return memory_;
  }
  size_t pushed() {  // bytes
    link.settle();
    return pushed_;
  }
  std::vector<size_t> pushed_at() {  // where runs began, as offsets; since the last call
    link.settle();
    return std::exchange(pushed_at_, {});
  }
  bool is_always_fetched() const { return !on_demand_; }

  std::vector<std::pair<size_t, size_t>> parts;  // that were fetched: first block, whole blocks
  size_t fetches = 0;                            // of everything
  std::atomic<int32_t> result{CUDA_SUCCESS};     // of what is answered
  // For the next fetch, once: before the worker looks at its memory, and when the answer is made.
  std::function<void()> before_look, before_reply;

 private:
  Status serve(rpc::Responder& responder, const test::ReceivedFrame& request) {
    wire::SegmentReader body(request.body);
    switch (request.header.opcode) {
      case schema::op_fgPagesPush:
      case schema::op_fgPagesPushChanges:
        take(request.bulk, request.header.opcode == schema::op_fgPagesPushChanges);
        return Status();
      case schema::op_fgPagesOnDemand:
        on_demand_ = body.getRoot<schema::FgPagesOnDemandParams>().getOnDemand() != 0;
        return responder.reply(request.header, result);
      case schema::op_fgPagesFetch: {
        const auto fetch = body.getRoot<schema::FgPagesFetchParams>();
        const uint64_t from = fetch.getFrom() == 0 ? agreed_.address() : fetch.getFrom();
        ++fetches;
        return give<schema::FgPagesFetchResults>(responder, request.header, from, end(),
                                                 on_demand_ ? 0 : fetch.getMaxBytes());
      }
      case schema::op_fgPagesFetchPart: {
        const auto part = body.getRoot<schema::FgPagesFetchPartParams>();
        parts.emplace_back((part.getAddress() - agreed_.address()) / BlockStates::kBlock,
                           part.getBytes() / BlockStates::kBlock);
        return give<schema::FgPagesFetchPartResults>(responder, request.header, part.getAddress(),
                                                     part.getAddress() + part.getBytes(),
                                                     part.getMaxBytes());
      }
      default:
        return responder.reply(request.header, CUDA_ERROR_NOT_SUPPORTED);
    }
  }
  void take(std::span<const std::byte> runs, bool gaps) {
    ++pushes_;
    pages::RunReader reader(runs);
    while (const auto run = reader.next()) {
      const size_t offset = run->address - agreed_.address();
      const auto agreed = agreed_.contents(offset, run->data.size());
      for (size_t i = 0; i < run->data.size(); ++i) {
        if (!gaps || run->data[i] != agreed[i]) memory_[offset + i] = run->data[i];
      }
      agreed_.agree(*run);
      pushed_ += run->data.size();
      pushed_at_.push_back(run->address - agreed_.address());
    }
  }
  // Nothing with most == 0.
  template <typename Results>
  Status give(rpc::Responder& responder, const wire::FrameHeader& header, uint64_t from,
              uint64_t until, size_t most) {
    if (before_look) std::exchange(before_look, nullptr)();
    pages::RunWriter runs(most);
    uint64_t reached = until;
    if (most != 0)
      reached = agreed_.address() + agreed_.collect(memory_.data(), from - agreed_.address(),
                                                    until - agreed_.address(), runs);
    if (before_reply) std::exchange(before_reply, nullptr)();
    rpc::Responder::Frame reply(responder, header, 256);
    auto results = reply.init<Results>();
    results.setNext(reached < until ? reached : 0);
    results.setPushes(pushes_);
    results.setRunsBytes(runs.bytes().size());
    const std::span<const std::byte> bulk[] = {runs.bytes()};
    return reply.send(result, bulk);
  }
  uint64_t end() const { return agreed_.address() + agreed_.bytes(); }

  // Of the script's thread, and of others after link.settle().
  std::atomic<bool> on_demand_;
  std::vector<std::byte> memory_;
  pages::Agreement agreed_;
  uint64_t pushes_ = 0;
  size_t pushed_ = 0;
  std::vector<size_t> pushed_at_;

 public:
  LoopbackLink link;  // ends first
};

}  // namespace fargpu::client
