// Which driver is simulated: the shared library says so (library.cc), of which there is one for
// each version. Newer functions are not exported by it, and not found by cuGetProcAddress.
#pragma once

namespace fargpu::sim {

int driver_version();  // as cuDriverGetVersion; CUDA_VERSION where no shared library says another

}  // namespace fargpu::sim
