// Parameters of nodes as a driver takes them, out of the client's description of a node
// (schema/graph_nodes.capnp), which is checked here: parameters that no client makes throw
// kj::Exception. The pointed-to memory lives as long as these objects. All on the executor's
// thread.
#pragma once

#include <cuda.h>
#include <kj/exception.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "generated/schema/graph_nodes.capnp.h"
#include "schema/support/small_buffer.h"
#include "server/graph/graph_builder.h"

namespace fargpu::server {

// Throws unless it holds.
void require(bool holds, const char* what);

template <typename T>
T read(capnp::Data::Reader data, const char* what) {
  require(data.size() == sizeof(T), what);
  T value;
  std::memcpy(&value, data.begin(), sizeof value);
  return value;
}

template <typename T>
std::vector<T> read_all(capnp::Data::Reader data, size_t most, const char* what) {
  require(data.size() % sizeof(T) == 0 && data.size() / sizeof(T) <= most, what);
  std::vector<T> values(data.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), data.begin(), data.size());
  return values;
}

// An object of the session.
template <typename Handle>
CUresult find(const GraphParts& parts, rpc::HandleKind kind, uint64_t id, Handle* handle) {
  void* found = nullptr;
  const CUresult result = parts.core.handles.find(kind, id, &found);
  *handle = static_cast<Handle>(found);
  return result;
}

// A kernel as the client names it.
struct GivenKernel {
  uint64_t function = 0;  // id of a function or a kernel
  std::array<unsigned, 3> grid, block;
  unsigned shared_bytes = 0;
  std::span<const std::byte> parameters;  // packed
};
GivenKernel kernel_in(schema::graph::Kernel::Reader kernel);

// `parameters` must live as long.
class KernelParams {
 public:
  CUresult take(const GraphParts& parts, CUcontext context, const GivenKernel& kernel);
  const CUDA_KERNEL_NODE_PARAMS* get() const { return &params_; }

 private:
  CUDA_KERNEL_NODE_PARAMS params_{};
  std::optional<schema::SmallBuffer<void*>> each_;
  std::array<void*, 5> extra_{};
  size_t size_ = 0;
};

std::vector<CUlaunchAttribute> attributes_of(schema::graph::Kernel::Reader kernel);

CUresult read_copy(const GraphParts& parts, capnp::Data::Reader data, CUDA_MEMCPY3D* copy);

struct OperationParams {
  std::vector<CUstreamBatchMemOpParams> operations;
  CUDA_BATCH_MEM_OP_NODE_PARAMS params{};

  OperationParams(schema::graph::Operations::Reader given, CUcontext context);
  bool waits() const;  // for values in memory
};

// The event that a node records or waits for. It keeps its driver event from now on.
CUresult event_of(const GraphParts& parts, schema::graph::Node::Reader node, CUevent* event);

}  // namespace fargpu::server
