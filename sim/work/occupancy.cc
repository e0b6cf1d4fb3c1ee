#include "sim/work/occupancy.h"

#include <algorithm>

#include "sim/driver/device.h"

namespace fargpu::sim {
namespace {

constexpr int kRegisterUnit = 256;  // registers are given to warps in this granularity
constexpr int kSharedUnit = 128;

int round_up(int value, int to) { return (value + to - 1) / to * to; }

}  // namespace

int active_blocks(const Device& device, const KernelInfo& info, int block_size,
                  size_t dynamic_shared) {
  if (block_size > std::min(info.max_threads_per_block,
                            device.attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK))) {
    return 0;
  }
  const auto optin =
      static_cast<size_t>(device.attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN));
  if (info.static_shared_bytes > optin || dynamic_shared > optin - info.static_shared_bytes)
    return 0;
  const int warps = (block_size + 31) / 32;
  int blocks = device.attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR);
  blocks = std::min(
      blocks, device.attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR) / (warps * 32));
  const int registers = round_up(std::max(info.registers, 1) * 32, kRegisterUnit) * warps;
  blocks = std::min(
      blocks, device.attribute(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR) / registers);
  const int shared =
      round_up(static_cast<int>(info.static_shared_bytes + dynamic_shared) +
                   device.attribute(CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK),
               kSharedUnit);
  if (shared > 0) {
    blocks = std::min(
        blocks,
        device.attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR) / shared);
  }
  return blocks;
}

size_t available_shared(const Device& device, const KernelInfo& info, int blocks) {
  const int per_block = device.attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR) /
                            blocks / kSharedUnit * kSharedUnit -
                        device.attribute(CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK) -
                        static_cast<int>(info.static_shared_bytes);
  const int most = device.attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN) -
                   static_cast<int>(info.static_shared_bytes);
  return static_cast<size_t>(std::max(0, std::min(per_block, most)));
}

}  // namespace fargpu::sim
