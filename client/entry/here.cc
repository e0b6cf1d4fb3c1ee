#include "client/entry/here.h"

#include <chrono>

namespace fargpu::client {

CUresult settle(Session& session) {
  // the channel's keepalive notices a dead server long before
  constexpr auto kPatience = std::chrono::minutes(10);
  if (const Status status = session.channel().ping(transport::Clock::now() + kPatience);
      !status.ok()) {
    return from_status(status);
  }
  Context* context = current_context();
  if (context == nullptr) return CUDA_SUCCESS;
  if (const int sticky = context->sticky.load()) return static_cast<CUresult>(sticky);
  return static_cast<CUresult>(context->kept.exchange(CUDA_SUCCESS));
}

}  // namespace fargpu::client
