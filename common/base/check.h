// FARGPU_CHECK(condition): for bugs of fargpu, never for errors of a peer or a user. A false
// condition logs the place and aborts, in every build type. Any thread.
#pragma once

namespace fargpu {

[[noreturn]] void check_failed(const char* condition, const char* file, int line);

}  // namespace fargpu

#define FARGPU_CHECK(condition) \
  (static_cast<bool>(condition) ? void() : ::fargpu::check_failed(#condition, __FILE__, __LINE__))
