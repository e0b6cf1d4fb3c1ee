// The memory of allocation nodes on one device. A block has its address from the node's creation on
// and memory behind it from its first launch on; programs may use it between a launch and the free
// that follows. Memory of blocks that have ended is kept for others, up to a trim.
//
// A free counts in two steps: the call (claim_free) decides which node frees, the stream (end) does
// it. Thread safe.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

namespace fargpu::sim {

class Device;
class GraphMemory;

struct GraphBlock {
  GraphBlock(GraphMemory& owner, uint64_t address, uint64_t bytes, uint32_t access)
      : owner(owner), address(address), bytes(bytes), access(access) {}
  GraphBlock(const GraphBlock&) = delete;
  GraphBlock& operator=(const GraphBlock&) = delete;
  ~GraphBlock();

  GraphMemory& owner;
  const uint64_t address;
  const uint64_t bytes;
  const uint32_t access;  // one bit per device
  // Guarded by the owner's mutex.
  bool backed = false;       // memory is charged for
  bool outstanding = false;  // launched, and no call has freed it since
  int live = 0;              // launched, and no free has run since
  // Guarded by the mutex of all graphs: the graph of its node, and where free nodes are.
  uint64_t home = 0;
  bool freed_at_home = false, freed_abroad = false;
  bool instantiated = false;  // with its graph: no later node of that one frees it
};

class GraphMemory {
 public:
  explicit GraphMemory(Device& device) : device_(device) {}
  // nullptr: there are no addresses left, or more than the device has.
  std::shared_ptr<GraphBlock> make(uint64_t bytes, uint32_t access);
  // The block at exactly this address.
  std::shared_ptr<GraphBlock> find(uint64_t address) const;

  bool outstanding(const GraphBlock& block) const;
  // A launch of its node. CUDA_ERROR_OUT_OF_MEMORY.
  CUresult begin(const std::shared_ptr<GraphBlock>& block);
  // false: it is not allocated, or something else frees it.
  bool claim_free(GraphBlock& block);
  void end(GraphBlock& block);

  void trim();
  // CUDA_ERROR_INVALID_VALUE: no such attribute, or it is not to be set to that.
  CUresult get(CUgraphMem_attribute attribute, uint64_t* value) const;
  CUresult set(CUgraphMem_attribute attribute, uint64_t value);

 private:
  friend struct GraphBlock;
  void forget(GraphBlock& block);
  void unback(GraphBlock& block);  // needs mutex_
  bool back(GraphBlock& block);    // needs mutex_; false: out of memory

  Device& device_;
  mutable std::mutex mutex_;
  std::map<uint64_t, std::weak_ptr<GraphBlock>> blocks_;
  std::map<uint64_t, std::shared_ptr<GraphBlock>> live_;  // outlive their graphs
  uint64_t used_ = 0, used_high_ = 0, reserved_ = 0, reserved_high_ = 0;
  uint64_t unused_ = 0;  // of what is reserved: behind no block
};

}  // namespace fargpu::sim
