// Any text as PTX: it loads or is refused with a message, and never takes the process down. What
// loads is also run, when it has no loops that could go on forever.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "tests/ptx/engine_fixture.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace fargpu::sim;
  TestMemory memory;
  memory.limit = 1 << 20;
  EngineOptions options;
  options.worker_threads = 1;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  LoadResult result = load_ptx(text, memory, options);
  if (!result.program) {
    if (result.error.message.empty()) std::abort();
    return 0;
  }
  // Loops need branches or calls; without those words every kernel ends.
  for (const char* word : {"bra", "brx", "call", "bra."}) {
    if (text.find(word) != std::string_view::npos) return 0;
  }
  for (const std::string& name : result.program->kernel_names()) {
    const KernelInfo& info = *result.program->kernel(name);
    if (info.parameter_bytes > 4096 || info.local_bytes > 4096 || info.static_shared_bytes > 65536)
      continue;
    const std::vector<std::byte> parameters(info.parameter_bytes);
    GridConfig config;
    config.block = {33, 1, 1};
    result.program->run(name, config, parameters, [](std::string_view) {});
  }
  return 0;
}
