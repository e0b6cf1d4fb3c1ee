// Images, modules, libraries: loads name an image by its hash; everything about a function comes
// back in one answer.
#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/log.h"
#include "common/fatbin/kernel_layouts.h"
#include "common/wire/image_piece.h"
#include "generated/server/internal_decode.h"
#include "generated/server/library_decode.h"
#include "generated/server/module_decode.h"
#include "schema/support/cuda_rules.h"
#include "server/image/driver_image.h"
#include "server/image/jit_options.h"
#include "server/image/parameter_layouts.h"
#include "server/image/session_images.h"
#include "server/manual/image_variables.h"
#include "server/manual/manual.h"

namespace fargpu::server {
namespace {

// Drivers tell an index past the last parameter by this error, which has other reasons, too: of a
// kernel without parameters they cannot be told apart. A driver that lacks the call says nothing of
// any parameter.
bool may_be_past_the_last(CUresult result) {
  return result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_NOT_SUPPORTED;
}

// What the client caches about one kernel.
struct KernelFacts {
  ParameterLayout layout;
  std::array<int, schema::kFunctionAttributes> attributes{};

  // `from_image`: what is known without the driver; null: nothing. An error of the first parameter,
  // other than that there is none, is the result: the driver cannot load the kernel, for example.
  template <typename ParamInfo, typename Attribute>
  CUresult learn(ParamInfo param_info, Attribute attribute, const ParameterLayout* from_image) {
    if (from_image != nullptr) layout = *from_image;
    for (unsigned i = 0; from_image == nullptr && i < schema::kMaxParameters; ++i) {
      size_t offset = 0;
      size_t size = 0;
      const CUresult result = param_info(i, &offset, &size);
      if (i == 0 && result != CUDA_SUCCESS && !may_be_past_the_last(result)) return result;
      if (result != CUDA_SUCCESS) break;
      layout.offsets.push_back(static_cast<unsigned>(offset));
      layout.sizes.push_back(static_cast<unsigned>(size));
    }
    for (size_t i = 0; i < attributes.size(); ++i) {
      if (attribute(&attributes[i], static_cast<CUfunction_attribute>(i)) != CUDA_SUCCESS)
        attributes[i] = -1;
    }
    return CUDA_SUCCESS;
  }

  template <typename Results>
  Status send(Worker& worker, const Request& request, uint64_t id) {
    const size_t bytes = layout.offsets.size() * sizeof(unsigned);
    rpc::Responder::Frame frame(worker.responder(), request.header,
                                schema::fixed_bytes<Results>() + 2 * schema::padded(bytes) +
                                    schema::padded(sizeof(attributes)));
    auto results = frame.init<Results>();
    results.setParameterCount(static_cast<unsigned>(layout.offsets.size()));
    results.setParameterOffsets(as_data(layout.offsets.data(), bytes));
    results.setParameterSizes(as_data(layout.sizes.data(), bytes));
    results.setAttributes(as_data(attributes.data(), sizeof(attributes)));
    const int local = attributes[CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES];
    worker.parts().parameter_layouts.learn(
        id, {std::move(layout), static_cast<uint64_t>(std::max(local, 0))});
    return frame.send(CUDA_SUCCESS);
  }
};

// A load under way. The driver compiles, which takes up to minutes, so a helper thread does that.
// It stays where it is: the driver has pointers into it.
template <typename Handle>
struct Load {
  Load(Image from, JitOptions with, uint64_t as)
      : image(std::move(from)), options(std::move(with)), id(as) {}
  Load(const Load&) = delete;
  Load& operator=(const Load&) = delete;
  void add_logs(unsigned info_bytes, unsigned error_bytes) {
    info.resize(std::min(info_bytes, kMaxLogBytes));
    errors.resize(std::min(error_bytes, kMaxLogBytes));
    options.add_log(CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, info);
    options.add_log(CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, errors);
  }

  DriverImage image;
  JitOptions options;
  uint64_t id;  // client-made
  // For a driver that does not tell it.
  void learn_layouts() { read_kernel_layouts(image.bytes(), layouts); }

  std::vector<char> info, errors;
  Handle loaded = nullptr;
  KernelLayouts layouts;
  std::optional<uint64_t> variables = 0;  // bytes, where they count; nullopt: not known
};

// Before the driver has it.
template <typename Handle>
void look_for_printing(Worker& worker, const std::shared_ptr<Load<Handle>>& load) {
  worker.parts().printing_code.loads(load->image.bytes(), load);
}

// The load has succeeded, and the image is known by its id.
template <typename Handle>
void keep_image(Worker& worker, Load<Handle>& load, std::shared_ptr<Variables> variables) {
  worker.parts().parameter_layouts.learn_image(load.id, std::move(load.layouts));
  worker.parts().kept_objects.keep(UntilEnded{load.id}, std::move(variables));
}

void module_loaded(const LaterReply& later, Load<CUmodule>& load, CUresult result,
                   const std::shared_ptr<Variables>& variables) {
  Worker& worker = later.worker();
  if (result == CUDA_SUCCESS) {
    result = later.add(rpc::HandleKind::kModule, load.id, load.loaded);
    if (result == CUDA_SUCCESS) keep_image(worker, load, variables);
    // An id in use: the client's mistake. With a context that has ended the module has gone, too.
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_CONTEXT_IS_DESTROYED)
      worker.driver().cuModuleUnload(load.loaded);
  } else {
    log::info("module does not load: {}",
              load.errors.empty() ? "the client asked for no log" : text_of(load.errors));
  }
  const std::string info_text = text_of(load.info);
  const std::string error_text = text_of(load.errors);
  rpc::Responder::Frame frame(worker.responder(), later.header(),
                              schema::fixed_bytes<schema::FgModuleLoadResults>() +
                                  schema::padded(info_text.size() + 1) +
                                  schema::padded(error_text.size() + 1));
  auto results = frame.init<schema::FgModuleLoadResults>();
  results.setOutcome(result);
  results.setInfoLog(info_text.c_str());
  results.setErrorLog(error_text.c_str());
  (void)frame.send(CUDA_SUCCESS);
}

// The image goes, and with it every id that came from it. The driver waits for what runs.
template <typename Handle>
Status unload(Worker& worker, const Request& request, uint64_t id, Handle handle,
              CUresult (*driver_unload)(Handle)) {
  const LaterReply later(worker, request);
  worker.parts().completion.off_thread_when_idle(
      request.header.context, [driver_unload, handle] { return driver_unload(handle); },
      [later, id](CUresult result) {
        if (result == CUDA_SUCCESS) later.worker().remove(id);
        later.send(result);
      });
  return Status();
}

// What the image of the module or library says of the kernel; a module may be that of a library.
const ParameterLayout* layout_of(Worker& worker, uint64_t image, const std::string& kernel) {
  const ParameterLayouts& layouts = worker.parts().parameter_layouts;
  const ParameterLayout* const found = layouts.find(image, kernel);
  if (found != nullptr) return found;
  const HandleTable::Object* const module = worker.parts().handles.find(image);
  return module == nullptr ? nullptr : layouts.find(module->parent, kernel);
}

Sha256Digest to_digest(std::span<const unsigned char> hash) {
  Sha256Digest digest{};
  std::memcpy(digest.data(), hash.data(), std::min(hash.size(), sizeof(digest)));
  return digest;
}

CUresult result_of_upload(const Status& status) {
  switch (status.code()) {
    case StatusCode::kOk:
      return CUDA_SUCCESS;
    case StatusCode::kNoCapacity:
      return CUDA_ERROR_OUT_OF_MEMORY;
    case StatusCode::kSystem:
      return CUDA_ERROR_OPERATING_SYSTEM;
    default:
      return CUDA_ERROR_INVALID_IMAGE;
  }
}

// Names one after the other, each with its NUL, as long as they fit.
template <typename Handle, typename Name>
std::string join_names(const std::vector<Handle>& handles, Name name, unsigned* count) {
  std::string names;
  for (const Handle handle : handles) {
    const char* text = nullptr;
    if (name(&text, handle) != CUDA_SUCCESS || text == nullptr) continue;
    const size_t bytes = std::strlen(text) + 1;
    if (names.size() + bytes > schema::kMaxNamesBytes) break;
    names.append(text, bytes);
    ++*count;
  }
  return names;
}

}  // namespace

Status manual_fgImagePut(Worker& worker, const Request& request) {
  return decode_fgImagePut(worker, request, [&](const auto& given) -> Status {
    // What becomes of it is told when it is asked for: the error belongs to the upload alone.
    (void)worker.parts().images.put(given.upload, to_digest(given.hash), given.totalBytes,
                                    given.offset, given.piece);
    return answer(worker, request, CUDA_SUCCESS);
  });
}

Status manual_fgImagePutPacked(Worker& worker, const Request& request) {
  return decode_fgImagePutPacked(worker, request, [&](const auto& given) -> Status {
    const uint64_t total = given.totalBytes;
    uint64_t offset = given.offset;
    if (offset > total || given.rawBytes > total - offset)
      return malformed("fgImagePutPacked", "the piece is not in the image");
    Status put;
    Status unpacked =
        wire::unpack_piece(given.frame, given.rawBytes, [&](std::span<const std::byte> part) {
          put = worker.parts().images.put(given.upload, to_digest(given.hash), total, offset, part);
          offset += part.size();
          return put;
        });
    // What the session does not take is remembered; a frame that is none ends the session.
    if (!unpacked.ok() && put.ok()) return unpacked;
    return answer(worker, request, CUDA_SUCCESS);
  });
}

Status manual_fgImageUploaded(Worker& worker, const Request& request) {
  return decode_fgImageUploaded(worker, request, [&](const auto& given) -> Status {
    const Status status = worker.parts().images.result_of(given.upload);
    if (!status.ok()) log::warn("image refused: {}", status.message());
    return answer(worker, request, result_of_upload(status));
  });
}

Status manual_fgModuleLoad(Worker& worker, const Request& request) {
  return decode_fgModuleLoad(worker, request, [&](const auto& given) -> Status {
    JitOptions options;
    if (!options.read(given.options, given.values)) {
      return malformed("fgModuleLoad", "too many JIT options");
    }
    Result<Image> image = worker.parts().images.find(std::as_bytes(given.hash));
    if (!image.ok()) return answer(worker, request, CUDA_ERROR_NOT_FOUND);
    auto load =
        std::make_shared<Load<CUmodule>>(std::move(*image), std::move(options), given.module_id);
    if (load->image.data() == nullptr) return answer(worker, request, CUDA_ERROR_INVALID_IMAGE);
    load->add_logs(given.infoLogBytes, given.errorLogBytes);
    look_for_printing(worker, load);
    const LaterReply later(worker, request);
    const size_t device = worker.parts().contexts.current_device();
    with_variables(
        later, load, device, device + 1,
        [later, load](const Finished& done) {
          SessionParts& parts = later.worker().parts();
          const uint16_t context = later.header().context;
          parts.completion.compile(
              context, parts.contexts.device_of(context),
              [&driver = later.worker().driver(), load] {
                JitOptions jit = load->options;  // the driver writes the logs' sizes into it
                if (driver.cuFuncGetParamInfo == nullptr) load->learn_layouts();
                return driver.cuModuleLoadDataEx(&load->loaded, load->image.data(), jit.count(),
                                                 jit.ids(), jit.values());
              },
              done);
        },
        [later, load](CUresult result, const std::shared_ptr<Variables>& variables) {
          module_loaded(later, *load, result, variables);
        });
    return Status();
  });
}

Status manual_fgLibraryLoad(Worker& worker, const Request& request) {
  return decode_fgLibraryLoad(worker, request, [&](const auto& given) -> Status {
    JitOptions options;
    if (!options.read(given.jitOptions, given.jitValues)) {
      return malformed("fgLibraryLoad", "too many JIT options");
    }
    // Library options are a table of host functions, which live in the client, and a promise about
    // its memory: nothing for the driver here.
    FARGPU_NEEDS_DRIVER(cuLibraryLoadData);
    Result<Image> image = worker.parts().images.find(std::as_bytes(given.hash));
    if (!image.ok()) return answer(worker, request, CUDA_ERROR_NOT_FOUND);
    auto load =
        std::make_shared<Load<CUlibrary>>(std::move(*image), std::move(options), given.library_id);
    if (load->image.data() == nullptr) return answer(worker, request, CUDA_ERROR_INVALID_IMAGE);
    look_for_printing(worker, load);
    const LaterReply later(worker, request);
    with_variables(
        later, load, 0, static_cast<size_t>(worker.parts().contexts.device_count()),
        [later, load](const Finished& done) {
          later.worker().parts().completion.compile(
              later.header().context, Completion::kNoDevice,
              [&driver = later.worker().driver(), load] {
                JitOptions& jit = load->options;
                if (driver.cuKernelGetParamInfo == nullptr) load->learn_layouts();
                return driver.cuLibraryLoadData(&load->loaded, load->image.data(), jit.ids(),
                                                jit.values(), jit.count(), nullptr, nullptr, 0);
              },
              done);
        },
        [later, load](CUresult result, const std::shared_ptr<Variables>& variables) {
          Worker& worker = later.worker();
          if (result == CUDA_SUCCESS) {
            result = worker.add(rpc::HandleKind::kLibrary, load->id, load->loaded, 0);
            if (result == CUDA_SUCCESS)
              keep_image(worker, *load, variables);
            else
              worker.driver().cuLibraryUnload(load->loaded);
          }
          later.send(result);
        });
    return Status();
  });
}

Status manual_fgModuleFunction(Worker& worker, const Request& request) {
  return decode_fgModuleFunction(worker, request, [&](const auto& given) -> Status {
    const DriverTable& driver = worker.driver();
    CUfunction function = nullptr;
    FARGPU_ANSWER_UNLESS_SUCCESS(driver.cuModuleGetFunction(&function, given.module, given.name));
    KernelFacts facts;
    FARGPU_ANSWER_UNLESS_SUCCESS(facts.learn(
        [&](unsigned i, size_t* offset, size_t* size) {
          return driver.cuFuncGetParamInfo ? driver.cuFuncGetParamInfo(function, i, offset, size)
                                           : CUDA_ERROR_NOT_SUPPORTED;
        },
        [&](int* value, CUfunction_attribute attribute) {
          return driver.cuFuncGetAttribute(value, attribute, function);
        },
        layout_of(worker, given.module_id, given.name)));
    if (const CUresult added =
            worker.parts().handles.add(rpc::HandleKind::kFunction, given.function_id,
                                       {function, given.module_id, request.header.context});
        added != CUDA_SUCCESS) {
      return refused_id(worker, request, "fgModuleFunction", added);
    }
    return facts.send<schema::FgModuleFunctionResults>(worker, request, given.function_id);
  });
}

Status manual_fgLibraryKernel(Worker& worker, const Request& request) {
  return decode_fgLibraryKernel(worker, request, [&](const auto& given) -> Status {
    FARGPU_NEEDS_DRIVER(cuLibraryGetKernel);
    const DriverTable& driver = worker.driver();
    CUkernel kernel = nullptr;
    FARGPU_ANSWER_UNLESS_SUCCESS(driver.cuLibraryGetKernel(&kernel, given.library, given.name));
    // The runtime asks for its first kernel before it has a context, and the driver tells the
    // parameters only inside one.
    CUdevice device = 0;
    if (driver.cuCtxGetDevice(&device) != CUDA_SUCCESS) {
      FARGPU_ANSWER_UNLESS_SUCCESS(worker.parts().contexts.borrow());
    }
    KernelFacts facts;
    FARGPU_ANSWER_UNLESS_SUCCESS(facts.learn(
        [&](unsigned i, size_t* offset, size_t* size) {
          return driver.cuKernelGetParamInfo ? driver.cuKernelGetParamInfo(kernel, i, offset, size)
                                             : CUDA_ERROR_NOT_SUPPORTED;
        },
        [&](int* value, CUfunction_attribute attribute) {
          return driver.cuKernelGetAttribute(value, attribute, kernel, device);
        },
        layout_of(worker, given.library_id, given.name)));
    if (const CUresult added = worker.parts().handles.add(rpc::HandleKind::kKernel, given.kernel_id,
                                                          {kernel, given.library_id});
        added != CUDA_SUCCESS) {
      return refused_id(worker, request, "fgLibraryKernel", added);
    }
    return facts.send<schema::FgLibraryKernelResults>(worker, request, given.kernel_id);
  });
}

Status manual_fgImageVariable(Worker& worker, const Request& request) {
  return decode_fgImageVariable(worker, request, [&](const auto& given) -> Status {
    const DriverTable& driver = worker.driver();
    CUdeviceptr address = 0;
    size_t bytes = 0;
    if (given.ofLibrary != 0) {
      FARGPU_NEEDS_DRIVER(cuLibraryGetGlobal);
      CUlibrary library = nullptr;
      FARGPU_ANSWER_UNLESS_SUCCESS(
          find_handle(worker, rpc::HandleKind::kLibrary, given.image, &library));
      FARGPU_ANSWER_UNLESS_SUCCESS(
          driver.cuLibraryGetGlobal(&address, &bytes, library, given.name));
    } else {
      CUmodule module = nullptr;
      FARGPU_ANSWER_UNLESS_SUCCESS(
          find_handle(worker, rpc::HandleKind::kModule, given.image, &module));
      FARGPU_ANSWER_UNLESS_SUCCESS(
          driver.cuModuleGetGlobal_v2(&address, &bytes, module, given.name));
    }
    // Of a size 0 there is no address.
    unsigned managed = 0;
    if (driver.cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address) !=
        CUDA_SUCCESS)
      managed = 0;
    using Results = schema::FgImageVariableResults;
    rpc::Responder::Frame frame(worker.responder(), request.header, schema::fixed_bytes<Results>());
    auto results = frame.init<Results>();
    results.setAddress(address);
    results.setBytes(bytes);
    results.setManaged(managed != 0 ? 1 : 0);
    return frame.send(CUDA_SUCCESS);
  });
}

Status manual_fgImageNames(Worker& worker, const Request& request) {
  return decode_fgImageNames(worker, request, [&](const auto& given) -> Status {
    const DriverTable& driver = worker.driver();
    unsigned total = 0;
    unsigned named = 0;
    std::string names;
    if (given.ofLibrary != 0) {
      FARGPU_NEEDS_DRIVER(cuLibraryEnumerateKernels);
      FARGPU_NEEDS_DRIVER(cuKernelGetName);
      CUlibrary library = nullptr;
      FARGPU_ANSWER_UNLESS_SUCCESS(
          find_handle(worker, rpc::HandleKind::kLibrary, given.image, &library));
      FARGPU_ANSWER_UNLESS_SUCCESS(driver.cuLibraryGetKernelCount(&total, library));
      std::vector<CUkernel> kernels(std::min(total, given.maxCount));
      if (!kernels.empty()) {
        FARGPU_ANSWER_UNLESS_SUCCESS(driver.cuLibraryEnumerateKernels(
            kernels.data(), static_cast<unsigned>(kernels.size()), library));
      }
      names = join_names(kernels, driver.cuKernelGetName, &named);
    } else {
      FARGPU_NEEDS_DRIVER(cuModuleEnumerateFunctions);
      FARGPU_NEEDS_DRIVER(cuFuncGetName);
      CUmodule module = nullptr;
      FARGPU_ANSWER_UNLESS_SUCCESS(
          find_handle(worker, rpc::HandleKind::kModule, given.image, &module));
      FARGPU_ANSWER_UNLESS_SUCCESS(driver.cuModuleGetFunctionCount(&total, module));
      std::vector<CUfunction> functions(std::min(total, given.maxCount));
      if (!functions.empty()) {
        FARGPU_ANSWER_UNLESS_SUCCESS(driver.cuModuleEnumerateFunctions(
            functions.data(), static_cast<unsigned>(functions.size()), module));
      }
      names = join_names(functions, driver.cuFuncGetName, &named);
    }
    rpc::Responder::Frame frame(worker.responder(), request.header,
                                schema::fixed_bytes<schema::FgImageNamesResults>());
    auto results = frame.init<schema::FgImageNamesResults>();
    results.setCount(named);
    results.setNamesBytes(names.size());
    const std::span<const std::byte> bulk[] = {std::as_bytes(std::span(names))};
    return frame.send(CUDA_SUCCESS, bulk);
  });
}

Status manual_cuModuleUnload(Worker& worker, const Request& request) {
  return decode_cuModuleUnload(worker, request, [&](const auto& given) {
    return unload(worker, request, given.hmod_id, given.hmod, worker.driver().cuModuleUnload);
  });
}

Status manual_cuLibraryUnload(Worker& worker, const Request& request) {
  return decode_cuLibraryUnload(worker, request, [&](const auto& given) {
    return unload(worker, request, given.library_id, given.library,
                  worker.driver().cuLibraryUnload);
  });
}

}  // namespace fargpu::server
