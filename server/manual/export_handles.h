// Common parts of the halves of calls that export and import. The executor's thread.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <utility>

#include "server/manual/manual.h"

namespace fargpu::server {

// Another process may look at the memory as soon as the call has returned: copies that have
// returned earlier, without having ended, end before. Runs `reply` then.
inline void after_copies(Worker& worker, std::function<void()> reply) {
  CopyFences& fences = worker.parts().copy_fences;
  const uint64_t newest = fences.newest();
  if (!fences.stands(newest, CopyFences::Which::kAll)) return reply();
  worker.defer([&fences, newest, reply = std::move(reply)] {
    if (fences.stands(newest, CopyFences::Which::kAll)) return false;
    reply();
    return true;
  });
}

template <typename Results>
void send_export_handle(Worker& worker, const wire::FrameHeader& header,
                        const ExportHandle& export_handle,
                        void (Results::Builder::*set)(capnp::Data::Reader)) {
  rpc::Responder::Frame frame(worker.responder(), header,
                              schema::fixed_bytes<Results>() + sizeof export_handle);
  (frame.template init<Results>().*set)(wire::as_data(&export_handle, sizeof export_handle));
  (void)frame.send(CUDA_SUCCESS);
}

inline std::span<const std::byte> export_handle_in(const void* handle) {
  return {static_cast<const std::byte*>(handle), sizeof(ExportHandle)};
}

}  // namespace fargpu::server
