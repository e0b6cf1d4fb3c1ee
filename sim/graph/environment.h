// The launches that belong to a graph launch: its nodes, and the graphs that its kernels launch.
// Fire-and-forget launches run in parallel with it, and it ends after they have ended. Tail
// launches run after all of these, one after the other; tails of a tail come before the pending
// tails. A sibling belongs to the environment around. That around a graph which the host launched
// is the launch in its stream, which has no graph.
//
// Kernels call it from any thread; the rest belongs to the thread that runs the graph.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "sim/base/completion.h"
#include "sim/graph/exec.h"

namespace fargpu::sim {

class Environment final : public DeviceGraphs {
 public:
  // As many as CUDA allows at once, of each.
  static constexpr size_t kMostBeside = 120, kMostTails = 255;

  // `exec`: null: that of a stream, or of kernels that are in no graph. `around` outlives this one.
  explicit Environment(std::shared_ptr<Exec> exec, Environment* around = nullptr)
      : exec_(std::move(exec)), around_(around) {}

  // Kernels that are in no graph may update nodes from now on.
  static void serve_kernels_outside();

  // When the nodes are done: waits for everything else, and runs the tails.
  void finish();

  uint64_t current() const override;
  int launch(uint64_t exec, uint64_t stream) override;
  int set_parameter(uint64_t node, size_t offset, std::span<const std::byte> value) override;
  int set_enabled(uint64_t node, bool enabled) override;
  int set_grid(uint64_t node, const std::array<uint32_t, 3>& grid) override;

 private:
  using Tails = std::deque<std::shared_ptr<Exec>>;

  int launch_beside(std::shared_ptr<Exec> exec);
  int launch_behind(std::shared_ptr<Exec> exec);
  // Of a graph that a kernel launched.
  void run();
  // Everything but the tails is done.
  Tails end();

  const std::shared_ptr<Exec> exec_;
  Environment* const around_;
  std::mutex mutex_;
  std::vector<Fence> beside_;
  size_t launched_ = 0;  // parallel launches so far
  Tails tails_;
};

}  // namespace fargpu::sim
