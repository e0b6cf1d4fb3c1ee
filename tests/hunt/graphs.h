// The graphs of a program that runs: built or captured, instantiated, changed and launched.
// Calls about one graph come from one thread.
#pragma once

#include <cuda.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/hunt/buffers.h"
#include "tests/hunt/run.h"

namespace fargpu::hunt {

class Graphs {
 public:
  // `fail` takes what a host node found wrong, from any thread.
  Graphs(const Device& device, const Program& program, const Allowed& allowed,
         const Buffers& buffers, const std::vector<CUevent>& events, int process, Mistake mistake,
         std::function<void(const std::string&)> fail);
  ~Graphs();
  Graphs(const Graphs&) = delete;
  Graphs& operator=(const Graphs&) = delete;

  void make();
  // Whether the operation captures. While it does, no thread may use the legacy stream or make
  // calls that wait for the context.
  bool captures(const Operation& operation) const;
  void instantiate(size_t operation);
  void launch(size_t operation, CUstream stream);
  void upload(size_t operation, CUstream stream);
  void set_params(size_t operation);
  void update(size_t operation);
  void drop(size_t operation);
  // When nothing runs any more: fails where a host node did not run at every launch.
  void unmake();

 private:
  struct Running;
  struct HostNode;

  static void CUDA_CB host_node(void* data);
  Running& of(size_t operation) const;
  CUgraph build(size_t operation, std::vector<CUgraphNode>& nodes);
  CUDA_HOST_NODE_PARAMS host_params(size_t operation, int index, const Node& node);

  const Device& device_;
  const Program& program_;
  const Allowed& allowed_;
  const Buffers& buffers_;
  const std::vector<CUevent>& events_;
  const int process_;
  const Mistake mistake_;
  const std::function<void(const std::string&)> fail_;
  std::vector<std::unique_ptr<Running>> running_;  // by graph
};

}  // namespace fargpu::hunt
