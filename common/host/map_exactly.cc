#include "common/host/map_exactly.h"

#include <sys/mman.h>

#include <cerrno>

namespace fargpu {
namespace {

// ThreadSanitizer has most addresses for itself. It lets the system choose instead of one of those,
// unless the flag forbids it: then it ends the process.
#if defined(__SANITIZE_THREAD__)
constexpr int kNoReplacement = 0;
#else
constexpr int kNoReplacement = MAP_FIXED_NOREPLACE;
#endif

}  // namespace

bool map_exactly(void* address, size_t bytes, int protection, int flags, int descriptor,
                 off_t offset) {
  void* const got = ::mmap(address, bytes, protection, flags | kNoReplacement, descriptor, offset);
  if (got == MAP_FAILED) return false;
  if (got == address) return true;
  ::munmap(got, bytes);  // a kernel before 4.17, too, takes the address for a hint
  errno = EEXIST;
  return false;
}

}  // namespace fargpu
