// Copies and fills: one description for all forms (1D, 2D, 3D, any direction), its checks against
// known memory, and its way through a stream.
//
// Host memory that CUDA does not know is pageable: an asynchronous copy from it takes the bytes
// before it returns, one into it returns when the bytes are there. A copy between host memory,
// known or not, is over when the call returns, also when it is named as device memory: CUDA
// documents that for all forms. Everything else is in stream order.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <memory>

namespace fargpu::sim {

class Context;
struct Stream;
class Tiles;

// One side of a copy: rows of `Copy::width` bytes at base + z * slice + y * pitch.
struct CopySide {
  enum class Where { kHost, kDevice, kUnified, kArray } where = Where::kUnified;
  uint64_t base = 0;
  uint64_t pitch = 0;
  uint64_t slice = 0;
  // kArray: whose memory it is, which has been checked (array_side.h), and as it was described.
  std::shared_ptr<const void> array{};
  CUarray handle = nullptr;
  uint64_t x = 0, y = 0, z = 0;
  const Tiles* tiles = nullptr;  // of a sparse one: `base` counts from its begin

  bool on_device() const { return where == Where::kDevice || where == Where::kArray; }
};

struct Copy {
  CopySide to, from;
  uint64_t width = 0;  // bytes
  uint64_t height = 1, depth = 1;
  // As a program described it, in two or three dimensions.
  std::shared_ptr<const CUDA_MEMCPY3D> described{};
  bool take_source = false;  // host memory of any kind is read before the call returns

  bool empty() const { return width == 0 || height == 0 || depth == 0; }
};

// CUDA_ERROR_INVALID_VALUE: a device side is not wholly inside known memory, a pitch is smaller
// than a row, or a size overflows.
CUresult submit_copy(Context& context, const std::shared_ptr<Stream>& stream, Copy copy,
                     bool synchronous);

// For nodes of graphs, which are checked when they are made and run later: memory of allocation
// nodes may still be absent.
CUresult check_copy(const Copy& copy);
void run_copy(const Copy& copy);
// Whether a launch of a graph with such a node returns when the copy is over: one to memory that
// CUDA does not know, or between host memory.
bool launch_waits_for(const Copy& copy);

struct Fill {
  uint64_t base = 0;
  uint64_t pitch = 0;
  uint64_t width = 0;  // elements
  uint64_t height = 1;
  uint32_t value = 0;
  unsigned element = 1;  // bytes: 1, 2 or 4
};
CUresult submit_fill(Context& context, const std::shared_ptr<Stream>& stream, const Fill& fill,
                     bool synchronous);
CUresult check_fill(const Fill& fill);  // the same for nodes of graphs
void run_fill(const Fill& fill);

}  // namespace fargpu::sim
