// Copy nodes with an end in host memory. The driver reaches memory that it knows, and such a copy
// is the driver's own. Ordinary memory of the application is read or written by a host function,
// when the node runs: it moves the bytes between there and pinned memory, from or to which the
// driver copies. A copy between host memory, pinned or not, is a host function's as a whole: a
// driver's launch would wait until such a node has run.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <memory>
#include <utility>

#include "client/process/session.h"
#include "common/copy/shape.h"

namespace fargpu::client {

class Staging;

// A part of a copy that is done here. Any thread.
class HostCopy {
 public:
  // `staging`: one end lies in it; nullptr: none does.
  HostCopy(const copy::Rows& to, const copy::Rows& from, const copy::Shape& shape,
           std::shared_ptr<Staging> staging)
      : to_(to), from_(from), shape_(shape), staging_(std::move(staging)) {}

  static void CUDA_CB run(void* copy);
  const std::shared_ptr<Staging>& staging() const { return staging_; }

 private:
  const copy::Rows to_, from_;
  const copy::Shape shape_;
  const std::shared_ptr<Staging> staging_;
};

// The ends of a copy that are no arrays.
copy::Part source_part(const CUDA_MEMCPY3D& copy);
copy::Part destination_part(const CUDA_MEMCPY3D& copy);

// How a copy node is carried out.
struct NodeCopy {
  enum class Way {
    kDriver,          // by the driver alone
    kHostThenDriver,  // the host function fetches the source first
    kDriverThenHost,  // it delivers to the destination afterwards
    kHost,            // both ends are host memory: the host function copies
  };
  Way way = Way::kDriver;
  CUDA_MEMCPY3D driver{};  // without host memory
  std::shared_ptr<HostCopy> host;
};

// A context of `session` is current. Exposes host memory that the driver knows. `calls_host`:
// whether the node may be a host function although the driver could copy. `before`: the node's
// previous host function; its staging memory serves again, so that the driver's copy stays as it
// is. Launches of an executable graph do not overlap. nullptr: nothing.
CUresult plan_copy(Session& session, const CUDA_MEMCPY3D& copy, bool calls_host,
                   const HostCopy* before, NodeCopy* plan);

}  // namespace fargpu::client
