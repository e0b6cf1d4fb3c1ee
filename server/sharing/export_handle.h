// ExportHandle: the 64 bytes that a program gets when it exports an object to other processes of
// its job: in a file of its own, or as the handle of CUDA's IPC. It names the session that has the
// object, and has a secret that only processes with the export handle know. A worker takes export
// handles of its own job alone; the driver's handles never leave the server.
#pragma once

#include <cuda.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "common/base/status.h"

namespace fargpu::server {

// Numbers are part of export handles: never used again.
enum class SharedKind : uint16_t {
  kMemory = 1,     // of cuMemCreate
  kIpcMemory = 2,  // cuIpcGetMemHandle
  kIpcEvent = 3,   // cuIpcGetEventHandle
  kPool = 4,
  kPoolMemory = 5,  // cuMemPoolExportPointer
};

using ShareSecret = std::array<uint64_t, 2>;

struct ExportHandle {
  uint32_t magic = 0;
  uint16_t version = 0;
  SharedKind kind{};
  uint64_t daemon = 0;
  uint64_t job = 0;
  uint64_t session = 0;  // that has exported it
  ShareSecret secret{};
  std::array<uint64_t, 2> unused{};
};
static_assert(sizeof(ExportHandle) == 64);

// Whose export handles a worker makes and takes.
struct ShareIdentity {
  uint64_t daemon = 0, job = 0, session = 0;
};

// With a new secret. kSystem: the system gives no random bytes.
Result<ExportHandle> make_export_handle(SharedKind kind, const ShareIdentity& self);

// A client's export handle. CUDA_ERROR_INVALID_VALUE: it is no export handle, or of another kind.
// CUDA_ERROR_NOT_SUPPORTED: of memory in place of a pool, or the other way round.
// CUDA_ERROR_NOT_PERMITTED: of another job, or of another server.
CUresult read_export_handle(std::span<const std::byte> bytes, SharedKind kind,
                            const ShareIdentity& self, ExportHandle* export_handle);

}  // namespace fargpu::server
