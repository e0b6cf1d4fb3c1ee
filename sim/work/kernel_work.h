// A kernel that is ready to run: every check that CUDA makes before a launch returns is done. Work
// of a stream, or of a graph's node.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <vector>

#include "sim/object/module.h"

namespace fargpu::sim {

struct Launch {
  GridConfig grid;
  void** parameters = nullptr;
  void** extra = nullptr;
};

struct KernelWork {
  LaunchTarget target;
  GridConfig grid;
  std::vector<std::byte> parameters;
};

// Cooperative grids must fit onto the device at once.
CUresult check_cooperative(const Device& device, const KernelInfo& info, const GridConfig& grid);
// A kernel that is compiled for a cluster runs in no other one.
CUresult check_cluster(const Function& function, const GridConfig& grid);
// CUDA_ERROR_INVALID_VALUE: the shape, the shared memory or the parameters are wrong.
CUresult prepare_kernel(Context& context, const LaunchTarget& target, const Launch& launch,
                        KernelWork* work);
// Graph operations of kernels that the calling thread runs; until the scope ends.
class GraphScope {
 public:
  explicit GraphScope(DeviceGraphs* graphs);
  ~GraphScope();
  GraphScope(const GraphScope&) = delete;
  GraphScope& operator=(const GraphScope&) = delete;
  // Of kernels that are in no graph; lives for ever.
  static void set_outside(DeviceGraphs& graphs);

 private:
  DeviceGraphs* const before_;
};

// Runs the whole grid, unless the context failed before. A fault becomes the context's error.
void run_kernel(Context& context, const KernelWork& work);

}  // namespace fargpu::sim
