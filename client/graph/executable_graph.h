// Executable graphs: the client's record of an executable graph of the server, and the calls about
// it. A launch is one small frame; it names the host calls of its host nodes.
//
// Any thread. Changes of one executable graph, and launches in turn, keep each other out; around
// other launches nothing is locked.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "client/graph/describe.h"
#include "client/graph/graph.h"
#include "common/wire/prepared_body.h"

namespace fargpu::client {

// References of an executable graph to user objects. Shared by the record and pending operations.
// They are given up on a thread of their own.
class GraphUses {
 public:
  void add(CUuserObject object, unsigned count);
  void add(std::shared_ptr<GraphUses> others);
  bool any() const { return !objects_.empty() || !others_.empty(); }
  ~GraphUses();

 private:
  std::vector<std::pair<CUuserObject, unsigned>> objects_;
  std::vector<std::shared_ptr<GraphUses>> others_;
};

// Where a graph was launched last.
struct LastLaunch {
  uint64_t stream = 0;         // id on the wire
  Context* context = nullptr;  // the stream's; null: nowhere
};

struct GraphExec final : Object {
  cuuint64_t flags = 0;
  // Of one that kernels launch: the driver's, by which the application knows it. Else 0.
  uint64_t value = 0;
  std::atomic<bool> may_be_refused{false};  // a launch waits for the driver's answer
  // A launch records an event of other processes, or waits for one, or did so before an update.
  std::atomic<bool> interprocess{false};
  // A launch waits for an event, or did so before an update.
  std::atomic<bool> waits{false};
  FunctionsAhead functions;  // before its launches
  // A launch records the events below.
  std::atomic<bool> records{false};
  wire::PreparedBody launch;  // the message of a launch without host calls, but for the stream
  // Launches take the mutex below: they name host calls, or the release of the graph's resources
  // waits for the last one.
  std::atomic<bool> in_turn{false};
  std::mutex mutex;
  std::unordered_map<uint64_t, Placed> nodes;  // by id; of the graph that it was made from
  std::vector<HostCall> host_calls;
  std::vector<CUdeviceptr> awaited;
  std::vector<RecordedEvent> recorded;
  std::vector<uint64_t> disabled;  // ids of nodes
  std::shared_ptr<GraphUses> uses;
  LastLaunch last;  // of launches in sequence
  // Its host nodes are the driver's, which take turns (HostTurns): the worker edits the graph. Else
  // they are operations on words in memory (server/stream/host_words.h).
  bool with_host_nodes = false;
  uint32_t places = 1;  // of a launch (StreamQueue); never changes

  // Another thread destroys it: the server may have it still.
  bool is_ending() const { return uses == nullptr; }
  bool has_host_calls() const { return !host_calls.empty() || !awaited.empty(); }

  void ended() override;

  // The application's.
  CUgraphExec handle() const { return reinterpret_cast<CUgraphExec>(value != 0 ? value : id); }
};

// nullptr: there is none. A value that drivers of several servers returned belongs to the server of
// the stream, or of the current context.
GraphExec* find_exec(CUgraphExec exec);
GraphExec* find_exec(CUgraphExec exec, CUstream stream);

// The result of an instantiation or an update.
struct GraphOutcome {
  int found = 0;  // CUgraphInstantiateResult or CUgraphExecUpdateResult
  CUgraphNode error = nullptr, error_from = nullptr;
};

// These two give the lock back when they have read the graph.
CUresult instantiate(GraphLock& lock, const Graph& graph, cuuint64_t flags, CUgraphExec* exec,
                     GraphOutcome* outcome);
CUresult update(GraphLock& lock, GraphExec& exec, const Graph& graph, GraphOutcome* outcome);
// Whether it was made with such a node of this type.
bool has_node(GraphExec& exec, uint64_t node, CUgraphNodeType type);
// Needs the lock, as describe() does.
CUresult set_node(GraphExec& exec, uint64_t node, const NodeParams& params);
// The same of a kernel's node, where a driver takes the parameters: nobody waits. nullopt: it may
// refuse them, or the node is another one. Needs no lock.
std::optional<CUresult> change_kernel(GraphExec& exec, uint64_t node,
                                      const CUgraphNodeParams& params);
CUresult enable_node(GraphExec& exec, uint64_t node, bool enabled);
// CUDA_ERROR_INVALID_VALUE, of both: no such node, or it cannot be disabled.
CUresult is_enabled(GraphExec& exec, uint64_t node, unsigned* enabled);

// That a launch records; none where exec.records is not set.
std::vector<CUevent> recorded_events(GraphExec& exec);
CUresult launch(GraphExec& exec, CUstream stream);
CUresult upload(GraphExec& exec, CUstream stream);
CUresult destroy(GraphExec& exec);

}  // namespace fargpu::client
