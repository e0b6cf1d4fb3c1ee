// Loading images. The hash is sent first, and the bytes only when the server does not know it. A
// function is looked up on the server once.
//
// All functions need a usable session; load_module and find_function of a module need a current
// context. Any thread.
#pragma once

#include <cuda.h>

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "client/image/image.h"
#include "client/image/send.h"
#include "client/object/image_records.h"

namespace fargpu::client {

class Session;

// The application's log buffers around a call that fills them.
class JitLogs {
 public:
  explicit JitLogs(const JitOptions& jit) : jit_(jit) {}
  // The generated call wants a place only for a length above 0.
  char* info() const { return jit_.info_log_bytes == 0 ? nullptr : jit_.info_log; }
  char* error() const { return jit_.error_log_bytes == 0 ? nullptr : jit_.error_log; }
  void prepare() const;
  void report_sizes() const;

 private:
  const JitOptions& jit_;
};

// Runs `load`, which names an image by its hash, until the server knows the image: when it answers
// CUDA_ERROR_NOT_FOUND, the image is sent. A failed upload is this call's error and no other's.
CUresult load_by_hash(Session& session, ImageBytes bytes,
                      const std::function<CUresult(const unsigned char* hash)>& load);

// CUDA_ERROR_INVALID_VALUE for missing arrays and options that cuda.h does not have;
// CUDA_ERROR_NOT_SUPPORTED for options that hold pointers other than log buffers.
CUresult read_jit_options(unsigned count, const CUjit_option* options, void** values,
                          JitOptions* out);

CUresult load_module(Session& session, const void* image, const JitOptions& jit, CUmodule* module);
CUresult load_library(Session& session, const void* image, const JitOptions& jit,
                      CUlibrary* library);
// From a file's contents. The path is the application's.
CUresult read_image_file(const char* path, std::vector<std::byte>* contents);
CUresult load_module(Session& session, std::span<const std::byte> contents, CUmodule* module);
CUresult load_library(Session& session, std::span<const std::byte> contents, const JitOptions& jit,
                      CUlibrary* library);

// At this server only.
CUresult load_library_image(Session& session, const Image& image, const JitOptions& jit,
                            CUlibrary* library);

// The record of a live module or library; CUDA_ERROR_INVALID_HANDLE.
CUresult find_image(Session& session, rpc::HandleKind kind, const void* handle,
                    ImageRecord** record);
// A CUfunction, which may be a CUkernel; CUDA_ERROR_INVALID_HANDLE.
CUresult find_function(Session& session, const void* handle, Function** function);
CUresult find_kernel(Session& session, const void* handle, Function** kernel);

// Makes a call that uses something of a module or library in the context (id on the wire). A driver
// loads a library where it is used first and waits for all streams there, in the call: it is made
// when no function of the application holds one.
CUresult use_image(Session& session, uint16_t context, ImageRecord& image,
                   const std::function<CUresult()>& call);
// The function or kernel of that name; CUDA_ERROR_NOT_FOUND.
CUresult function_by_name(Session& session, ImageRecord& image, const char* name, uint64_t* id);
CUresult function_names(Session& session, const ImageRecord& image,
                        std::vector<std::string>* names);
// The attributes of `function` on a visible device, asking the server the first time. Of a kernel:
// as set for the kernel.
CUresult attributes_on(Session& session, Function& function, int device,
                       FunctionAttributes** attributes);
// The same for work in a context.
CUresult attributes_in(Session& session, Function& function, const Context& context,
                       FunctionAttributes** attributes);

}  // namespace fargpu::client
