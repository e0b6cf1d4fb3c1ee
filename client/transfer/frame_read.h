// A piece of a copy to the host that travels in a frame, under way while the next one is asked for:
// the device fills one while the other is on the wire.
//
// On the stack of the calling thread, which waits for nothing else while it is under way.
#pragma once

#include "client/transfer/routes.h"
#include "common/rpc/channel.h"

namespace fargpu::client {

class FrameRead {
 public:
  // False: it was not begun, for its rows are not dense or it would have to wait;
  // receive_in_frame() is left.
  bool begin(const Transfer& transfer, const copy::Piece& piece);
  // Its bytes are there. At once CUDA_SUCCESS when it was not begun.
  CUresult finish();

 private:
  rpc::Reply reply_;
  rpc::Channel::Later later_;
  uint64_t bytes_ = 0;
  CUresult refused_ = CUDA_SUCCESS;  // by the client
};

}  // namespace fargpu::client
