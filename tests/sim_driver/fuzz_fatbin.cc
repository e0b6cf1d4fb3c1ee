// libFuzzer target: the container reader, its decompression, and the linked image.
#include "common/fatbin/contents.h"
#include "sim/fatbin/image.h"
#include "sim/fatbin/linked_image.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace fargpu;
  using namespace fargpu::sim;
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  (void)read_linked_image(bytes);
  auto entries = read_fatbin(bytes);
  if (!entries) return 0;
  (void)select_ptx(*entries, 90);
  for (const FatbinEntry& entry : *entries) {
    if (entry.uncompressed_bytes < (1u << 20)) (void)entry_contents(entry);
  }
  return 0;
}
