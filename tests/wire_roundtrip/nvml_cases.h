// Requests that the server halves of NVML accept, and the library that they call. nvml_cases.cc is
// generated.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "schema/nvml/nvml.h"
#include "schema/support/packed.h"

namespace fargpu::server {
struct NvmlTable;
}

namespace fargpu::wiretest {

struct NvmlCase {
  uint16_t opcode;
  const char* name;
  std::vector<std::byte> arguments;
};

inline NvmlCase made(uint16_t opcode, const char* name, const schema::PackedWriter& writer) {
  const auto bytes = writer.bytes();
  return {opcode, name, {bytes.begin(), bytes.end()}};
}

// `bytes` of structs, of which the first begins with its version.
inline void put_struct(schema::PackedWriter& writer, uint32_t version, size_t bytes) {
  std::vector<std::byte> data(bytes, std::byte{1});
  if (version != 0) std::memcpy(data.data(), &version, sizeof version);
  writer.data(data.data(), data.size());
}

// One for each function with a message.
std::vector<NvmlCase> nvml_cases();

// Every function a success that writes nothing, and counts.
extern int library_calls;
server::NvmlTable library_that_succeeds();

}  // namespace fargpu::wiretest
