#include "server/graph/ended_graphs.h"

#include <algorithm>
#include <utility>

namespace fargpu::server {

void EndedGraphs::add(uint16_t context, std::shared_ptr<ExecutableGraph> graph) {
  auto launch_ended = follow_launch(*graph);
  if (!gate_.outstanding() && *launch_ended) return;  // it goes with the caller
  graph->note_ending();
  kept_.push_back({context, gate_.newest(), std::move(graph), std::move(launch_ended)});
}

std::shared_ptr<bool> EndedGraphs::follow_launch(const ExecutableGraph& graph) {
  const auto [context, stream] = graph.launched();
  auto ended = std::make_shared<bool>(true);
  if (context == 0 || core_.contexts.enter(context) != CUDA_SUCCESS) return ended;
  const auto streams = core_.handles.streams(context);
  const bool is_there = reinterpret_cast<uint64_t>(stream) <= kPerThreadStreamId ||
                        std::find(streams.begin(), streams.end(), stream) != streams.end();
  if (is_there && core_.driver.cuStreamQuery(stream) != CUDA_ERROR_NOT_READY) return ended;
  *ended = false;
  const auto note = [this, ended](CUresult) {
    *ended = true;
    look();
  };
  if (is_there)
    completion_.when(UntilPassed{context, stream}, note);
  else
    completion_.when_idle(context, note);
  return ended;
}

void EndedGraphs::look() {
  if (kept_.empty()) return;
  if (!gate_.outstanding()) {
    // Out of the list first: the end of a graph may be that of other objects.
    std::vector<Kept> gone;
    std::erase_if(kept_, [&](Kept& kept) {
      if (!*kept.launch_ended) return false;
      gone.push_back(std::move(kept));
      return true;
    });
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
