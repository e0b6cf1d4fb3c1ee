#include "tests/server/keeps_no_modes.h"

#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

namespace {

std::atomic<bool> g_keeps_no_modes{false};

}  // namespace

// In front of the C library's.
extern "C" int fchmod(int descriptor, mode_t mode) noexcept {
  return g_keeps_no_modes ? 0 : static_cast<int>(::syscall(SYS_fchmod, descriptor, mode));
}

namespace fargpu::server {

KeepsNoModes::KeepsNoModes() { g_keeps_no_modes = true; }
KeepsNoModes::~KeepsNoModes() { g_keeps_no_modes = false; }

}  // namespace fargpu::server
