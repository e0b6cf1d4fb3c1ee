#include "client/image/load.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "client/call/report.h"
#include "client/entry/to_wire.h"
#include "client/image/linked.h"
#include "client/image/own_layouts.h"
#include "client/image/send.h"
#include "client/image/twins.h"
#include "client/image/usable_part.h"
#include "client/object/context.h"
#include "client/process/session.h"
#include "common/base/log.h"
#include "common/fatbin/prelinked.h"
#include "common/host/sha256.h"
#include "generated/client/wire/internal.h"
#include "generated/schema/opcodes.h"
#include "schema/support/cuda_rules.h"

namespace fargpu::client {
namespace {

using schema::kMaxLogBytes;
using schema::kMaxParameterBytes;
using schema::kMaxParameters;
static_assert(kFunctionAttributes == schema::kFunctionAttributes);

CUresult image_error(const Status& status) {
  log::warn("{}", status.message());
  return CUDA_ERROR_INVALID_IMAGE;
}

// Of one image by one call. An image goes again only when others need its room in the cache.
constexpr int kMaxUploads = 3;

void tell_size(const char* text, unsigned bytes, void** slot) {
  if (slot == nullptr) return;
  const size_t used = text == nullptr ? 0 : strnlen(text, bytes);
  *slot = reinterpret_cast<void*>(used);
}

// Options by which it is not the GPU alone that decides what is taken from an image.
bool names_target(const JitOptions& jit) {
  return std::any_of(jit.options.begin(), jit.options.end(), [](int option) {
    return option == CU_JIT_TARGET || option == CU_JIT_FALLBACK_STRATEGY;
  });
}

// Servers have known blocks of prelinked containers for as long as this call.
bool links_images(const Session& session) { return session.knows(schema::op_fgStreamSynchronize); }

// With the containers of its objects, of which the driver takes what it needs.
template <typename Load>
CUresult load_prelinked(const Image& image, Load&& load) {
  std::vector<std::span<const std::byte>> containers{image.bytes};
  containers.insert(containers.end(), image.prelinked.begin(), image.prelinked.end());
  const PrelinkedBlock block = prelinked_block(containers);
  return load(ImageBytes(block.pieces));
}

// Runs `load` with what the server's GPUs can use of the image. A load that fails is made again
// with the whole image, so that its errors are those of the application's. (Where the driver loads
// lazily, errors of the part come later, when a kernel is asked for.) GPUs are all of the session:
// the worker uses them, whatever the application sees of them.
template <typename Load>
CUresult load_usable(Session& session, const Image& image, const JitOptions& jit, Load&& load) {
  const std::vector<int>& gpus = session.snapshot.capabilities;
  const ImageBytes alone(&image.bytes, 1);
  if (!names_target(jit)) {
    const UsablePart part = usable_part(image.bytes, gpus);
    if (!part.bytes.empty()) {
      if (load(ImageBytes(part.bytes)) == CUDA_SUCCESS) return CUDA_SUCCESS;
    } else if (!image.prelinked.empty() && has_machine_code(image.bytes, gpus)) {
      if (load(alone) == CUDA_SUCCESS) return CUDA_SUCCESS;
    }
  }
  return image.prelinked.empty() || !links_images(session) ? load(alone)
                                                           : load_prelinked(image, load);
}

// Before the program learns the handle. `bytes`: what of the image was loaded.
void keep_layouts(Session& session, const void* handle, const Image& image, ImageBytes bytes) {
  const auto id = reinterpret_cast<uint64_t>(handle);
  auto* const record = static_cast<ImageRecord*>(session.find(rpc::handle_kind(id), id));
  if (record == nullptr) return;  // its context has ended
  record->layouts = image.layouts;
  if (record->layouts != nullptr) return;
  record->layouts = std::make_shared<OwnLayouts>();
  record->layouts->add(bytes);
}

CUresult load_module_bytes(Session& session, ImageBytes bytes, const JitOptions& jit,
                           CUmodule* module) {
  const JitLogs logs(jit);
  logs.prepare();
  CUmodule made = nullptr;
  int outcome = CUDA_SUCCESS;
  const CUresult result = load_by_hash(session, bytes, [&](const unsigned char* hash) {
    return make_object(session, rpc::HandleKind::kModule, &made, [&](uint64_t id) {
      const uint16_t context = current_context_id();
      const DrainScope drain(session, context);
      return wire::fgModuleLoad(session, context, hash, static_cast<unsigned>(jit.options.size()),
                                jit.options.data(), jit.values.data(), jit.info_log_bytes,
                                jit.error_log_bytes, logs.info(), logs.error(), id, &outcome);
    });
  });
  logs.report_sizes();
  if (result != CUDA_SUCCESS) return result;
  if (outcome != CUDA_SUCCESS) {
    // The answer came to bring the logs; there is no module.
    session.handles.erase(reinterpret_cast<uint64_t>(made));
    return static_cast<CUresult>(outcome);
  }
  *module = made;
  return CUDA_SUCCESS;
}

CUresult load_module_image(Session& session, const Image& image, const JitOptions& jit,
                           CUmodule* module) {
  return load_usable(session, image, jit, [&](ImageBytes bytes) {
    const CUresult result = load_module_bytes(session, bytes, jit, module);
    if (result == CUDA_SUCCESS) keep_layouts(session, *module, image, bytes);
    return result;
  });
}

// What one fgModuleFunction or fgLibraryKernel brings. On the heap: 32 KiB are much for a thread's
// stack.
struct Answer {
  unsigned count = 0;
  unsigned offsets[kMaxParameters];
  unsigned sizes[kMaxParameters];
  int attributes[kFunctionAttributes];
  ParameterLayout layout() const { return {{offsets, offsets + count}, {sizes, sizes + count}}; }
};

CUresult ask(Session& session, uint16_t context, ImageRecord& image, const char* name,
             Answer& answer, uint64_t* id) {
  const bool library = image.kind() == rpc::HandleKind::kLibrary;
  const Input given(name, std::strlen(name) + 1);
  return make_object(
      session, library ? rpc::HandleKind::kKernel : rpc::HandleKind::kFunction, id,
      [&](uint64_t made) {
        return use_image(session, context, image, [&] {
          return (library ? wire::fgLibraryKernel : wire::fgModuleFunction)(
              session, context, image.id, given.text(), made, &answer.count, answer.offsets,
              answer.sizes, answer.attributes);
        });
      },
      image.id);
}

// A library's module has its kernels from there.
OwnLayouts* layouts_of(Session& session, const ImageRecord& image) {
  if (image.layouts != nullptr) return image.layouts.get();
  const auto* const library =
      static_cast<ImageRecord*>(session.find(rpc::HandleKind::kLibrary, image.parent));
  return library == nullptr ? nullptr : library->layouts.get();
}

// A server's word is not enough: the launch reads what the layout says from the program's memory.
Status check_layout(Session& session, const ImageRecord& image, const char* name,
                    const ParameterLayout& layout) {
  uint32_t end = 0;
  for (size_t i = 0; i < layout.sizes.size(); ++i) {
    if (layout.offsets[i] < end || layout.offsets[i] > kMaxParameterBytes ||
        layout.sizes[i] > kMaxParameterBytes - layout.offsets[i]) {
      return Status(StatusCode::kProtocol,
                    std::string("the server described kernel ") + name + " wrongly");
    }
    end = layout.offsets[i] + layout.sizes[i];
  }
  OwnLayouts* const own = layouts_of(session, image);
  if (own != nullptr) return own->check(name, layout);
  return Status(StatusCode::kProtocol, std::string("no image is known with kernel ") + name);
}

void fill(Function& function, const char* name, const ParameterLayout& layout) {
  function.name = name;
  for (size_t i = 0; i < layout.sizes.size(); ++i) {
    function.parameters.push_back({layout.offsets[i], layout.sizes[i]});
    function.parameter_bytes = layout.offsets[i] + layout.sizes[i];
  }
}

}  // namespace

CUresult load_by_hash(Session& session, ImageBytes bytes,
                      const std::function<CUresult(const unsigned char* hash)>& load) {
  const uint64_t size = size_of(bytes);
  if (size == 0) return CUDA_ERROR_INVALID_IMAGE;
  const Sha256Digest hash = hash_of(bytes);
  uint64_t upload = 0;  // the last one of this call; 0: another thread's, or none
  for (int uploads = 0;;) {
    CUresult result = load(hash.data());
    if (report::enabled() && result == CUDA_SUCCESS && uploads == 0) report::count_image_found();
    if (result != CUDA_ERROR_NOT_FOUND) return result;
    if (upload != 0) result = wire::fgImageUploaded(session, current_context_id(), upload);
    if (upload != 0 && result != CUDA_SUCCESS) return result;
    if (uploads == kMaxUploads) {
      log::warn("image {} of {} bytes does not stay in the server's image cache", to_hex(hash),
                size);
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    result = session.image_uploads.bring(
        hash, &upload, [&](uint64_t number) { return send_image(session, hash, bytes, number); });
    if (result != CUDA_SUCCESS) return result;
    if (upload != 0) ++uploads;
  }
}

void JitLogs::prepare() const {
  if (info() != nullptr) *info() = '\0';
  if (error() != nullptr) *error() = '\0';
}

void JitLogs::report_sizes() const {
  tell_size(info(), jit_.info_log_bytes, jit_.info_log_size);
  tell_size(error(), jit_.error_log_bytes, jit_.error_log_size);
}

CUresult read_jit_options(unsigned count, const CUjit_option* options, void** values,
                          JitOptions* out) {
  if (count != 0 && (options == nullptr || values == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count; ++i) {
    if (options[i] < CU_JIT_MAX_REGISTERS || options[i] >= CU_JIT_NUM_OPTIONS)
      return CUDA_ERROR_INVALID_VALUE;
    const auto number = reinterpret_cast<unsigned long long>(values[i]);
    switch (options[i]) {
      case CU_JIT_INFO_LOG_BUFFER:
        out->info_log = static_cast<char*>(values[i]);
        break;
      case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
        out->info_log_bytes =
            static_cast<unsigned>(std::min<unsigned long long>(number & 0xffffffff, kMaxLogBytes));
        out->info_log_size = &values[i];
        break;
      case CU_JIT_ERROR_LOG_BUFFER:
        out->error_log = static_cast<char*>(values[i]);
        break;
      case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
        out->error_log_bytes =
            static_cast<unsigned>(std::min<unsigned long long>(number & 0xffffffff, kMaxLogBytes));
        out->error_log_size = &values[i];
        break;
      case CU_JIT_WALL_TIME: {
        // An output, a float in the slot; what the server measures says nothing here.
        const float milliseconds = 0;
        std::memcpy(&values[i], &milliseconds, sizeof milliseconds);
        break;
      }
      case CU_JIT_GLOBAL_SYMBOL_NAMES:
      case CU_JIT_GLOBAL_SYMBOL_ADDRESSES:
      case CU_JIT_REFERENCED_KERNEL_NAMES:
      case CU_JIT_REFERENCED_VARIABLE_NAMES:
        log::warn("JIT option {} holds pointers and is not supported",
                  static_cast<int>(options[i]));
        return CUDA_ERROR_NOT_SUPPORTED;
      default:
        out->options.push_back(options[i]);
        out->values.push_back(number & 0xffffffff);
    }
  }
  if (out->info_log == nullptr) out->info_log_bytes = 0;
  if (out->error_log == nullptr) out->error_log_bytes = 0;
  return CUDA_SUCCESS;
}

CUresult load_library_image(Session& session, const Image& image, const JitOptions& jit,
                            CUlibrary* library) {
  return load_usable(session, image, jit, [&](ImageBytes bytes) {
    const CUresult result = load_by_hash(session, bytes, [&](const unsigned char* hash) {
      return make_object(session, rpc::HandleKind::kLibrary, library, [&](uint64_t id) {
        return wire::fgLibraryLoad(session, current_context_id(), hash,
                                   static_cast<unsigned>(jit.options.size()), jit.options.data(),
                                   jit.values.data(), 0, nullptr, nullptr, id);
      });
    });
    if (result == CUDA_SUCCESS) keep_layouts(session, *library, image, bytes);
    return result;
  });
}

namespace {

CUresult load_everywhere(Session& session, const Image& image, const JitOptions& jit,
                         CUlibrary* library) {
  const CUresult result = load_library_image(session, image, jit, library);
  if (result == CUDA_SUCCESS) load_twins(session, image, jit, *library);
  return result;
}

}  // namespace

CUresult load_module(Session& session, const void* image, const JitOptions& jit, CUmodule* module) {
  if (const auto linked = linked_image(session, image))
    return load_module_image(session, *linked, jit, module);
  const Result<Image> inspected = inspect_image(image, /*lenient=*/true);
  if (!inspected.ok()) return image_error(inspected.status());
  return load_module_image(session, *inspected, jit, module);
}

CUresult load_library(Session& session, const void* image, const JitOptions& jit,
                      CUlibrary* library) {
  if (const auto linked = linked_image(session, image))
    return load_everywhere(session, *linked, jit, library);
  const Result<Image> inspected = inspect_image(image, /*lenient=*/true);
  if (!inspected.ok()) return image_error(inspected.status());
  return load_everywhere(session, *inspected, jit, library);
}

CUresult load_module(Session& session, std::span<const std::byte> contents, CUmodule* module) {
  const Result<Image> inspected = inspect_image(contents);
  if (!inspected.ok()) return image_error(inspected.status());
  return load_module_image(session, *inspected, {}, module);
}

CUresult load_library(Session& session, std::span<const std::byte> contents, const JitOptions& jit,
                      CUlibrary* library) {
  const Result<Image> inspected = inspect_image(contents);
  if (!inspected.ok()) return image_error(inspected.status());
  return load_everywhere(session, *inspected, jit, library);
}

CUresult read_image_file(const char* path, std::vector<std::byte>* contents) {
  if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path, "rbe"), &std::fclose);
  if (file == nullptr) {
    log::warn("cannot read the module {}: {}", path, std::strerror(errno));
    return CUDA_ERROR_FILE_NOT_FOUND;
  }
  constexpr size_t kBlock = 65536;
  const auto block = std::make_unique<std::byte[]>(kBlock);
  for (size_t n; (n = std::fread(block.get(), 1, kBlock, file.get())) > 0;) {
    if (contents->size() + n > kMaxImageBytes) return CUDA_ERROR_INVALID_IMAGE;
    contents->insert(contents->end(), block.get(), block.get() + n);
  }
  return std::ferror(file.get()) == 0 ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

CUresult find_image(Session& session, rpc::HandleKind kind, const void* handle,
                    ImageRecord** record) {
  *record = static_cast<ImageRecord*>(session.find(kind, reinterpret_cast<uint64_t>(handle)));
  return *record == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

CUresult find_function(Session& session, const void* handle, Function** function) {
  const auto id = reinterpret_cast<uint64_t>(handle);
  Object* found = session.find(rpc::HandleKind::kFunction, id);
  if (found == nullptr) found = session.find(rpc::HandleKind::kKernel, id);
  *function = static_cast<Function*>(found);
  return found == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

CUresult find_kernel(Session& session, const void* handle, Function** kernel) {
  *kernel = static_cast<Function*>(
      session.find(rpc::HandleKind::kKernel, reinterpret_cast<uint64_t>(handle)));
  return *kernel == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

CUresult use_image(Session& session, uint16_t context, ImageRecord& image,
                   const std::function<CUresult()>& call) {
  const Context* const here = context == 0 ? nullptr : session.find_context(context);
  const uint64_t place = here == nullptr ? 0 : here->unique_id.load();
  bool loaded = image.kind() == rpc::HandleKind::kModule;
  if (!loaded) {
    const std::lock_guard lock(image.loading);
    loaded = image.loaded_in.contains(place);
  }
  if (loaded) return call();
  const DrainScope drain(session, context);
  const CUresult result = call();
  if (result != CUDA_SUCCESS) return result;
  constexpr size_t kMost = 64;
  const std::lock_guard lock(image.loading);
  if (image.loaded_in.size() >= kMost) image.loaded_in.clear();
  image.loaded_in.insert(place);
  return result;
}

CUresult function_by_name(Session& session, ImageRecord& image, const char* name, uint64_t* id) {
  std::lock_guard lock(image.mutex);
  if (auto known = image.functions.find(name); known != image.functions.end()) {
    *id = known->second;
    return CUDA_SUCCESS;
  }
  auto answer = std::make_unique<Answer>();
  if (const CUresult result = ask(session, current_context_id(), image, name, *answer, id);
      result != CUDA_SUCCESS) {
    return result;
  }
  const rpc::HandleKind kind = rpc::handle_kind(*id);
  auto* function = static_cast<Function*>(session.find(kind, *id));
  if (function == nullptr) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  const ParameterLayout layout = answer->layout();
  if (const Status status = check_layout(session, image, name, layout); !status.ok()) {
    session.handles.erase(*id);
    return from_status(status);
  }
  fill(*function, name, layout);
  function->required_block = layouts_of(session, image)->required_block(name);
  if (const Context* context = current_context())
    function->remember(context->device, answer->attributes);
  image.functions.emplace(name, *id);
  return CUDA_SUCCESS;
}

CUresult function_names(Session& session, const ImageRecord& image,
                        std::vector<std::string>* names) {
  unsigned count = 0;
  size_t bytes = 0;
  std::string text(schema::kMaxNamesBytes, '\0');
  const bool library = image.kind() == rpc::HandleKind::kLibrary;
  const CUresult result =
      wire::fgImageNames(session, current_context_id(), image.id, library ? 1 : 0, UINT32_MAX,
                         &count, &bytes, text.data());
  if (result != CUDA_SUCCESS) return result;
  text.resize(std::min(bytes, text.size()));
  size_t at = 0;
  while (at < text.size() && names->size() < count) {
    const size_t end = std::min(text.find('\0', at), text.size());
    names->push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return CUDA_SUCCESS;
}

CUresult attributes_on(Session& session, Function& function, int device,
                       FunctionAttributes** attributes) {
  *attributes = function.on_device(device);
  if (*attributes != nullptr) return CUDA_SUCCESS;
  const Context* context = current_context();
  if (context == nullptr || context->device != device) context = session.contexts.primary(device);
  if (context == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (!context->usable()) return CUDA_ERROR_INVALID_CONTEXT;
  auto* image =
      static_cast<ImageRecord*>(session.find(rpc::handle_kind(function.parent), function.parent));
  if (image == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  // A second id for the same kernel; only its attributes on that device are wanted.
  auto answer = std::make_unique<Answer>();
  uint64_t second = 0;
  if (const CUresult result =
          ask(session, context->wire_id, *image, function.name.c_str(), *answer, &second);
      result != CUDA_SUCCESS) {
    return result;
  }
  session.handles.erase(second);
  *attributes = function.remember(device, answer->attributes);
  return *attributes == nullptr ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

CUresult attributes_in(Session& session, Function& function, const Context& context,
                       FunctionAttributes** attributes) {
  *attributes = function.in_context(context);
  return *attributes != nullptr ? CUDA_SUCCESS
                                : attributes_on(session, function, context.device, attributes);
}

}  // namespace fargpu::client
