#include "server/graph/ended_graphs.h"

#include <algorithm>
#include <utility>

#include "server/stream/stream_holds.h"

namespace fargpu::server {

void EndedGraphs::add(uint16_t context, std::shared_ptr<ExecutableGraph> graph) {
  auto launch_ended = follow_launch(*graph);
  // It goes with the caller.
  if (!gate_.outstanding() && *launch_ended && !holds_.any()) return;
  graph->note_ending();
  kept_.push_back({context, gate_.newest(), std::move(graph), std::move(launch_ended)});
  if (!gate_.outstanding()) end_unheld();
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
    end_unheld();
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

void EndedGraphs::end_unheld() {
  if (ends_unheld_) {  // look() follows
    while (kept_.size() > kMostUnheld && *kept_.front().launch_ended) {
      end_beside(kept_.front().graph);
      kept_.erase(kept_.begin());
    }
    return;
  }
  std::vector<std::shared_ptr<ExecutableGraph::Made>> made;
  std::erase_if(kept_, [&](Kept& kept) {
    if (!*kept.launch_ended) return false;
    made.push_back(kept.graph->made());
    unheld_.push_back(std::move(kept));
    return true;
  });
  if (made.empty()) return;
  ends_unheld_ = true;
  const auto end = [made = std::move(made)] {
    for (const auto& one : made) (void)one->end();
    return CUDA_SUCCESS;
  };
  const auto ended = [this](CUresult) {
    // Out of the list first: the end of a graph may be that of other objects.
    const std::vector<Kept> gone = std::exchange(unheld_, {});
    ends_unheld_ = false;
    look();
  };
  completion_.off_thread_exclusive(0, StreamHolds::kEveryDevice, end, ended);
}

void EndedGraphs::end_beside(const std::shared_ptr<ExecutableGraph>& graph) {
  completion_.off_thread(
      0, [made = graph->made()] { return made->end(); }, [graph](CUresult) {});
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
    const auto ends = [&](const Kept& kept) {
      if (!kept.graph->uses(*base)) return false;
      end_beside(kept.graph);
      return true;
    };
    std::erase_if(unheld_, ends);
    std::erase_if(kept_, ends);
    return false;
  });
}

void EndedGraphs::context_ended(ContextEnd& end) {
  const auto ends = [&](Kept& kept) {
    if (kept.context != end.id) return false;
    // With the graph: its last reference would end it here.
    end.withdrawals.push_back([graph = std::move(kept.graph)] { (void)graph->made()->end(); });
    return true;
  };
  std::erase_if(unheld_, ends);
  std::erase_if(kept_, ends);
}

}  // namespace fargpu::server
