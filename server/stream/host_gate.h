// HostGate: host functions of the application, in the order of the server's streams. The functions
// themselves are in the client.
//
// The stream contains a small function of ours. When the driver calls it, it informs the executor,
// which sends the notice hostCall; the function then holds the stream until the client's
// hostCallDone. In a context that has failed a driver calls no host function and reports nothing.
// So the gate finds such contexts and notifies the client that their functions will not run.
// Everything except hold() belongs to the executor's thread. The gate outlives the driver's
// threads: a worker closes it and then exits without tearing the driver down.
#pragma once

#include <cuda.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <unordered_map>
#include <vector>

#include "common/base/status.h"
#include "server/core/core.h"
#include "server/stream/host_words.h"

namespace fargpu::server {

class StreamHolds;

class HostGate {
 public:
  HostGate(const Core& core, StreamHolds& holds) : core_(core), holds_(holds) {}
  ~HostGate() {
    close();
    for (auto* call : with_driver_) delete call;  // the driver will not call these any more
  }
  HostGate(const HostGate&) = delete;
  HostGate& operator=(const HostGate&) = delete;

  // Puts host call `id` into `stream` of `context`, which is current. with_status: like
  // cuStreamAddCallback, it also runs after an error and gets it. If this fails, the client is
  // notified that the function will not run.
  CUresult enqueue(uint16_t context, CUstream stream, uint64_t id, bool with_status);
  // Reports that the call cannot be put into a stream, because of `why`.
  void refuse(uint64_t id, CUresult why) { tell(id, why, /*cancelled=*/true); }
  // A host node of an executable graph. The driver calls reached_in_graph() with it once at each
  // launch, and launches of one executable graph never overlap. Its maker keeps it as long as the
  // driver may launch the graph; pending launches keep it as well.
  struct Call;
  struct Node {
    HostGate* gate;
    std::deque<std::shared_ptr<Call>> due{};  // one for each launch; guarded by the gate's mutex
    // The GPU waits at these, and poll() looks at them; null: the driver calls reached_in_graph().
    std::shared_ptr<HostWordPair> words{};
    unsigned launches = 0;  // with words: that have not passed the node
    bool runs = false;      // the client runs the function of one of them
    bool watched = false;   // poll() looks at it
  };
  static void CUDA_CB reached_in_graph(void* node);
  // Words for a node in the current context. CUDA_ERROR_NOT_SUPPORTED: there are none.
  CUresult give_words(Node& node);
  // The next launch that reaches `node` is in a stream of `context`, and is host call `id` there.
  // INVALID_VALUE: the id is in use.
  CUresult expect(uint16_t context, const std::shared_ptr<Node>& node, uint64_t id);
  // That launch was refused, with `why`.
  void not_launched(uint64_t id, CUresult why);
  // On hostCallDone: releases the stream. kProtocol for an id that is not outstanding.
  Status finished(uint64_t id);
  // Whether a host call is in a stream, or not reported as done.
  bool outstanding() const { return !calls_.empty(); }
  // Calls have numbers, in the order in which they came. That of the last one, and of the oldest
  // that is outstanding.
  uint64_t newest() const { return last_number_; }
  uint64_t oldest_outstanding() const;  // UINT64_MAX: none is
  // `begins` is called before a stream is held, while no call is outstanding; `fewer` when a call
  // is not outstanding any more.
  void when_held(std::function<void()> begins, std::function<void()> fewer) {
    begins_ = std::move(begins);
    fewer_ = std::move(fewer);
  }
  // Reports that the context's pending calls will never be reached, because of `why`.
  void give_up(uint16_t context, CUresult why);
  void context_ended(const ContextEnd& end) {
    give_up(end.id, CUDA_ERROR_CONTEXT_IS_DESTROYED);
    words_.context_ended(end.id);
  }
  // Looks, every kLookEvery at most, whether contexts that have calls have failed.
  void look();
  // When look() is to be called; Deadline::max() while no call is in a stream.
  std::chrono::steady_clock::time_point next_look() const;
  // Looks which nodes with words have been reached. Returns how many.
  size_t poll();
  // Whether there are launches of such nodes.
  bool any_to_poll() const { return !watched_.empty(); }
  // Whether there are some whose words are in the context.
  bool any_to_pass(uint16_t context) const;
  // Calls that are in streams.
  size_t waiting() const { return calls_.size(); }
  // The session ends: no stream is held any more.
  void close();

  struct Call {
    HostGate* gate;
    uint64_t id;
    uint16_t context;
    CUdevice device;
    bool with_status;
    uint64_t number = 0;
    bool reached = false;          // guarded by mutex_
    bool released = false;         // guarded by mutex_
    std::shared_ptr<Node> node{};  // null: it is in a stream by itself
  };

 private:
  static constexpr std::chrono::milliseconds kLookEvery{20};
  void tell(uint64_t id, CUresult status, bool cancelled);
  static void CUDA_CB reached(void* call);
  static void CUDA_CB reached_with_status(CUstream stream, CUresult status, void* call);
  void hold(Call& call, CUresult status);
  // A launch is at a node with words, or may go on behind it.
  void arrive(Node& node);
  void pass(Node& node);
  // A call in a graph that its node will not get, as the launch does not come to it.
  void forget(const Call& call);
  using Calls = std::unordered_map<uint64_t, std::shared_ptr<Call>>;
  void add(std::shared_ptr<Call> call);
  Calls::iterator end(Calls::iterator call);

  std::unique_ptr<std::shared_ptr<Call>> take_back(std::shared_ptr<Call>* call);

  const Core core_;
  StreamHolds& holds_;
  std::mutex mutex_;
  std::set<std::shared_ptr<Call>*> with_driver_;  // guarded by mutex_; freed when the driver calls
  std::condition_variable changed_;
  bool closed_ = false;  // guarded by mutex_
  // Calls stay until finished(); the driver's thread has a reference of its own.
  Calls calls_;
  uint64_t last_number_ = 0;
  std::function<void()> begins_, fewer_;
  HostWords words_;
  std::vector<std::shared_ptr<Node>> watched_;  // with words and launches
  std::chrono::steady_clock::time_point last_look_{};
  // Contexts that had failed by the last look: this is the driver's time for its calls after an
  // error.
  std::set<uint16_t> failed_;
};

}  // namespace fargpu::server
