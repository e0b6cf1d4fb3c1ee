// The native code that called the driver.
#pragma once

#include <string>

namespace fargpu::client::where {

// Before the first look: loads the stack unwinder.
void begin_native();
// The innermost function of the calling thread's stack that is neither of this library nor of
// CUDA's runtime library: "app: step(float)", or "app+0x12ab", an address in the file, where the
// file has no name for it. Empty: the stack cannot be walked so far. Any thread.
std::string native_call_site();
void forget_natives_after_fork();

}  // namespace fargpu::client::where
