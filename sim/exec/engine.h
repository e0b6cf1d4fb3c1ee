// The PTX engine's face towards the simulated driver: ask about kernels, run a grid. run/load.h
// loads PTX text. Knows nothing of streams, contexts or handles. A Program is immutable after load
// and may be run by several threads at once.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/image/image.h"

namespace fargpu::sim {

struct LoadError {
  enum class Kind {
    kInvalidPtx,
    kUnsupportedInstruction,
    kUnresolvedSymbol,
    kNoMemory,  // for its variables
    kUnsupportedTarget
  } kind;
  std::string message;  // with instruction text
  int line = 0;         // 1-based line of the PTX text
};

struct ParameterInfo {
  size_t offset = 0, size = 0, align = 0;  // bytes
};

struct KernelInfo {
  std::string name;
  std::vector<ParameterInfo> parameters;
  size_t parameter_bytes = 0;
  size_t static_shared_bytes = 0;
  size_t local_bytes = 0;  // per thread
  size_t constant_bytes = 0;
  int registers = 0;  // an estimate (from the number of virtual registers, at most 255)
  int max_threads_per_block = 1024;                      // from .maxntid/.reqntid
  std::array<uint32_t, 3> required_block = {0, 0, 0};    // .reqntid, or 0
  std::array<uint32_t, 3> required_cluster = {0, 0, 0};  // .reqnctapercluster, or 0
  bool explicit_cluster = false;                         // .explicitcluster
  int ptx_version = 0;                                   // 90 for ISA 9.0
  int target_arch = 0;                                   // 75 for sm_75
};

struct GlobalInfo {
  std::string name;
  uint64_t address = 0;  // in device memory
  size_t bytes = 0;
  bool is_constant = false;
  bool is_managed = false;
};

// Where variables with .attribute(.managed) lie, instead of in the module's own memory.
class ManagedPlaces {
 public:
  virtual ~ManagedPlaces() = default;
  struct Place {
    uint64_t address = 0;  // 0: out of memory
    bool is_new = false;   // zeroed, and without its initial value
  };
  // The variable `name`; the same one by each load of the library.
  virtual Place place(const std::string& name, size_t bytes, size_t align) = 0;
};

// Device memory as the engine sees it: host memory at the same address, checked. Implemented by the
// driver's allocator.
class MemoryMap {
 public:
  virtual ~MemoryMap() = default;
  // The allocation [base, base + bytes) that contains [address, address + bytes); nullopt: illegal
  // address. Thread safe, hot: called on a miss of the engine's per-thread cache only. `writable`
  // says whether stores are allowed. An answer stays valid for the whole grid.
  struct Range {
    uint64_t base = 0;
    uint64_t bytes = 0;
    bool writable = true;
  };
  virtual std::optional<Range> find(uint64_t address, size_t bytes) const = 0;
  // Memory for .global and .const variables of a module, and device-side malloc; zeroed. 0: out of
  // memory.
  virtual uint64_t allocate(size_t bytes) = 0;
  virtual void release(uint64_t address) = 0;
  // The image of a kernel's texture or surface value; null: nothing. Thread safe.
  virtual std::shared_ptr<const Texture> texture(uint64_t) const { return nullptr; }
  virtual std::shared_ptr<const Surface> surface(uint64_t) const { return nullptr; }
};

struct Fault {
  enum class Kind {
    kIllegalAddress,
    kMisalignedAddress,
    kIllegalInstruction,
    kTrap,
    kAssert,
    kStackOverflow,
    kInvalidProgramCounter,
    kDeadlock
  } kind;
  std::string kernel;
  std::array<uint32_t, 3> block{}, thread{};
  uint64_t address = 0;
  size_t bytes = 0;
  int ptx_line = 0;
  std::string text;  // one line for the log: all of the above and the instruction
  // kAssert: the driver's output, a line for each thread that failed; at most 1 MiB.
  std::string messages{};
};

// The graph operations of device code. Implemented by the driver; thread safe. The results are
// cudaError_t, as the device code gets them.
class DeviceGraphs {
 public:
  virtual ~DeviceGraphs() = default;
  // %current_graph_exec: the executable graph that the kernel runs in, if kernels may launch it.
  virtual uint64_t current() const = 0;
  virtual int launch(uint64_t exec, uint64_t stream) = 0;
  // Of a kernel node that kernels update.
  virtual int set_parameter(uint64_t node, size_t offset, std::span<const std::byte> value) = 0;
  virtual int set_enabled(uint64_t node, bool enabled) = 0;
  virtual int set_grid(uint64_t node, const std::array<uint32_t, 3>& grid) = 0;
};

struct GridConfig {
  std::array<uint32_t, 3> grid = {1, 1, 1}, block = {1, 1, 1};
  size_t dynamic_shared_bytes = 0;
  bool cooperative = false;  // all blocks must be able to wait for each other (grid.sync)
  std::array<uint32_t, 3> cluster = {0, 0, 0};  // 0: not given, which is a block on its own
  DeviceGraphs* graphs = nullptr;               // null: every call about graphs is refused
};

struct EngineOptions {
  int compute_capability = 90;  // 10 * major + minor
  int worker_threads = 0;       // 0: the machine's cores
  size_t malloc_heap_bytes = 8u << 20;
  uint32_t sm_count = 16;
  ManagedPlaces* managed = nullptr;  // null: managed variables are like others
};

class Program {
 public:
  virtual ~Program() = default;
  virtual std::vector<std::string> kernel_names() const = 0;
  virtual const KernelInfo* kernel(std::string_view name) const = 0;
  virtual std::vector<GlobalInfo> globals() const = 0;

  // Runs the whole grid and returns when it is done. `parameters`: KernelInfo::parameter_bytes laid
  // out as in ParameterInfo. `output` receives the text of device printf, in order
  // within a thread. nullopt: success.
  virtual std::optional<Fault> run(std::string_view kernel, const GridConfig& config,
                                   std::span<const std::byte> parameters,
                                   const std::function<void(std::string_view)>& output) = 0;
};

}  // namespace fargpu::sim
