#include "client/object/launch_blocking.h"

#include "common/base/env.h"

namespace fargpu::client {

void read_launch_blocking() {
  const auto text = env_text("CUDA_LAUNCH_BLOCKING");
  launches_block.store(text && *text != "0", std::memory_order_relaxed);
}

}  // namespace fargpu::client
