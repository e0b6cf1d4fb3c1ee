// ImageDesk: what one worker asks about images (schema/worker.capnp, from findImage on), answered
// by the daemon's ImageBroker. What a worker says is not believed: its uploads have the size that
// was charged, and their hash is computed again. On the daemon's event loop.
#pragma once

#include <cstdint>
#include <memory>

#include "server/handover/worker_messages.h"
#include "server/job/image_broker.h"

namespace fargpu::server {

class ImageDesk : public std::enable_shared_from_this<ImageDesk> {
 public:
  // `broker` outlives it; `socket`, to the worker, stays open until close().
  ImageDesk(ImageBroker& broker, uint64_t session, const TenantId& tenant, int socket);
  ~ImageDesk() { close(); }
  ImageDesk(const ImageDesk&) = delete;
  ImageDesk& operator=(const ImageDesk&) = delete;

  static bool takes(WorkerMessage kind);
  // One of these. kProtocol: malformed.
  Status take(const ReceivedMessage& message);
  // The worker's process is gone.
  void close();

 private:
  void answer(const wire::FrameHeader& question, int descriptor);
  // Whether the worker reads what it is sent. One that does not would make descriptors pile up.
  bool reads() const;

  ImageBroker& broker_;
  const uint64_t session_;
  const int socket_;
  bool open_ = true;
};

}  // namespace fargpu::server
