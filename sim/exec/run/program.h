// Program's implementation: modules linked, variables placed, functions lowered; and grids run on
// it.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>

#include "sim/exec/builtins.h"
#include "sim/exec/lowering/lowering.h"
#include "sim/exec/program_code.h"
#include "sim/exec/run/worker_pool.h"

namespace fargpu::sim {

class ProgramImpl final : public Program {
 public:
  ProgramImpl(MemoryMap& memory, const EngineOptions& options);
  ~ProgramImpl() override;

  bool load(std::span<const std::string_view> texts, LoadError& error);

  std::vector<std::string> kernel_names() const override;
  const KernelInfo* kernel(std::string_view name) const override;
  std::vector<GlobalInfo> globals() const override { return globals_; }
  std::optional<Fault> run(std::string_view kernel, const GridConfig& config,
                           std::span<const std::byte> parameters,
                           const std::function<void(std::string_view)>& output) override;

 private:
  MemoryMap& memory_;
  const EngineOptions options_;
  ProgramCode code_;
  std::map<std::string, uint32_t, std::less<>> kernels_;  // index of the function
  std::vector<GlobalInfo> globals_;
  std::vector<uint64_t> allocations_;
  DeviceHeap heap_;
  WorkerPool pool_;
  std::atomic<uint64_t> next_grid_{1};
};

// Links modules and fills `code`. Split from the class so that the steps can be read one by one;
// loader.cc.
bool load_program(std::span<const std::string_view> texts, MemoryMap& memory,
                  const EngineOptions& options, ProgramCode& code, std::vector<GlobalInfo>& globals,
                  std::vector<uint64_t>& allocations, LoadError& error);

// Runs all blocks of a prepared grid on the pool and the calling thread; grid.cc.
void run_grid(Grid& grid, WorkerPool& pool, unsigned workers);

}  // namespace fargpu::sim
