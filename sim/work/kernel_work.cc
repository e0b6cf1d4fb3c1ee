#include "sim/work/kernel_work.h"

#include <atomic>
#include <cstdio>
#include <cstring>
#include <utility>

#include "sim/context/context.h"
#include "sim/driver/device.h"
#include "sim/work/occupancy.h"

namespace fargpu::sim {
namespace {

// A kernel's parameters as one block. CUDA_ERROR_INVALID_VALUE: there are too few, or they are
// given in both ways.
CUresult pack_parameters(const KernelInfo& info, const Launch& launch,
                         std::vector<std::byte>* packed) {
  packed->assign(info.parameter_bytes, std::byte{0});
  if (launch.parameters != nullptr && launch.extra != nullptr &&
      launch.extra[0] != CU_LAUNCH_PARAM_END)
    return CUDA_ERROR_INVALID_VALUE;
  if (launch.parameters != nullptr) {
    for (size_t i = 0; i < info.parameters.size(); ++i) {
      const ParameterInfo& parameter = info.parameters[i];
      if (launch.parameters[i] == nullptr) return CUDA_ERROR_INVALID_VALUE;
      std::memcpy(packed->data() + parameter.offset, launch.parameters[i], parameter.size);
    }
    return CUDA_SUCCESS;
  }
  if (launch.extra == nullptr)
    return info.parameters.empty() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  const void* buffer = nullptr;
  const size_t* bytes = nullptr;
  for (void** item = launch.extra; *item != CU_LAUNCH_PARAM_END; item += 2) {
    if (*item == CU_LAUNCH_PARAM_BUFFER_POINTER) {
      buffer = item[1];
    } else if (*item == CU_LAUNCH_PARAM_BUFFER_SIZE) {
      bytes = static_cast<const size_t*>(item[1]);
    } else {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  const size_t size = bytes != nullptr ? *bytes : 0;
  if ((buffer == nullptr && size != 0) || (size == 0 && info.parameter_bytes != 0))
    return CUDA_ERROR_INVALID_VALUE;
  if (size > info.parameter_bytes) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  if (size != 0) std::memcpy(packed->data(), buffer, size);
  return CUDA_SUCCESS;
}

CUresult check_dimensions(const Device& device, const KernelInfo& info, const GridConfig& grid) {
  uint64_t threads = 1;
  for (int i = 0; i < 3; ++i) {
    const auto block_limit =
        static_cast<CUdevice_attribute>(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + i);
    const auto grid_limit = static_cast<CUdevice_attribute>(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + i);
    if (grid.block[i] == 0 ||
        grid.block[i] > static_cast<uint32_t>(device.attribute(block_limit)) || grid.grid[i] == 0 ||
        grid.grid[i] > static_cast<uint32_t>(device.attribute(grid_limit))) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    threads *= grid.block[i];
  }
  if (threads >
          static_cast<uint64_t>(device.attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)) ||
      threads > static_cast<uint64_t>(info.max_threads_per_block)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (info.required_block[0] != 0 && info.required_block != grid.block)
    return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

CUresult to_result(Fault::Kind kind) {
  switch (kind) {
    case Fault::Kind::kIllegalAddress:
      return CUDA_ERROR_ILLEGAL_ADDRESS;
    case Fault::Kind::kMisalignedAddress:
      return CUDA_ERROR_MISALIGNED_ADDRESS;
    case Fault::Kind::kIllegalInstruction:
      return CUDA_ERROR_ILLEGAL_INSTRUCTION;
    case Fault::Kind::kTrap:
      return CUDA_ERROR_LAUNCH_FAILED;
    case Fault::Kind::kAssert:
      return CUDA_ERROR_ASSERT;
    case Fault::Kind::kStackOverflow:
      return CUDA_ERROR_HARDWARE_STACK_ERROR;
    case Fault::Kind::kInvalidProgramCounter:
      return CUDA_ERROR_INVALID_PC;
    case Fault::Kind::kDeadlock:
      return CUDA_ERROR_LAUNCH_TIMEOUT;
  }
  return CUDA_ERROR_LAUNCH_FAILED;
}

thread_local DeviceGraphs* graphs_of_thread = nullptr;
std::atomic<DeviceGraphs*> graphs_outside{nullptr};

}  // namespace

GraphScope::GraphScope(DeviceGraphs* graphs) : before_(std::exchange(graphs_of_thread, graphs)) {}
GraphScope::~GraphScope() { graphs_of_thread = before_; }
void GraphScope::set_outside(DeviceGraphs& graphs) { graphs_outside = &graphs; }

CUresult check_cooperative(const Device& device, const KernelInfo& info, const GridConfig& grid) {
  const auto threads = static_cast<int>(grid.block[0] * grid.block[1] * grid.block[2]);
  const auto resident =
      static_cast<uint64_t>(active_blocks(device, info, threads, grid.dynamic_shared_bytes)) *
      static_cast<uint64_t>(device.attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
  const uint64_t blocks = uint64_t{grid.grid[0]} * grid.grid[1] * grid.grid[2];
  return blocks > resident ? CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE : CUDA_SUCCESS;
}

CUresult check_cluster(const Function& function, const GridConfig& grid) {
  const auto required = required_cluster(*function.info, *function.settings);
  if (required == std::array<uint32_t, 3>{}) {
    return function.info->explicit_cluster && grid.cluster[0] == 0 ? CUDA_ERROR_INVALID_CLUSTER_SIZE
                                                                   : CUDA_SUCCESS;
  }
  if (required[0] == 0 || required[1] == 0 || required[2] == 0)
    return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  if (grid.cluster[0] != 0 && grid.cluster != required) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  for (int i = 0; i < 3; ++i)
    if (grid.grid[i] % required[i] != 0) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  return CUDA_SUCCESS;
}

CUresult prepare_kernel(Context& context, const LaunchTarget& target, const Launch& launch,
                        KernelWork* work) {
  const KernelInfo& info = *target.function->info;
  const Device& device = context.device();
  if (CUresult result = check_dimensions(device, info, launch.grid); result != CUDA_SUCCESS)
    return result;
  if (launch.grid.dynamic_shared_bytes > static_cast<size_t>(target.function->settings->get(
                                             CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES))) {
    return launch.grid.cooperative ? CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE
                                   : CUDA_ERROR_INVALID_VALUE;
  }
  if (launch.grid.cooperative) {
    if (CUresult result = check_cooperative(device, info, launch.grid); result != CUDA_SUCCESS)
      return result;
  }
  if (CUresult result = check_cluster(*target.function, launch.grid); result != CUDA_SUCCESS)
    return result;
  work->target = target;
  work->grid = launch.grid;
  if (work->grid.cluster[0] == 0)
    work->grid.cluster = required_cluster(info, *target.function->settings);
  return pack_parameters(info, launch, &work->parameters);
}

void run_kernel(Context& context, const KernelWork& work) {
  if (context.error() != CUDA_SUCCESS) return;
  const auto output = [&context](std::string_view text) { context.output().append(text); };
  const LaunchTarget& target = work.target;
  GridConfig grid = work.grid;
  grid.graphs = graphs_of_thread != nullptr ? graphs_of_thread : graphs_outside.load();
  const auto fault =
      target.module->program->run(target.function->info->name, grid, work.parameters, output);
  if (!fault) return;
  // As the driver does: on stderr, and before any call returns the error.
  std::fwrite(fault->messages.data(), 1, fault->messages.size(), stderr);
  context.fail(to_result(fault->kind), fault->text);
}

}  // namespace fargpu::sim
