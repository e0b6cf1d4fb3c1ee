// The shared library: the entry points come from fargpu_sim_driver, the version is its own.
#include "sim/api/driver_version.h"

#ifdef FARGPU_SIM_DRIVER_VERSION
int fargpu::sim::driver_version() { return FARGPU_SIM_DRIVER_VERSION; }
#endif
