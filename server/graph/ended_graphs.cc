#include "server/graph/ended_graphs.h"

#include <utility>

namespace fargpu::server {

void EndedGraphs::add(uint16_t context, std::shared_ptr<ExecutableGraph> graph) {
  if (!gate_.outstanding()) return;  // it goes with the caller
  graph->note_ending();
  kept_.push_back({context, gate_.newest(), std::move(graph)});
}

void EndedGraphs::look() {
  if (kept_.empty()) return;
  if (!gate_.outstanding()) {
    // Out of the list first: the end of a graph may be that of other objects.
    const auto gone = std::exchange(kept_, {});
    return;
  }
  const uint64_t oldest = gate_.oldest_outstanding();
  size_t excess = kept_.size() > kMostKept ? kept_.size() - kMostKept : 0;
  std::erase_if(kept_, [&](Kept& kept) {
    const bool goes = (excess > 0 || kept.graph->is_edited()) && kept.newest < oldest;
    if (!goes) return false;
    if (excess > 0) --excess;
    end_beside(kept.graph);
    return true;
  });
}

void EndedGraphs::end_beside(const std::shared_ptr<ExecutableGraph>& graph) {
  completion_.off_thread(
      0, [graph] { return graph->end(); }, [graph](CUresult) {});
}

void EndedGraphs::when_gone(std::shared_ptr<GraphBase> base, std::function<void()> work) {
  using Clock = std::chrono::steady_clock;
  core_.pending.add([this, base = std::move(base), work = std::move(work),
                     latest = Clock::now() + kPatience, hurried = false]() mutable {
    if (!base->has_ending()) {
      work();
      return true;
    }
    if (hurried || Clock::now() < latest) return false;
    hurried = true;
    std::erase_if(kept_, [&](Kept& kept) {
      if (!kept.graph->uses(*base)) return false;
      end_beside(kept.graph);
      return true;
    });
    return false;
  });
}

void EndedGraphs::context_ended(ContextEnd& end) {
  std::erase_if(kept_, [&](Kept& kept) {
    if (kept.context != end.id) return false;
    end.withdrawals.push_back([graph = std::move(kept.graph)] { (void)graph->end(); });
    return true;
  });
}

}  // namespace fargpu::server
