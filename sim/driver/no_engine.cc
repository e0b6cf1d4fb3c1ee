#include "sim/exec/engine.h"
namespace fargpu::sim {
LoadResult load_ptx(std::string_view, MemoryMap&, const EngineOptions&) {
  return {nullptr, {LoadError::Kind::kInvalidPtx, "no engine", 0}};
}
LoadResult load_ptx_linked(std::span<const std::string_view>, MemoryMap& m, const EngineOptions& o) { return load_ptx("", m, o); }
}
