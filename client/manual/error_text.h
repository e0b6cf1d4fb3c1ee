// The texts of cuGetErrorString: a short text per CUresult.
#pragma once

#include <cuda.h>

namespace fargpu::client {

// Static text; nullptr for a value that cuda.h does not know.
const char* error_text(CUresult error);

}  // namespace fargpu::client
