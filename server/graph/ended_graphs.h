// EndedGraphs: executable graphs that the client has destroyed, or that have ended with their
// context, while a launch was under way or host functions were outstanding.
//
// A driver may wait in cuGraphExecDestroy: for a launch that is under way, and for streams that are
// held, be it by a function or by a copy whose bytes are to come (seen on an H200 with driver 580).
// The executor, which lets functions go on and copies begin, must not sit there. So such a graph is
// destroyed on a helper thread, when its last launch has ended and no stream is held
// (stream_holds.h). Two kinds do not wait for that moment, which a program may never reach: graphs
// that the worker edits (graph_base.h), since a driver makes no second executable graph of these
// before the end of the first, and graphs beyond kMostKept. They go once the functions that were
// outstanding have returned.
//
// All on the executor's thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "server/core/core.h"
#include "server/graph/executable_graph.h"
#include "server/object/object_end.h"
#include "server/stream/completion.h"
#include "server/stream/host_gate.h"

namespace fargpu::server {

class StreamHolds;

class EndedGraphs {
 public:
  static constexpr size_t kMostKept = 64;
  // While no function is outstanding, and copies hold streams at any time.
  static constexpr size_t kMostUnheld = 1024;
  // Of when_gone().
  static constexpr std::chrono::milliseconds kPatience{500};

  EndedGraphs(const Core& core, const HostGate& gate, const StreamHolds& holds,
              Completion& completion)
      : core_(core), gate_(gate), holds_(holds), completion_(completion) {}
  EndedGraphs(const EndedGraphs&) = delete;
  EndedGraphs& operator=(const EndedGraphs&) = delete;

  // `graph`, which lived in `context` (0: in none), is in no table any more.
  void add(uint16_t context, std::shared_ptr<ExecutableGraph> graph);
  // A host function has returned, or will not run.
  void look();
  // `work` runs when the driver has no added executable graph of `base` any more. After kPatience a
  // helper thread destroys them, although work may run.
  void when_gone(std::shared_ptr<GraphBase> base, std::function<void()> work);
  // Graphs of the context are destroyed before the driver's context.
  void context_ended(ContextEnd& end);
  size_t count() const { return kept_.size(); }

 private:
  struct Kept {
    uint16_t context;
    uint64_t newest;  // function that was outstanding
    std::shared_ptr<ExecutableGraph> graph;
    std::shared_ptr<bool> launch_ended;
  };
  // Says when the last launch has ended.
  std::shared_ptr<bool> follow_launch(const ExecutableGraph& graph);
  void end_beside(const std::shared_ptr<ExecutableGraph>& graph);
  // All whose launches have ended, when no stream is held.
  void end_unheld();

  const Core core_;
  const HostGate& gate_;
  const StreamHolds& holds_;
  Completion& completion_;
  std::vector<Kept> kept_;    // oldest first
  std::vector<Kept> unheld_;  // that a helper thread ends
  bool ends_unheld_ = false;  // it does, or will
};

}  // namespace fargpu::server
