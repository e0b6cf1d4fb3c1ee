// Linking at run time: PTX inputs become one image for cuModuleLoadData.
#include "common/base/log.h"
#include "sim/base/program_report.h"
#include "sim/fatbin/linked_image.h"
#include "sim/object/api.h"
#include "sim/object/module.h"
#include "sim/work/jit_options.h"

using namespace fargpu::sim;

namespace {

// Linking nothing gives a module without anything in it, not an error.
constexpr char kEmptyModule[] = ".version 7.5\n.target sm_75\n.address_size 64\n";

struct LinkState {
  static constexpr ObjectKind kKind = ObjectKind::kLinkState;
  explicit LinkState(std::weak_ptr<Context> owner) : context(std::move(owner)) {}

  const std::weak_ptr<Context> context;
  const std::thread::id maker = std::this_thread::get_id();
  std::mutex mutex;
  JitOptions options;
  std::vector<std::string> texts;
  std::vector<std::byte> image;  // made by cuLinkComplete
  bool complete = false;         // nothing can be added any more
};

// Options of one input: there is no code generation here that they could steer. Log buffers are the
// link's, as for the real driver.
CUresult check_input_options(unsigned count, CUjit_option* options, void** values) {
  for (unsigned i = 0; i < count && options != nullptr; ++i) {
    if (options[i] == CU_JIT_LTO || options[i] == CU_JIT_TARGET_FROM_CUCONTEXT ||
        options[i] == CU_JIT_OPTIMIZE_UNUSED_DEVICE_VARIABLES)
      return CUDA_ERROR_INVALID_VALUE;  // of the whole link
  }
  JitOptions parsed;
  const CUresult result = parsed.parse(count, options, values);
  return result == CUDA_SUCCESS && parsed.has_logs() ? CUDA_ERROR_INVALID_VALUE : result;
}

CUresult add_input(LinkState& state, const Context& context, CUjitInputType type,
                   std::string_view data, const char* name) {
  std::string problem;
  ImageTexts texts;
  CUresult result = CUDA_SUCCESS;
  switch (type) {
    case CU_JIT_INPUT_PTX:
    case CU_JIT_INPUT_FATBINARY: {
      // A NUL-terminated copy: the input may end at the end of a page.
      const std::string copy(data);
      result =
          texts_of_image(copy.c_str(), context.device().compute_capability(), &texts, &problem);
      if (result == CUDA_SUCCESS) result = check_before_linking(context, *texts, &problem);
      break;
    }
    case CU_JIT_INPUT_CUBIN:
    case CU_JIT_INPUT_OBJECT:
    case CU_JIT_INPUT_LIBRARY:
    case CU_JIT_INPUT_NVVM:
      problem = "only PTX can be linked for the simulated GPU";
      result = CUDA_ERROR_NO_BINARY_FOR_GPU;
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  std::lock_guard lock(state.mutex);
  if (state.complete) return CUDA_ERROR_INVALID_VALUE;
  if (result != CUDA_SUCCESS) {
    report_to_program("cannot link \"" + std::string(name != nullptr ? name : "") +
                      "\": " + problem);
    state.options.report(problem);
    return result;
  }
  state.texts.insert(state.texts.end(), texts->begin(), texts->end());
  return CUDA_SUCCESS;
}

// body(Context&, LinkState&)
template <typename Body>
CUresult with_link(CUlinkState handle, Body&& body) {
  return with_driver([&](Driver& driver) -> CUresult {
    const auto state = driver.registry().find<LinkState>(handle);
    std::shared_ptr<Context> context;
    CUresult result = current_context(&context);
    if (result == CUDA_ERROR_INVALID_CONTEXT && state) {
      context = state->context.lock();
      if (context && context->alive()) result = CUDA_SUCCESS;
    }
    if (result == CUDA_SUCCESS) result = context->error();
    if (result != CUDA_SUCCESS) return result;
    return state ? body(*context, *state) : CUDA_ERROR_INVALID_HANDLE;
  });
}

}  // namespace

CUresult CUDAAPI cuLinkCreate_v2(unsigned int numOptions, CUjit_option* options,
                                 void** optionValues, CUlinkState* stateOut) {
  return with_context([&](Context& context) -> CUresult {
    if (stateOut == nullptr) return CUDA_ERROR_INVALID_VALUE;
    auto state = std::make_shared<LinkState>(context.weak_from_this());
    const CUresult result = state->options.parse(numOptions, options, optionValues);
    if (result != CUDA_SUCCESS) return result;
    state->options.report({});  // empty logs, as long as nothing is wrong
    *stateOut =
        to_handle<CUlinkState>(Driver::get().registry().add(std::move(state), context.id()));
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void* data, size_t size,
                                  const char* name, unsigned int numOptions, CUjit_option* options,
                                  void** optionValues) {
  return with_link(state, [&](Context& context, LinkState& link) -> CUresult {
    if (data == nullptr || size == 0) return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = check_input_options(numOptions, options, optionValues);
    if (result != CUDA_SUCCESS) return result;
    return add_input(link, context, type, {static_cast<const char*>(data), size}, name);
  });
}

CUresult CUDAAPI cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char* path,
                                  unsigned int numOptions, CUjit_option* options,
                                  void** optionValues) {
  return with_link(state, [&](Context& context, LinkState& link) -> CUresult {
    if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
    CUresult result = check_input_options(numOptions, options, optionValues);
    if (result != CUDA_SUCCESS) return result;
    std::string contents;
    if (result = read_image_file(path, &contents); result != CUDA_SUCCESS) return result;
    return add_input(link, context, type, contents, path);
  });
}

// Loads the result once on trial, so that what cannot be linked is said here.
CUresult CUDAAPI cuLinkComplete(CUlinkState state, void** cubinOut, size_t* sizeOut) {
  return with_link(state, [&](Context& context, LinkState& link) -> CUresult {
    if (cubinOut == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::lock_guard lock(link.mutex);
    if (!link.texts.empty() && link.maker != std::this_thread::get_id()) {
      fargpu::log::error("a link is completed by another thread than made it: drivers crash there");
      return CUDA_ERROR_UNKNOWN;
    }
    if (link.complete) return CUDA_ERROR_INVALID_HANDLE;  // as the real driver does
    if (link.texts.empty()) link.texts.emplace_back(kEmptyModule);
    std::string problem;
    std::shared_ptr<Module> trial;
    const auto texts = std::make_shared<const std::vector<std::string>>(link.texts);
    const CUresult result = load_texts(context, texts, nullptr, &trial, &problem);
    link.options.report(problem);
    if (result != CUDA_SUCCESS) {
      report_to_program("cannot link: " + problem);
      return result;
    }
    Driver::get().registry().remove<Module>(trial->handle);
    link.image = pack_linked_image(link.texts);
    link.complete = true;
    *cubinOut = link.image.data();
    if (sizeOut != nullptr) *sizeOut = link.image.size();
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuLinkDestroy(CUlinkState state) {
  return with_driver([&](Driver& driver) -> CUresult {
    return driver.registry().remove<LinkState>(state) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  });
}

CUresult CUDAAPI cuLinkCreate(unsigned int numOptions, CUjit_option* options, void** optionValues,
                              CUlinkState* stateOut) {
  return cuLinkCreate_v2(numOptions, options, optionValues, stateOut);
}
CUresult CUDAAPI cuLinkAddData(CUlinkState state, CUjitInputType type, void* data, size_t size,
                               const char* name, unsigned int numOptions, CUjit_option* options,
                               void** optionValues) {
  return cuLinkAddData_v2(state, type, data, size, name, numOptions, options, optionValues);
}
CUresult CUDAAPI cuLinkAddFile(CUlinkState state, CUjitInputType type, const char* path,
                               unsigned int numOptions, CUjit_option* options,
                               void** optionValues) {
  return cuLinkAddFile_v2(state, type, path, numOptions, options, optionValues);
}
