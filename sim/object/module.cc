#include "sim/object/module.h"

#include <algorithm>
#include <cstdlib>
#include <map>

#include "sim/base/program_report.h"
#include "sim/context/context.h"
#include "sim/driver/device.h"
#include "sim/driver/driver.h"
#include "sim/exec/run/load.h"
#include "sim/fatbin/image.h"
#include "sim/object/ptx_isa.h"

namespace fargpu::sim {
namespace {

// Memory for a program that is loaded only to be asked about its kernels.
class ScratchMemory final : public MemoryMap {
 public:
  std::optional<Range> find(uint64_t, size_t) const override { return std::nullopt; }
  uint64_t allocate(size_t bytes) override {
    auto block = std::make_unique<std::byte[]>(bytes + 256);
    const uint64_t address = (reinterpret_cast<uint64_t>(block.get()) + 255) & ~uint64_t{255};
    blocks_[address] = std::move(block);
    return address;
  }
  void release(uint64_t address) override { blocks_.erase(address); }

 private:
  std::map<uint64_t, std::unique_ptr<std::byte[]>> blocks_;
};

// What device code may call and the driver defines: the value of a conditional handle is at its
// address.
constexpr std::string_view kSetConditional = R"ptx(
.version 6.4
.target sm_70
.address_size 64
.visible .func cudaGraphSetConditional(.param .b64 handle, .param .b32 value)
{
  .reg .b64 %address;
  .reg .b32 %value;
  ld.param.u64 %address, [handle];
  ld.param.u32 %value, [value];
  st.global.u32 [%address], %value;
  ret;
}
)ptx";

bool calls_set_conditional(const std::string& text) {
  return text.find(".extern .func cudaGraphSetConditional") != std::string::npos;
}

LoadResult load(const std::vector<std::string>& texts, MemoryMap& memory,
                const EngineOptions& options) {
  const bool sets = std::ranges::any_of(texts, calls_set_conditional);
  if (texts.size() == 1 && !sets) return load_ptx(texts[0], memory, options);
  std::vector<std::string_view> views(texts.begin(), texts.end());
  if (sets) views.push_back(kSetConditional);
  return load_ptx_linked(views, memory, options);
}

// What a block may have without asking for more. A kernel whose own arrays need more than that,
// which only PTX can say, has all that there is.
std::shared_ptr<FunctionSettings> make_settings(const KernelInfo& info, const Device& device) {
  auto settings = std::make_shared<FunctionSettings>();
  const auto own = static_cast<int>(info.static_shared_bytes);
  const int usual = device.attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
  const int most = device.attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  for (int each = 0; each < CU_FUNC_ATTRIBUTE_MAX; ++each)
    settings->set(static_cast<CUfunction_attribute>(each), 0);
  settings->set(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                std::max(0, (own <= usual ? usual : most) - own));
  settings->set(CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, -1);
  return settings;
}

}  // namespace

CUresult to_result(LoadError::Kind kind) {
  switch (kind) {
    case LoadError::Kind::kNoMemory:
      return CUDA_ERROR_OUT_OF_MEMORY;
    case LoadError::Kind::kUnsupportedTarget:
    case LoadError::Kind::kInvalidPtx:
    case LoadError::Kind::kUnsupportedInstruction:
    case LoadError::Kind::kUnresolvedSymbol:
      return CUDA_ERROR_INVALID_PTX;
  }
  return CUDA_ERROR_INVALID_PTX;
}

CUresult texts_of_image(const void* image, int compute_capability, ImageTexts* texts,
                        std::string* problem) {
  auto read = read_image(image, compute_capability);
  if (!read) {
    *problem = read.status().message();
    return read.status().code() == StatusCode::kNotFound ? CUDA_ERROR_NO_BINARY_FOR_GPU
                                                         : CUDA_ERROR_INVALID_IMAGE;
  }
  *texts = std::make_shared<const std::vector<std::string>>(std::move(*read));
  return CUDA_SUCCESS;
}

CUresult check_before_linking(const Context& context, const std::vector<std::string>& texts,
                              std::string* problem) {
  if (const CUresult result = check_isa(texts, problem); result != CUDA_SUCCESS) return result;
  for (const std::string& text : texts) {
    ScratchMemory scratch;  // outlives the program
    const LoadResult loaded =
        load_ptx(text, scratch, context.device().engine_options(size_t{1} << 20));
    if (loaded.program || loaded.error.kind == LoadError::Kind::kUnresolvedSymbol) continue;
    return refused(loaded.error, texts, problem);
  }
  return CUDA_SUCCESS;
}

CUresult load_texts(Context& context, const ImageTexts& texts,
                    std::shared_ptr<ManagedVariables> managed, std::shared_ptr<Module>* module,
                    std::string* problem) {
  if (const CUresult result = check_isa(*texts, problem); result != CUDA_SUCCESS) return result;
  size_t heap = 0;
  context.limit(CU_LIMIT_MALLOC_HEAP_SIZE, &heap);
  auto made = std::make_shared<Module>();
  made->context = context.weak_from_this();
  made->context_id = context.id();
  made->memory = context.shared_memory();
  made->managed = managed != nullptr ? std::move(managed) : std::make_shared<ManagedVariables>();
  EngineOptions options = context.device().engine_options(heap);
  options.managed = made->managed.get();
  LoadResult result = load(*texts, *made->memory, options);
  if (!result.program) return refused(result.error, *texts, problem);
  made->program = std::move(result.program);
  made->handle = Driver::get().registry().add(made, context.id());
  *module = std::move(made);
  return CUDA_SUCCESS;
}

namespace {

// The kernels of a program that was loaded to be looked at.
void add_kernels(const std::shared_ptr<Library>& library, const Program& program) {
  for (const std::string& name : program.kernel_names()) {
    auto kernel = std::make_shared<Kernel>();
    kernel->library = library;
    kernel->info = *program.kernel(name);
    for (const auto& device : Driver::get().devices())
      kernel->settings[static_cast<size_t>(device->ordinal())] =
          make_settings(kernel->info, *device);
    library->kernels[name] = Driver::get().registry().add(std::move(kernel), 0);
  }
}

CUresult load_contents(const std::shared_ptr<Library>& library, const void* image,
                       Context* context) {
  const Device* const device = context != nullptr ? &context->device() : Driver::get().device(0);
  if (device == nullptr) return CUDA_ERROR_NO_DEVICE;
  CUresult result =
      texts_of_image(image, device->compute_capability(), &library->texts, &library->problem);
  if (result != CUDA_SUCCESS) return result;
  if (context != nullptr) {
    std::shared_ptr<Module> module;
    result = load_texts(*context, library->texts, library->managed, &module, &library->problem);
    if (result != CUDA_SUCCESS) return result;
    module->library = library;
    add_kernels(library, *module->program);
    library->modules[context->id()] = std::move(module);
    return CUDA_SUCCESS;
  }
  ScratchMemory scratch;
  EngineOptions options = device->engine_options(size_t{1} << 20);
  options.managed = library->managed.get();
  LoadResult loaded = load(*library->texts, scratch, options);
  if (!loaded.program) return refused(loaded.error, *library->texts, &library->problem);
  add_kernels(library, *loaded.program);
  loaded.program.reset();  // before its memory
  return CUDA_SUCCESS;
}

}  // namespace

std::shared_ptr<Library> load_library(const void* image, Context* context) {
  auto library = std::make_shared<Library>();
  library->error = load_contents(library, image, context);
  library->handle = Driver::get().registry().add(library, 0);
  return library;
}

CUresult usable(Library& library) {
  if (library.error != CUDA_SUCCESS) {
    std::call_once(library.problem_logged,
                   [&] { report_to_program("a library cannot be used: " + library.problem); });
  }
  return library.error;
}

CUresult library_module(Library& library, Context& context, std::shared_ptr<Module>* module) {
  if (CUresult result = usable(library); result != CUDA_SUCCESS) return result;
  std::lock_guard lock(library.mutex);
  std::erase_if(library.modules, [](const auto& entry) {
    const auto owner = entry.second->context.lock();
    return !owner || !owner->alive();
  });
  auto& known = library.modules[context.id()];
  if (!known) {
    std::string problem;
    std::shared_ptr<Module> made;
    if (CUresult result = load_texts(context, library.texts, library.managed, &made, &problem);
        result != CUDA_SUCCESS) {
      report_to_program("cannot load a library: " + problem);
      library.modules.erase(context.id());
      return result;
    }
    context.quiesce_if_locked();
    made->library = Driver::get().registry().find<Library>(library.handle);
    known = std::move(made);
  }
  *module = known;
  return CUDA_SUCCESS;
}

uint64_t function_handle(const std::shared_ptr<Module>& module, std::string_view name) {
  std::lock_guard lock(module->mutex);
  if (auto it = module->functions.find(name); it != module->functions.end()) return it->second;
  const KernelInfo* info = module->program->kernel(name);
  if (info == nullptr) return 0;
  auto function = std::make_shared<Function>();
  function->module = module;
  function->info = info;
  Registry& registry = Driver::get().registry();
  const auto context = module->context.lock();
  if (!context) return 0;
  if (auto library = module->library.lock()) {
    const auto kernel = registry.find<Kernel>(library->kernels.at(std::string(name)));
    if (!kernel) return 0;
    function->settings = std::make_shared<FunctionSettings>(
        kernel->settings[static_cast<size_t>(context->device().ordinal())]);
  } else {
    function->settings = make_settings(*info, context->device());
  }
  const uint64_t handle = registry.add(std::move(function), module->context_id);
  module->functions.emplace(name, handle);
  return handle;
}

CUresult find_function(Context& context, CUfunction handle, LaunchTarget* target) {
  Registry& registry = Driver::get().registry();
  target->function = registry.find<Function>(handle);
  if (!target->function) {
    auto kernel = registry.find<Kernel>(handle);
    auto library = kernel ? kernel->library.lock() : nullptr;
    if (!library) return CUDA_ERROR_INVALID_HANDLE;
    std::shared_ptr<Module> module;
    if (CUresult result = library_module(*library, context, &module); result != CUDA_SUCCESS)
      return result;
    target->function = registry.find<Function>(function_handle(module, kernel->info.name));
    if (!target->function) return CUDA_ERROR_INVALID_HANDLE;
  }
  target->module = target->function->module.lock();
  if (!target->module) return CUDA_ERROR_INVALID_HANDLE;
  return target->module->context_id == context.id() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult parameter_info(const KernelInfo& info, size_t index, size_t* offset, size_t* size) {
  if (offset == nullptr || index >= info.parameters.size()) return CUDA_ERROR_INVALID_VALUE;
  *offset = info.parameters[index].offset;
  if (size != nullptr) *size = info.parameters[index].size;
  return CUDA_SUCCESS;
}

CUresult find_global(const Module& module, const char* name, CUdeviceptr* address, size_t* bytes) {
  for (const GlobalInfo& global : module.program->globals()) {
    if (global.name != name) continue;
    if (address != nullptr) *address = global.address;
    if (bytes != nullptr) *bytes = global.bytes;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_NOT_FOUND;
}

CUresult function_attribute(const KernelInfo& info, const FunctionSettings& settings,
                            int compute_capability, CUfunction_attribute attribute, int* value) {
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      *value = info.max_threads_per_block;
      break;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
      *value = static_cast<int>(info.static_shared_bytes);
      break;
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
      *value = static_cast<int>(info.constant_bytes);
      break;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
      *value = static_cast<int>(info.local_bytes);
      break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      *value = info.registers;
      break;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
      *value = info.target_arch;
      break;
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
      *value = compute_capability;
      break;
    case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA:
      *value = 0;
      break;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET:
      *value = info.explicit_cluster ? 1 : 0;
      break;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
      *value = static_cast<int>(
          required_cluster(info, settings)[attribute - CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH]);
      break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      *value = settings.get(attribute);
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

std::array<uint32_t, 3> required_cluster(const KernelInfo& info, const FunctionSettings& settings) {
  if (info.required_cluster[0] != 0) return info.required_cluster;
  const auto blocks = [&](CUfunction_attribute attribute) {
    return static_cast<uint32_t>(settings.get(attribute));
  };
  return {blocks(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH),
          blocks(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT),
          blocks(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH)};
}

CUresult set_function_attribute(const KernelInfo& info, FunctionSettings& settings,
                                const Device& device, CUfunction_attribute attribute, int value) {
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: {
      const int most = device.attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
      if (value < 0 || value > most - static_cast<int>(info.static_shared_bytes))
        return CUDA_ERROR_INVALID_VALUE;
      break;
    }
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      if (value < -1 || value > 100) return CUDA_ERROR_INVALID_VALUE;
      break;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
      if (value < 0) return CUDA_ERROR_INVALID_VALUE;
      if (info.required_cluster[0] != 0) return CUDA_ERROR_NOT_PERMITTED;
      break;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
      value = value != 0 ? 1 : 0;
      break;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      if (value < CU_CLUSTER_SCHEDULING_POLICY_DEFAULT ||
          value > CU_CLUSTER_SCHEDULING_POLICY_LOAD_BALANCING)
        return CUDA_ERROR_INVALID_VALUE;
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  settings.set(attribute, value);
  return CUDA_SUCCESS;
}

}  // namespace fargpu::sim
