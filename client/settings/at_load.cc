// What happens when libcuda.so.1 or libnvidia-ml.so.1 is loaded. Linked into these two only: a test
// or the program fargpu reads its environment when it needs it, and keeps its descriptors.
#include <cerrno>
#include <exception>

#include "client/settings/environment.h"
#include "common/base/descriptors.h"

namespace {

[[gnu::constructor]] void at_load() noexcept {
  const int error = errno;
  fargpu::descriptors::in_foreign_process();
  try {
    fargpu::client::take_environment();
  } catch (const std::exception&) {
    // No memory: settings are those of the environment.
  }
  errno = error;
}

}  // namespace
