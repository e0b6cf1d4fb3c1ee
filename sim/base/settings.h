// The settings of the simulated GPUs from the environment. Read once, by cuInit.
//
// FARGPU_SIM_GPUS (1 .. 16), FARGPU_SIM_MEMORY (bytes per GPU, suffix K, M, G or T),
// FARGPU_SIM_COMPUTE_CAPABILITY ("9.0", or one for each GPU, like "8.0,9.0"; the last one is also
// that of the GPUs that follow), FARGPU_SIM_THREADS (worker threads of the engine, 0: one per
// core), FARGPU_SIM_COMPUTE_MODE ("default" or "prohibited": no context can be made),
// FARGPU_SIM_JITTER (microseconds), FARGPU_SIM_QUEUE (1 .. 1021),
// FARGPU_SIM_LOCKED_WAITS (0 or 1), FARGPU_SIM_WANTED_ADDRESSES (0 or 1), FARGPU_SIM_STREAM_WAITS
// (0 or 1), FARGPU_SIM_NVML_HANG ("init" or "utilization": a call that never returns, of the
// management library), FARGPU_SIM_SLOT (0 .. 31), FARGPU_SIM_MIG (2 .. 7), FARGPU_SIM_SHARED (path
// of a file), FARGPU_SIM_CONTEXT_MEMORY (a size, that of a context on its GPU),
// FARGPU_SIM_CONTEXT_END, FARGPU_SIM_INIT (milliseconds), CUDA_DEVICE_MAX_CONNECTIONS (1 .. 32) and
// CUDA_VISIBLE_DEVICES (indices or "GPU-<uuid>" or "MIG-<uuid>" prefixes).
//
// Processes with the same FARGPU_SIM_SHARED have the memory of the GPUs together: memory that one
// process has taken is not free for the others (sim/memory/host_usage.h). A fargpud gives its
// workers a file.
//
// FARGPU_SIM_CONTEXT_END is the time that a context takes to end, and a process that has one. A
// process that is killed ends at once. (A real driver takes its time then, too.)
//
// FARGPU_SIM_MIG divides each GPU into so many instances of equal size, as MIG does. CUDA shows a
// process one of them: the first one, or that which CUDA_VISIBLE_DEVICES names.
//
// The slot says where device memory lies, so that programs can use GPUs of several daemons: device
// memory begins at (1 + slot) TiB, reserved addresses at (33 + slot / 4) TiB, managed variables
// at 41 TiB + slot * 4 GiB. Up to 16 GPUs of 32 GiB stay within their slot. A fargpud gives its
// workers a slot that no other one on its host has (--sim-slot).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"

namespace fargpu::sim {

constexpr int kMaxGpus = 16;
constexpr int kSlots = 32;
constexpr uint64_t memory_begin(int slot) {
  return (uint64_t{1} + static_cast<uint64_t>(slot)) << 40;
}
constexpr uint64_t reservations_begin(int slot) {
  return (uint64_t{33} << 40) + (static_cast<uint64_t>(slot) << 38);
}
// A unit is a GPU or an instance of one. The number of a GPU as a whole is its physical index.
constexpr int unit_of(int gpu, int instance) { return gpu + kMaxGpus * (instance + 1); }
constexpr int gpu_of(int unit) { return unit % kMaxGpus; }
constexpr int instance_of(int unit) { return unit / kMaxGpus - 1; }  // -1: the GPU as a whole
constexpr uint64_t managed_variables_begin(int slot) {
  return (uint64_t{41} << 40) + (static_cast<uint64_t>(slot) << 32);
}
using Uuid = std::array<unsigned char, 16>;

struct Settings {
  int gpus = 1;
  size_t memory_bytes = size_t{4} << 30;
  int instances = 0;                          // of each GPU; 0: GPUs as a whole
  std::vector<int> compute_capabilities{90};  // 10 * major + minor; the last one of all that follow
  int threads = 0;
  bool prohibited = false;  // no context can be made: CU_COMPUTEMODE_PROHIBITED
  // For tests: before one task of four, a stream waits for a random time of up to this much.
  int jitter_microseconds = 0;
  // Calls that wait for a context's work block all other threads of the context meanwhile, like a
  // driver that waits while it holds its locks.
  bool locked_waits = false;
  // Making a stream waits for the host functions that run; so does the end of an executable graph
  // of which a launch is under way.
  bool stream_waits = false;
  // Of the management library: which call never returns, as with a GPU that hangs.
  enum class Hang { kNone, kInit, kUtilization };
  Hang nvml_hang = Hang::kNone;
  // Reservations lie where they are asked for; false: where the driver chooses, always.
  bool wanted_addresses = true;
  int queue_places = 1021;   // pending operations of a stream before a submission waits
  std::string shared;        // memory file of all processes; empty: none
  size_t context_bytes = 0;  // that a context takes
  int context_end_milliseconds = 0;
  // Of cuInit. The memory of processes that end meanwhile is free when it is over.
  int init_milliseconds = 0;
  int slot = 0;              // where device memory lies, see above
  int connections = 8;       // sim/context/channels.h
  std::vector<int> visible;  // units in the order of the CUDA ordinals

  size_t unit_bytes() const;  // of memory
  int compute_capability(int gpu) const;
};

// The same for every process: depends on the capability and the unit only.
Uuid device_uuid(int compute_capability, int unit);
// "GPU-66617267-7075-2d73-696d-000000005a00", "MIG-..." of an instance.
std::string uuid_text(const Uuid& uuid);
// "fargpu simulated GPU (sm_90)", "fargpu simulated GPU (sm_90) MIG 1g.2gb".
std::string device_name(const Settings& settings, int gpu);
// Domain, device and function are 0.
constexpr int pci_bus(int index) { return 0x10 + index; }

// The rules of CUDA: the list ends at its first invalid entry, and an entry given twice leaves no
// device at all. Of GPUs that are divided one instance is left; a GPU stands for its first one.
std::vector<int> parse_visible_devices(std::string_view text, const Settings& settings);

// `get` returns the value of a variable or nullptr.
Result<Settings> read_settings(const std::function<const char*(const char*)>& get);

}  // namespace fargpu::sim
