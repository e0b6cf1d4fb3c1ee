#include "server/sharing/export_handle.h"

#include <sys/random.h>

#include <cerrno>
#include <cstring>

namespace fargpu::server {
namespace {

constexpr uint32_t kMagic = 0x74736766;  // "fgst"
constexpr uint16_t kVersion = 1;

bool is_in_file(SharedKind kind) {
  return kind == SharedKind::kMemory || kind == SharedKind::kPool;
}

}  // namespace

Result<ExportHandle> make_export_handle(SharedKind kind, const ShareIdentity& self) {
  ExportHandle export_handle{kMagic, kVersion, kind, self.daemon, self.job, self.session, {}, {}};
  if (::getrandom(export_handle.secret.data(), sizeof export_handle.secret, 0) !=
      sizeof export_handle.secret)
    return system_error("getrandom", errno);
  return export_handle;
}

CUresult read_export_handle(std::span<const std::byte> bytes, SharedKind kind,
                            const ShareIdentity& self, ExportHandle* export_handle) {
  if (bytes.size() != sizeof *export_handle) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(export_handle, bytes.data(), sizeof *export_handle);
  if (export_handle->magic != kMagic || export_handle->version != kVersion)
    return CUDA_ERROR_INVALID_VALUE;
  if (export_handle->kind != kind) {
    return is_in_file(export_handle->kind) && is_in_file(kind) ? CUDA_ERROR_NOT_SUPPORTED
                                                               : CUDA_ERROR_INVALID_VALUE;
  }
  const bool ours = export_handle->daemon == self.daemon && export_handle->job == self.job;
  return ours ? CUDA_SUCCESS : CUDA_ERROR_NOT_PERMITTED;
}

}  // namespace fargpu::server
