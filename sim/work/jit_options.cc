#include "sim/work/jit_options.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>

namespace fargpu::sim {

CUresult JitOptions::parse(unsigned count, const CUjit_option* options, void** values) {
  if (count != 0 && (options == nullptr || values == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count; ++i) {
    switch (static_cast<int>(options[i])) {
      case CU_JIT_INFO_LOG_BUFFER:
        info_.take_buffer(values[i]);
        break;
      case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
        info_.take_size(&values[i]);
        break;
      case CU_JIT_ERROR_LOG_BUFFER:
        error_.take_buffer(values[i]);
        break;
      case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
        error_.take_size(&values[i]);
        break;
      default:
        if (options[i] < 0 || options[i] >= CU_JIT_NUM_OPTIONS) return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return CUDA_SUCCESS;
}

void JitOptions::report(std::string_view problem) {
  info_.write({});
  error_.write(problem);
}

void JitOptions::Log::take_buffer(void* memory) {
  given = true;
  buffer = static_cast<char*>(memory);
}

void JitOptions::Log::take_size(void** value) {
  given = true;
  room = static_cast<size_t>(reinterpret_cast<uintptr_t>(*value) & 0xffffffffu);
  length = value;
}

void JitOptions::Log::write(std::string_view text) {
  if (length == nullptr) return;
  size_t written = 0;
  if (buffer != nullptr && room > 0) {
    written = std::min(text.size(), room - 1);
    std::copy_n(text.data(), written, buffer);  // an empty text may have no address
    buffer[written] = '\0';
  }
  *length = reinterpret_cast<void*>(static_cast<uintptr_t>(written));
}

CUresult read_image_file(const char* path, std::string* image) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return CUDA_ERROR_FILE_NOT_FOUND;
  image->assign(std::istreambuf_iterator<char>(file), {});
  // Room for the checks of a header that the file may be too short for.
  image->append(64, '\0');
  return file.bad() ? CUDA_ERROR_INVALID_IMAGE : CUDA_SUCCESS;
}

}  // namespace fargpu::sim
