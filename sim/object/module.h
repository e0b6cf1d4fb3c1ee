// Loaded code: modules and their functions (of one context), libraries and their kernels (of the
// process, loaded into a context when first needed there). Thread safe where not said otherwise.
#pragma once

#include <cuda.h>

#include <array>
#include <atomic>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "sim/base/registry.h"
#include "sim/base/settings.h"
#include "sim/exec/engine.h"
#include "sim/object/managed_variables.h"

namespace fargpu::sim {

class Context;
class ContextMemory;
struct Module;
struct Library;

// PTX texts that make up one module.
using ImageTexts = std::shared_ptr<const std::vector<std::string>>;

// The attributes of a function that a program may change. What is set for the function of a kernel
// overrides what is set for the kernel, before or afterwards; the kernel's own stay as they are.
struct FunctionSettings {
  static constexpr int kNotSet = std::numeric_limits<int>::min();

  explicit FunctionSettings(std::shared_ptr<FunctionSettings> of_kernel = nullptr)
      : kernel(std::move(of_kernel)) {
    for (auto& value : values) value = kNotSet;
  }
  int get(CUfunction_attribute attribute) const {
    const int own = values[attribute];
    return own == kNotSet && kernel != nullptr ? kernel->get(attribute) : own;
  }
  void set(CUfunction_attribute attribute, int value) { values[attribute] = value; }

  const std::shared_ptr<FunctionSettings> kernel;  // null: a module's function, or a kernel
  std::array<std::atomic<int>, CU_FUNC_ATTRIBUTE_MAX> values;
};

// The state of CUDA 3's launch interface in a function; guarded by mutex.
struct OldLaunch {
  std::mutex mutex;
  std::array<unsigned, 3> block = {1, 1, 1};
  unsigned shared_bytes = 0;
  std::vector<std::byte> parameters;
};

struct Function {
  static constexpr ObjectKind kKind = ObjectKind::kFunction;
  std::weak_ptr<Module> module;
  const KernelInfo* info = nullptr;  // of the module's program
  std::shared_ptr<FunctionSettings> settings;
  OldLaunch old_launch;
};

struct Module {
  static constexpr ObjectKind kKind = ObjectKind::kModule;
  std::weak_ptr<Context> context;
  uint64_t context_id = 0;
  std::shared_ptr<ContextMemory> memory;      // outlives program
  std::shared_ptr<ManagedVariables> managed;  // a library's modules have the library's
  std::unique_ptr<Program> program;
  std::weak_ptr<Library> library;  // empty: loaded by cuModuleLoad*
  uint64_t handle = 0;

  std::mutex mutex;
  std::map<std::string, uint64_t, std::less<>> functions;  // handles made so far; guarded by mutex
};

struct Kernel {
  static constexpr ObjectKind kKind = ObjectKind::kKernel;
  std::weak_ptr<Library> library;
  KernelInfo info;
  // by device ordinal; never changed after creation
  std::array<std::shared_ptr<FunctionSettings>, kMaxGpus> settings;
};

struct Library {
  static constexpr ObjectKind kKind = ObjectKind::kLibrary;
  ImageTexts texts;
  uint64_t handle = 0;
  std::map<std::string, uint64_t, std::less<>> kernels;  // handles; complete after loading
  std::shared_ptr<ManagedVariables> managed = std::make_shared<ManagedVariables>();
  // Why nothing in it can be used. Loading succeeds all the same, as the driver loads lazily.
  CUresult error = CUDA_SUCCESS;
  std::string problem;
  std::once_flag problem_logged;

  std::mutex mutex;                                     // held while a module is loaded
  std::map<uint64_t, std::shared_ptr<Module>> modules;  // by context id; guarded by mutex
};

// The clusters that every launch has, in blocks; 0: it may have any.
std::array<uint32_t, 3> required_cluster(const KernelInfo& info, const FunctionSettings& settings);
// The function's or kernel's attribute as CUDA reports it. CUDA_ERROR_INVALID_VALUE for an unknown
// one.
CUresult function_attribute(const KernelInfo& info, const FunctionSettings& settings,
                            int compute_capability, CUfunction_attribute attribute, int* value);
CUresult set_function_attribute(const KernelInfo& info, FunctionSettings& settings,
                                const class Device& device, CUfunction_attribute attribute,
                                int value);

CUresult parameter_info(const KernelInfo& info, size_t index, size_t* offset, size_t* size);
// Outputs may be null. CUDA_ERROR_NOT_FOUND.
CUresult find_global(const Module& module, const char* name, CUdeviceptr* address, size_t* bytes);

// --- loading; `problem` receives one line when the result is not CUDA_SUCCESS
// `managed`: the library's variables; null: the module has its own.
CUresult load_texts(Context& context, const ImageTexts& texts,
                    std::shared_ptr<ManagedVariables> managed, std::shared_ptr<Module>* module,
                    std::string* problem);
// Never fails for the contents of the image: see Library::error.
std::shared_ptr<Library> load_library(const void* image, Context* context);
// The library's error, logged the first time.
CUresult usable(Library& library);
// The library's module in a context, loaded now if need be. With Settings::locked_waits that waits
// for all work of the context.
CUresult library_module(Library& library, Context& context, std::shared_ptr<Module>* module);
// Image -> texts, or CUDA_ERROR_NO_BINARY_FOR_GPU, CUDA_ERROR_INVALID_IMAGE ...
CUresult texts_of_image(const void* image, int compute_capability, ImageTexts* texts,
                        std::string* problem);
// Errors in the PTX of one input of a link that can be found without the other inputs: names that
// nothing defines yet are no error, and hide the ones behind them.
CUresult check_before_linking(const Context& context, const std::vector<std::string>& texts,
                              std::string* problem);
// The error that a refused PTX text gives.
CUresult to_result(LoadError::Kind kind);

// Handle of a function of a module; 0: no such kernel.
uint64_t function_handle(const std::shared_ptr<Module>& module, std::string_view name);
// A CUfunction, or a CUkernel cast to one, as a function of the current context, with the module
// that keeps it usable.
struct LaunchTarget {
  std::shared_ptr<Module> module;
  std::shared_ptr<Function> function;
};
CUresult find_function(Context& context, CUfunction handle, LaunchTarget* target);

}  // namespace fargpu::sim
