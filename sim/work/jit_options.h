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
  bool has_logs() const { return info_.given || error_.given; }

 private:
  struct Log {
    bool given = false;
    char* buffer = nullptr;
    size_t room = 0;
    void** length = nullptr;  // the application's value, at first the room
    void write(std::string_view text);
    void take_buffer(void* memory);
    void take_size(void** value);
  };
  Log info_;
  Log error_;
};

// The bytes of an image file, with a NUL behind them. CUDA_ERROR_FILE_NOT_FOUND,
// CUDA_ERROR_INVALID_IMAGE.
CUresult read_image_file(const char* path, std::string* image);

}  // namespace fargpu::sim
