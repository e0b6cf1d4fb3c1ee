#include "server/nvml/arguments.h"

#include <algorithm>

namespace fargpu::server {

VersionedStruct NvmlArguments::versioned(std::initializer_list<uint32_t> known) {
  const auto bytes = reader_.data();
  uint32_t version = 0;
  if (bytes.size() < sizeof version) {
    reader_.fail();
    return {};
  }
  std::memcpy(&version, bytes.data(), sizeof version);
  if (std::find(known.begin(), known.end(), version) == known.end()) {
    refuse(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    return {};
  }
  if (bytes.size() != schema::nvml_struct_bytes(version)) reader_.fail();
  return reader_.broken() ? VersionedStruct() : VersionedStruct(bytes);
}

void NvmlOutputs::text(Array<char>& text) {
  if (!text.there()) return;
  const auto characters = text.elements();
  data(characters.data(),
       std::find(characters.begin(), characters.end(), '\0') - characters.begin());
}

}  // namespace fargpu::server
