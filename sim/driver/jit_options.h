// The options of module loading and linking that mean something here: the log buffers. Others are
// checked for existence and ignored, as they steer the code generation of a real GPU.
#pragma once

#include <cuda.h>

#include <string>
#include <string_view>

namespace fargpu::sim {

class JitOptions {
 public:
  // CUDA_ERROR_INVALID_VALUE: an option that cuda.h does not have, or missing arrays. Keeps the
  // pointers for report().
  CUresult parse(unsigned count, const CUjit_option* options, void** values);
  // Writes the problem (empty: none) into the application's log buffers and the lengths into the
  // values.
  void report(std::string_view problem);

 private:
  static void write(char* buffer, void** size_value, std::string_view text);

  char* info_ = nullptr;
  char* error_ = nullptr;
  void** info_size_ = nullptr;
  void** error_size_ = nullptr;
};

// The bytes of an image file, with a NUL behind them. CUDA_ERROR_FILE_NOT_FOUND,
// CUDA_ERROR_INVALID_IMAGE.
CUresult read_image_file(const char* path, std::string* image);

}  // namespace fargpu::sim
