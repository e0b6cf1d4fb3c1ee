// Notified of the frames of a channel or a responder, for a timeline. The functions must neither
// block nor send.
#pragma once

#include "common/wire/frame.h"

namespace fargpu::rpc {

class FrameObserver {
 public:
  virtual ~FrameObserver() = default;
  // A request of a channel, or a reply of a responder, is about to be given to the transport. On
  // the thread that sends, one at a time.
  virtual void sends(const wire::FrameHeader& header) = 0;
  // The answer to this request has reached the thread that waited for it. Of channels.
  virtual void receives(const wire::FrameHeader& request) { (void)request; }
};

}  // namespace fargpu::rpc
