// The shared library holds nothing of its own: the entry points come from fargpu_sim_nvml.
#include "sim/nvml/management.h"
