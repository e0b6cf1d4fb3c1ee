// Every function that cuGetProcAddress can name, with the CUDA version of each of its ABIs. Made
// from the description at build time.
#pragma once

#include <atomic>
#include <span>
#include <string_view>

namespace fargpu::sim {

struct ProcEntry {
  std::string_view name;  // "cuMemAlloc"
  int version;            // 3020
  bool per_thread;        // the variant for the per-thread default stream
  void* address;
};

// Sorted by name, per_thread, version.
std::span<const ProcEntry> proc_table();

// CUDA_ERROR_NOT_SUPPORTED; the name goes to the log once.
int refuse(const char* name, std::atomic<bool>* logged);

}  // namespace fargpu::sim
