// A tiled 512 x 512 f32 matrix product on one core of the PTX engine; the goal is less than 2 s per
// product. Also the costs of a small launch and of loading a module.
#include <benchmark/benchmark.h>

#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "sim/exec/run/load.h"

namespace fargpu::sim {
namespace {

// One arena: what a driver's allocator would give.
class Arena final : public MemoryMap {
 public:
  std::optional<Range> find(uint64_t address, size_t bytes) const override {
    const auto base = reinterpret_cast<uint64_t>(memory_.data());
    if (address < base || address - base > memory_.size() ||
        bytes > memory_.size() - (address - base))
      return std::nullopt;
    return Range{base, memory_.size(), true};
  }
  uint64_t allocate(size_t bytes) override {
    used_ = (used_ + 255) / 256 * 256;
    const uint64_t address = reinterpret_cast<uint64_t>(memory_.data()) + used_;
    used_ += bytes;
    return used_ <= memory_.size() ? address : 0;
  }
  void release(uint64_t) override {}

 private:
  std::vector<uint8_t> memory_ = std::vector<uint8_t>(64u << 20);
  size_t used_ = 0;
};

// c = a * b by tiles of 16 x 16, as a compiler unrolls it.
std::string matmul_text() {
  std::string text = R"(.version 8.0
.target sm_75
.address_size 64
.visible .entry empty() { ret; }
.visible .entry matmul(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n) {
  .reg .pred %p<2>; .reg .f32 %f<40>; .reg .b32 %r<30>; .reg .b64 %rd<20>;
  .shared .align 4 .b8 sa[1024]; .shared .align 4 .b8 sb[1024];
  ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; ld.param.u64 %rd3, [c]; ld.param.u32 %r1, [n];
  mov.u32 %r2, %tid.x; mov.u32 %r3, %tid.y; mov.u32 %r4, %ctaid.x; mov.u32 %r5, %ctaid.y;
  mad.lo.u32 %r6, %r5, 16, %r3; mad.lo.u32 %r7, %r4, 16, %r2;
  mad.lo.u32 %r8, %r6, %r1, %r2; mul.wide.u32 %rd4, %r8, 4; add.u64 %rd4, %rd1, %rd4;
  mad.lo.u32 %r9, %r3, %r1, %r7; mul.wide.u32 %rd5, %r9, 4; add.u64 %rd5, %rd2, %rd5;
  mul.wide.u32 %rd6, %r1, 64;
  mov.u32 %r10, sa; mov.u32 %r11, sb; shl.b32 %r12, %r3, 6; shl.b32 %r13, %r2, 2;
  add.u32 %r14, %r10, %r12; add.u32 %r15, %r14, %r13;
  add.u32 %r16, %r11, %r13; add.u32 %r17, %r16, %r12;
  mov.f32 %f1, 0f00000000; mov.u32 %r20, 0;
LOOP:
  ld.global.f32 %f2, [%rd4]; st.shared.f32 [%r15], %f2; ld.global.f32 %f3, [%rd5];
  st.shared.f32 [%r17], %f3;
  bar.sync 0;
)";
  for (int k = 0; k < 16; ++k) {
    text += "  ld.shared.f32 %f4, [%r14+" + std::to_string(4 * k) + "]; ld.shared.f32 %f5, [%r16+" +
            std::to_string(64 * k) + "]; fma.rn.f32 %f1, %f4, %f5, %f1;\n";
  }
  return text + R"(
  bar.sync 0;
  add.u64 %rd4, %rd4, 64; add.u64 %rd5, %rd5, %rd6; add.u32 %r20, %r20, 16;
  setp.lt.u32 %p1, %r20, %r1; @%p1 bra LOOP;
  mad.lo.u32 %r21, %r6, %r1, %r7; mul.wide.u32 %rd7, %r21, 4; add.u64 %rd7, %rd3, %rd7;
  st.global.f32 [%rd7], %f1;
  ret;
})";
}

std::unique_ptr<Program> load(Arena& arena, const std::string& text, int threads) {
  EngineOptions options;
  options.worker_threads = threads;
  LoadResult result = load_ptx(text, arena, options);
  return std::move(result.program);
}

void matmul(benchmark::State& state) {
  Arena arena;
  const auto program = load(arena, matmul_text(), static_cast<int>(state.range(0)));
  const uint32_t n = 512;
  struct {
    uint64_t a, b, c;
    uint32_t n;
  } parameters = {arena.allocate(4 * n * n), arena.allocate(4 * n * n), arena.allocate(4 * n * n),
                  n};
  for (uint32_t i = 0; i < n * n; ++i) {
    reinterpret_cast<float*>(parameters.a)[i] = static_cast<float>(i % 7);
    reinterpret_cast<float*>(parameters.b)[i] = static_cast<float>(i % 5);
  }
  GridConfig config;
  config.grid = {n / 16, n / 16, 1};
  config.block = {16, 16, 1};
  for (auto _ : state) {
    const auto fault =
        program->run("matmul", config, std::as_bytes(std::span(&parameters, 1)).first(28), nullptr);
    if (fault) state.SkipWithError(fault->text.c_str());
  }
  state.counters["flops"] =
      benchmark::Counter(2.0 * n * n * n, benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(matmul)->Arg(1)->Arg(2)->Unit(benchmark::kMillisecond)->UseRealTime();

void empty_launch(benchmark::State& state) {
  Arena arena;
  const auto program = load(arena, matmul_text(), 1);
  GridConfig config;
  config.block = {32, 1, 1};
  for (auto _ : state) {
    if (program->run("empty", config, {}, nullptr)) state.SkipWithError("fault");
  }
}
BENCHMARK(empty_launch);

void load_module(benchmark::State& state) {
  Arena arena;
  const std::string text = matmul_text();
  for (auto _ : state) benchmark::DoNotOptimize(load(arena, text, 1));
}
BENCHMARK(load_module);

}  // namespace
}  // namespace fargpu::sim

BENCHMARK_MAIN();
