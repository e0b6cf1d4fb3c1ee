// CopyNotices: what the client is told of ordered copies, and the bytes that it gets with it, by
// frames or by one-sided writes. One thread (the executor's).
#pragma once

#include <cuda.h>

#include <cstdint>

#include "server/memory/copy_chain.h"

namespace fargpu::server {

class Worker;

// A lost session is seen by the executor: nothing here says so.
class CopyNotices {
 public:
  explicit CopyNotices(Worker& worker) : worker_(worker) {}

  // The bytes of a delivery that the GPU is done with. An error: they cannot be brought.
  CUresult deliver(CopyElement& element);
  // The adapter still reads the element's block.
  bool is_being_written(const CopyElement& element) const;
  // The element goes before that has ended: its block stays.
  void keep(const CopyElement& element);
  // Asks for the bytes of a fetch, or whether a meeting can end.
  void ask(const CopyElement& element);
  // There is nothing to copy any more. Said as long as the client waits for something: for bytes of
  // a delivery, or to be asked for bytes of a fetch. Else it has forgotten the copy, or will when
  // it has done its part.
  void over(const OrderedCopy& copy, CUresult result);

  // How many notices with bytes the session has had.
  uint32_t sent() const { return sent_; }

 private:
  void send_in_frames(const CopyElement& element);
  void tell_written(const CopyElement& element);

  Worker& worker_;
  uint32_t sent_ = 0;
};

}  // namespace fargpu::server
