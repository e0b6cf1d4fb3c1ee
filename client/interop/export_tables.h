// cuGetExportTable: the unpublished tables that NVIDIA's own libraries ask of their driver library,
// answered in this process.
//
// Only what those libraries call has a function; every other slot logs its name once and returns
// CUDA_ERROR_NOT_SUPPORTED. Everything here is part of the interoperability layer that
// docs/interoperability.md describes. May be called before cuInit; any thread.
#pragma once

#include <cuda.h>

namespace fargpu::client::interop {

// nullptr for a table that is not offered.
const void* export_table(const CUuuid& id);

}  // namespace fargpu::client::interop
