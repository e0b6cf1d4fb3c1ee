// Makes random programs: which things there are, then operation by operation. Programs depend on
// the seed alone.
#pragma once

#include <algorithm>
#include <random>
#include <vector>

#include "tests/hunt/program.h"

namespace fargpu::hunt {

class Generator {
 public:
  explicit Generator(uint64_t seed) : random_(seed) {
    program_.seed = seed;
    // Programs that follow each other have other values, so that old bytes are noticed.
    first_value_ = static_cast<uint32_t>(pick(0, 1023)) << 22;
    next_value_ = first_value_ + kMostOperations;
  }
  Program run();

 private:
  int pick(int least, int most) { return std::uniform_int_distribution(least, most)(random_); }
  bool chance(int one_of) { return pick(1, one_of) == 1; }
  template <typename T>
  T one_of(const std::vector<T>& all) {
    return all[static_cast<size_t>(pick(0, static_cast<int>(all.size()) - 1))];
  }

  // What there is (generate.cc).
  void choose_threads();
  void make_buffers(int process);
  Buffer& new_buffer(Memory memory, size_t segments, size_t words, int process);
  int new_event(int process, bool shared);

  // What a thread may use. Functions that choose memory are about `process_`.
  bool for_kernels(const Buffer& buffer) const {
    return !on_host(buffer.memory) || (shares_memory_ && on_device(buffer.memory));
  }
  bool is_usable(const Buffer& buffer) const { return buffer.shared || buffer.process == process_; }
  int some_stream(int thread);
  int own_stream(int thread) const { return first_own_stream_ + thread; }
  int own_event(int thread) const { return first_own_event_ + thread; }
  int some_event(int thread);
  int one_of_threads(int process);
  template <typename Predicate>
  int some_buffer(Predicate&& fits);
  Place some_place(int buffer, size_t most = 3);
  template <typename Fits, typename FitTogether>
  bool two_places(Place& to, Place& from, Fits&& fits, FitTogether&& fit_together);
  bool places_for_kernel(Place& to, Place& from);
  bool places_for_copy(Place& to, Place& from);
  Place place_for_kernel();
  Place place_for_memset();
  Place place_for_host(bool managed_too);
  void stretch(Place& place);

  void push(Operation operation);
  void add_one(int thread);
  // What the kind needs; false: not possible in this program.
  bool complete(Operation& operation);

  // Graphs (generate_graphs.cc).
  uint32_t fresh_values(size_t count);
  void make_graphs();
  void add_nodes(Graph& graph, int inside, int count, int depth);
  void choose_edges(const Graph& graph, const std::vector<int>& level, Node& node);
  bool complete(const Graph& graph, Node& node);
  bool complete_graph_call(Operation& operation);
  bool may_launch(int graph);
  bool change_node(Operation& operation);
  void add_launches(const Operation& launch);

  // Series of operations (generate_series.cc).
  void add_pipeline(int thread);
  void add_loads_that_meet();
  void add_quiet_time(int thread);
  void add_quiet_work(int thread);
  void add_handover(int thread);
  void meet_at(int thread, int process);
  void finish();
  void look_at_everything(int thread);

  std::mt19937_64 random_;
  Program program_;
  int process_ = 0;
  int first_own_stream_ = 1;  // one for each thread, which only that thread uses
  int first_own_event_ = 1;   // likewise
  bool shares_memory_ = true, has_managed_ = false;
  bool quiet_ = false;  // a quiet time is being made
  static constexpr uint32_t kMostOperations = 1 << 14;
  uint32_t first_value_, next_value_;  // of operations, and behind them of nodes
  std::vector<bool> dropped_;          // by graph: no call about it follows
  std::vector<int> launches_;          // by graph
};

template <typename Predicate>
int Generator::some_buffer(Predicate&& fits) {
  std::vector<int> found;
  for (size_t i = 0; i < program_.buffers.size(); ++i) {
    const Buffer& buffer = program_.buffers[i];
    if (is_usable(buffer) && fits(buffer)) found.push_back(static_cast<int>(i));
  }
  return found.empty() ? -1 : one_of(found);
}

}  // namespace fargpu::hunt
