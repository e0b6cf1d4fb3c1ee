// What a case prints.
#include <cstdio>
#include <cstring>

#include "tests/conformance/answers/answers.h"

namespace answers {

void show_pointer_attribute(CUpointer_attribute attribute, const void* data, Line& line) {
  uint64_t wide = 0;
  int narrow = 0;
  std::memcpy(&wide, data, sizeof wide);
  std::memcpy(&narrow, data, sizeof narrow);
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
      line.number("data", narrow);
      return;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      line.number("data", static_cast<long long>(wide));
      return;
    default:
      line.presence("data", wide != 0);
  }
}

std::string case_name(const char* name, long long value) {
  std::string text(name);
  const size_t place = text.find("%ll");
  if (place == std::string::npos) return text;
  char number[32];
  std::snprintf(number, sizeof number, text[place + 3] == 'x' ? "%llx" : "%lld", value);
  return text.replace(place, 4, number);
}

void Line::number(const char* name, long long value) {
  values_ += std::string(" ") + name + "=" + std::to_string(value);
}

void Line::text(const char* name, const char* value) {
  values_ += std::string(" ") + name + "=";
  values_ += value == nullptr ? "null" : std::string("\"") + value + "\"";
}

void Line::presence(const char* name, bool there) {
  values_ += std::string(" ") + name + (there ? "=set" : "=null");
}

}  // namespace answers
