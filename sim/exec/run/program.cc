#include "sim/exec/run/program.h"

#include <fmt/core.h>

#include <thread>

#include "sim/exec/run/load.h"

namespace fargpu::sim {

namespace {
constexpr uint32_t kMostClustered = 16;  // blocks of a cluster
}  // namespace

ProgramImpl::ProgramImpl(MemoryMap& memory, const EngineOptions& options)
    : memory_(memory), options_(options), heap_(memory, options.malloc_heap_bytes) {}

ProgramImpl::~ProgramImpl() {
  for (const uint64_t address : allocations_) memory_.release(address);
}

bool ProgramImpl::load(std::span<const std::string_view> texts, LoadError& error) {
  if (!load_program(texts, memory_, options_, code_, globals_, allocations_, error)) return false;
  for (uint32_t i = 0; i < code_.functions.size(); ++i) {
    if (code_.functions[i].is_entry && code_.functions[i].defined)
      kernels_.emplace(code_.functions[i].name, i);
  }
  return true;
}

std::vector<std::string> ProgramImpl::kernel_names() const {
  std::vector<std::string> names;
  for (const auto& [name, index] : kernels_) names.push_back(name);
  return names;
}

const KernelInfo* ProgramImpl::kernel(std::string_view name) const {
  const auto found = kernels_.find(name);
  return found == kernels_.end() ? nullptr : &code_.functions[found->second].info;
}

std::optional<Fault> ProgramImpl::run(std::string_view kernel, const GridConfig& config,
                                      std::span<const std::byte> parameters,
                                      const std::function<void(std::string_view)>& output) {
  const auto refuse = [&](std::string text) {
    Fault fault;
    fault.kind = Fault::Kind::kIllegalInstruction;
    fault.kernel = kernel;
    fault.text = std::move(text);
    return fault;
  };
  const auto found = kernels_.find(kernel);
  if (found == kernels_.end()) return refuse(fmt::format("no kernel '{}' in this program", kernel));
  const FunctionCode& function = code_.functions[found->second];
  uint64_t threads = 1, blocks = 1;
  for (int i = 0; i < 3; ++i) {
    threads *= config.block[i];
    if (config.block[i] > 1024 || threads > 1024) threads = 0;
    blocks = config.grid[i] != 0 && blocks > (uint64_t{1} << 40) / config.grid[i]
                 ? 0
                 : blocks * config.grid[i];
  }
  if (threads == 0 || blocks == 0)
    return refuse(fmt::format("kernel {}: no such launch dimensions", kernel));
  if (parameters.size() < function.info.parameter_bytes) {
    return refuse(fmt::format("kernel {} takes {} bytes of parameters, got {}", kernel,
                              function.info.parameter_bytes, parameters.size()));
  }
  if (config.dynamic_shared_bytes > (size_t{1} << 24))
    return refuse(fmt::format("kernel {}: too much dynamic shared memory", kernel));
  Grid grid;
  grid.program = &code_;
  grid.kernel = &function;
  grid.config = config;
  auto& cluster = grid.config.cluster;
  if (cluster[0] == 0) cluster = function.info.required_cluster;
  grid.explicit_cluster = cluster[0] != 0;
  if (!grid.explicit_cluster) cluster = {1, 1, 1};
  for (int i = 0; i < 3; ++i) {
    grid.cluster_blocks *= cluster[i];
    if (cluster[i] == 0 || config.grid[i] % cluster[i] != 0 || grid.cluster_blocks > kMostClustered)
      return refuse(fmt::format("kernel {}: no such cluster", kernel));
  }
  grid.parameters = parameters;
  grid.output = &output;
  grid.memory = &memory_;
  grid.heap = &heap_;
  grid.sm_count = std::max(options_.sm_count, 1u);
  grid.id = next_grid_.fetch_add(1, std::memory_order_relaxed);
  grid.block_count = blocks;
  grid.local_bytes = static_cast<uint32_t>(function.local_need);
  grid.shared_bytes =
      static_cast<uint32_t>(function.info.static_shared_bytes + config.dynamic_shared_bytes);
  if (config.dynamic_shared_bytes != 0) {
    const size_t base = (function.info.static_shared_bytes + kDynamicSharedAlign - 1) /
                        kDynamicSharedAlign * kDynamicSharedAlign;
    grid.shared_bytes = static_cast<uint32_t>(base + config.dynamic_shared_bytes);
  }
  if (grid.cluster_blocks > 1 && grid.shared_bytes >= kClusterStride)
    return refuse(fmt::format("kernel {}: too much shared memory for a cluster", kernel));
  if (config.cooperative) {
    // What grid.sync() finds through %envreg1 and %envreg2: a size, then the barrier's counter; all
    // zero at the start.
    grid.workspace = memory_.allocate(kWorkspaceBytes);
    if (grid.workspace == 0)
      return refuse(fmt::format("kernel {}: no memory for the grid barrier", kernel));
  }
  const unsigned cores = std::max(std::thread::hardware_concurrency(), 1u);
  run_grid(grid, pool_,
           options_.worker_threads > 0 ? static_cast<unsigned>(options_.worker_threads) : cores);
  if (grid.workspace != 0) memory_.release(grid.workspace);
  return std::move(grid.fault);
}

LoadResult load_ptx_linked(std::span<const std::string_view> texts, MemoryMap& memory,
                           const EngineOptions& options) {
  LoadResult result;
  auto program = std::make_unique<ProgramImpl>(memory, options);
  if (program->load(texts, result.error)) result.program = std::move(program);
  return result;
}

LoadResult load_ptx(std::string_view text, MemoryMap& memory, const EngineOptions& options) {
  return load_ptx_linked({&text, 1}, memory, options);
}

FormSupport form_support(std::string_view form) {
  ProgramCode code;
  code.functions.resize(1);
  ConstantPool constants;
  const std::unordered_map<std::string_view, Symbol> symbols;
  LoweringContext context{.program = &code, .constants = &constants, .symbols = &symbols};
  ptx::Instruction instruction;
  for (size_t start = 0; start <= form.size();) {
    const size_t end = std::min(form.find('.', start), form.size());
    const std::string_view word = form.substr(start, end - start);
    if (start == 0)
      instruction.opcode = word;
    else
      instruction.modifiers.push_back(word);
    start = end + 1;
  }
  const ptx::Function function;
  Lowering lowering(context, function, 0, true);
  ptx::Diagnostic error;
  if (lowering.try_form(instruction, error)) return FormSupport::kExecuted;
  return is_refused_group(instruction.opcode, instruction.modifiers) ? FormSupport::kRefused
                                                                     : FormSupport::kUnknown;
}

}  // namespace fargpu::sim
