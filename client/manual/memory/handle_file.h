// HandleFile: the descriptor that a program gets for memory that it exports. The driver's own stays
// at the server; this one is a sealed memory file with the export handle
// (server/sharing/export_handle.h) in it, which can be passed to other processes as any descriptor.
// Any thread.
#pragma once

#include <cuda.h>

#include <array>
#include <cstddef>

#include "common/base/fd.h"

namespace fargpu::client {

using ExportHandleBytes = std::array<std::byte, 64>;

// `inherited`: programs that the process starts by exec have it, too. kSystem: the process may have
// no more descriptors.
Result<Fd> make_handle_file(const ExportHandleBytes& export_handle, bool inherited);

// The descriptor stays the program's. CUDA_ERROR_INVALID_VALUE: it is 0, which
// a driver takes for no handle; CUDA_ERROR_UNKNOWN: it is something else, or there is none.
CUresult read_handle_file(int descriptor, ExportHandleBytes* export_handle);

}  // namespace fargpu::client
