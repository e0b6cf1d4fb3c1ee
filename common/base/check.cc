#include "common/base/check.h"

#include <cstdlib>

#include "common/base/log.h"

namespace fargpu {

void check_failed(const char* condition, const char* file, int line) {
  log::error("internal error: {} does not hold at {}:{}; please report this", condition, file,
             line);
  std::abort();
}

}  // namespace fargpu
