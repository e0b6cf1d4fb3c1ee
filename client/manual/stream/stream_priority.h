// Priorities of streams that were made with one: a captured launch gives its node that. Any thread.
#pragma once

#include <cuda.h>

namespace fargpu::client {

// Of a stream that has just been made; its handle may have been another one's before.
void note_priority(CUstream stream, int priority);
// As it was given. 0: of all others.
int priority_of(CUstream stream);

}  // namespace fargpu::client
