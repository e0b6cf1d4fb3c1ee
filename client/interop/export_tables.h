// cuGetExportTable: the unpublished tables that NVIDIA's own libraries request from their driver
// library. They are answered in this process.
//
// Only slots that those libraries call have a function. Every other slot logs its number once and
// returns CUDA_ERROR_NOT_SUPPORTED. docs/interoperability.md describes the tables. May be called
// before cuInit; any thread.
#pragma once

#include <cuda.h>

namespace fargpu::client::interop {

// nullptr for a table that is not offered.
const void* export_table(const CUuuid& id);

}  // namespace fargpu::client::interop
