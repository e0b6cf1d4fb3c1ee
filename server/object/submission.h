// Submission: work on its way into a stream, for as long as a handler makes the driver's calls for
// it. Generated dispatch code makes one where the description says that a call submits
// (schema/README.md); a hand-written half gets it from decode_cuX, or makes it itself.
//
// The constructor finds the stream and orders the work behind the copies whose calls have returned
// in the client. A call that only asks about a stream makes none: nothing waits for its sake.
// On the executor's thread.
#pragma once

#include "server/object/frame_stream.h"
#include "server/object/request.h"

namespace fargpu::server {

class Submission {
 public:
  // The frame's context is current.
  Submission(Worker& worker, uint64_t stream_id) : result_(worker.submit(stream_id, &stream_)) {}
  Submission(const Submission&) = delete;
  Submission& operator=(const Submission&) = delete;

  // Not CUDA_SUCCESS: nothing may be submitted.
  CUresult result() const { return result_; }
  CUstream handle() const { return stream_.handle; }
  // The stream's context, which may differ from the frame's.
  uint16_t context() const { return stream_.context; }
  const FrameStream& stream() const { return stream_; }

 private:
  FrameStream stream_;
  const CUresult result_;
};

}  // namespace fargpu::server
