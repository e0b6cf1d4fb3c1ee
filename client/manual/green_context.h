// Green contexts, as other halves see them. Any thread.
#pragma once

#include <cuda.h>

namespace fargpu::client {

struct Context;

// The context that the handle was made into; nullptr: no green context, or a destroyed one.
Context* find_green(CUgreenCtx handle);

}  // namespace fargpu::client
