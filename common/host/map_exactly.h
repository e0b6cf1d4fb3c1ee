// map_exactly: memory at one address or not at all; nothing that is mapped there already is
// touched. Any thread.
#pragma once

#include <sys/types.h>

#include <cstddef>

namespace fargpu {

// mmap at `address`, a multiple of the page size; `flags` without MAP_FIXED. False with errno
// otherwise, EEXIST when the range is not free or this process cannot have it.
bool map_exactly(void* address, size_t bytes, int protection, int flags, int descriptor = -1,
                 off_t offset = 0);

}  // namespace fargpu
