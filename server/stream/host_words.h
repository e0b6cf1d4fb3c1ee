// HostWords: a node of a graph that stands for a host node without a thread of the driver. It
// writes a word in pinned memory when it is reached, and waits for another one until the function
// has returned in the client.
//
// A queue of a driver takes few host nodes: the launch that finds it full waits until some have
// run, in the executor, which alone can end them. It takes any number of these.
// One thread (the executor's), but a pair may end in any.
#pragma once

#include <cuda.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

namespace fargpu::server {

struct DriverTable;

// The words of one node, while the node or a launch of it exists.
class HostWordPair {
 public:
  HostWordPair(std::byte* memory, CUdeviceptr device, uint16_t context);

  uint16_t context() const { return context_; }
  // The operations of the node: says that it was reached, waits, and takes the permission back.
  std::array<CUstreamBatchMemOpParams, 3> operations() const;
  // Whether the node waits; once for each launch.
  bool take_reached();
  void let_go();
  // No later launch uses the words.
  bool is_at_rest() const;

 private:
  std::atomic<uint32_t>* reached_;  // 1 by the GPU, 0 by take_reached()
  std::atomic<uint32_t>* go_;       // 1 by let_go(), 0 by the GPU
  CUdeviceptr device_;              // of the first; the other one has a cache line of its own
  uint16_t context_;
};

class HostWords {
 public:
  HostWords();
  ~HostWords();
  HostWords(const HostWords&) = delete;
  HostWords& operator=(const HostWords&) = delete;

  // For a node in `context`, which is current. CUDA_ERROR_NOT_SUPPORTED: the driver has no such
  // nodes.
  CUresult take(const DriverTable& driver, uint16_t context, std::shared_ptr<HostWordPair>* pair);
  // Its words are not given out again. Their memory stays: the executor may still write it.
  void context_ended(uint16_t context);

 private:
  class Free;
  std::map<uint16_t, std::shared_ptr<Free>> contexts_;
};

}  // namespace fargpu::server
