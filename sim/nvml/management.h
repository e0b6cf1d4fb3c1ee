// The process-wide state of the simulated management library: whether it is initialised, and the
// GPUs. The GPUs of the simulated driver (sim/base/settings.h), all in their physical order: like
// NVML, and unlike CUDA, it does not look at CUDA_VISIBLE_DEVICES. Instances of GPUs that are
// divided have handles of their own.
//
// Every function may be called from any thread. The GPUs are made by the first initialisation and
// stay, so that a handle is a pointer to one.
#pragma once

#include <span>
#include <string>

#include "schema/nvml/nvml.h"
#include "sim/base/settings.h"

namespace fargpu::sim::nvml {

// A GPU, or an instance of one.
struct Gpu {
  int index;
  int instance;   // -1: the GPU as a whole
  int instances;  // into which the GPU is divided; 0: it is not
  int compute_capability;
  size_t memory_bytes;
  bool prohibited;  // no context can be made
  std::string name;
  std::string uuid;

  std::string serial() const;
  // The memory of the host's processes on it; 0: they do not say (FARGPU_SIM_SHARED).
  size_t used_bytes() const;
  unsigned bus() const { return static_cast<unsigned>(pci_bus(index)); }
  // A CUdevice_attribute, as the simulated driver has it.
  unsigned attribute(int id) const;
};

// nvmlInit and its kin: counts. The first one reads the environment.
nvmlReturn_t initialize();
// NVML_ERROR_UNINITIALIZED when there were as many as initialisations.
nvmlReturn_t shut_down();
bool initialized();
// Never returns, if the settings say so of this call.
void hang_if_told(Settings::Hang call);
std::span<const Gpu> gpus();   // as a whole
std::span<const Gpu> units();  // instances, too, behind the GPUs
// nullptr: no handle of this library.
const Gpu* find_gpu(nvmlDevice_t handle);
nvmlDevice_t handle_of(const Gpu& gpu);

}  // namespace fargpu::sim::nvml
