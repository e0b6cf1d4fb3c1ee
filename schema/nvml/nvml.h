// The C ABI of NVML, the management library of NVIDIA's driver: types, constants, outcomes. Its
// functions are described in schema/api/nvml, from which their declarations are made. NVIDIA's own
// header is not needed for a build; tests/nvml_abi compares this one with it.
//
// The types keep NVIDIA's names, so that a prototype reads as in its manual.
#pragma once

#include "schema/nvml/basic.h"
#include "schema/nvml/clocks.h"
#include "schema/nvml/device.h"
#include "schema/nvml/event.h"
#include "schema/nvml/field.h"
#include "schema/nvml/memory_errors.h"
#include "schema/nvml/nvlink.h"
#include "schema/nvml/power.h"
#include "schema/nvml/process.h"
#include "schema/nvml/unused.h"
#include "schema/nvml/virtual.h"
