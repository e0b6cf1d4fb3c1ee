// Loads, stores and atomics in all spaces.
#include <bit>
#include <cmath>

#include "tests/ptx/engine_fixture.h"

namespace fargpu::sim {
namespace {

class MemoryTest : public EngineTest {
 protected:
  // A kernel with the address of the output in %rd1 and of the input in %rd3, the thread in %r1.
  static std::string kernel(const std::string& body, const std::string& before = "") {
    return module_text(before + R"(
.visible .entry k(.param .u64 out, .param .u64 in) {
  .reg .pred %p<10>; .reg .b16 %h<20>; .reg .b32 %r<40>; .reg .f32 %f<20>; .reg .b64 %rd<40>;
  .reg .f64 %fd<10>; .reg .b128 %q<4>;
  ld.param.u64 %rd1, [out]; ld.param.u64 %rd3, [in]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4;
  add.u64 %rd2, %rd1, %rd2;
)" + body + "\n  ret;\n}\n");
  }
};

TEST_F(MemoryTest, WidthsAndExtension) {
  load(kernel(R"(
  ld.global.u8 %r2, [%rd3]; st.global.u32 [%rd1], %r2; ld.global.s8 %r2, [%rd3];
  st.global.u32 [%rd1+4], %r2;
  ld.global.u16 %r2, [%rd3]; st.global.u32 [%rd1+8], %r2; ld.global.s16 %r2, [%rd3];
  st.global.u32 [%rd1+12], %r2;
  ld.global.s32 %rd5, [%rd3]; st.global.u64 [%rd1+16], %rd5; ld.global.u32 %rd5, [%rd3];
  st.global.u64 [%rd1+24], %rd5;
  ld.global.b8 %h1, [%rd3+1]; st.global.u16 [%rd1+32], %h1; ld.global.u64 %rd5, [%rd3];
  st.global.u8 [%rd1+34], %rd5; st.global.u16 [%rd1+36], %rd5;
  st.global.u32 [%rd1+40], %rd5; st.global.u8 [%rd1+44], -3;
  st.global.v2.u16 [%rd1+46+2], {7, %h1};)"));
  const uint64_t in = buffer(std::vector<uint64_t>{0x1122334485868788ull}),
                 out = buffer(std::vector<uint8_t>(64));
  run("k", 1, 1, Parameters().add(out).add(in));
  const auto w = read<uint32_t>(out, 16);
  EXPECT_EQ(w[0], 0x88u);
  EXPECT_EQ(w[1], 0xffffff88u);
  EXPECT_EQ(w[2], 0x8788u);
  EXPECT_EQ(w[3], 0xffff8788u);
  EXPECT_EQ(read<uint64_t>(out + 16, 1)[0], 0xffffffff85868788ull);
  EXPECT_EQ(read<uint64_t>(out + 24, 1)[0], 0x85868788ull);
  EXPECT_EQ(w[8] & 0xffffff, 0x880087u);
  EXPECT_EQ(w[9] & 0xffff, 0x8788u);
  EXPECT_EQ(w[10], 0x85868788u);
  EXPECT_EQ(w[11] & 0xff, 0xfdu);
  EXPECT_EQ(w[12], 0x870007u);
}

TEST_F(MemoryTest, Vectors) {
  load(kernel(R"(
  ld.global.v4.u32 {%r2, %r3, %r4, %r5}, [%rd3]; st.global.v4.u32 [%rd1], {%r5, %r4, %r3, %r2};
  ld.global.nc.v2.f64 {%fd1, %fd2}, [%rd3+16]; st.global.v2.f64 [%rd1+16], {%fd2, %fd1};
  ld.global.v4.u8 {%h1, %h2, _, %h4}, [%rd3]; st.global.v4.u8 [%rd1+32], {%h4, %h2, %h1, %h1};
  ld.global.v2.u64 {%rd3, %rd4}, [%rd3]; st.global.v2.u64 [%rd1+48], {%rd3, %rd4};
  ld.global.b128 %q1, [%rd1+48]; mov.b128 {%rd6, %rd7}, %q1; mov.b128 %q2, {%rd7, %rd6};
  st.global.b128 [%rd1+64], %q2;)"));
  std::vector<uint32_t> source;
  for (uint32_t i = 0; i < 8; ++i) source.push_back(0x01020304u * (i + 1));
  const uint64_t in = buffer(source), out = buffer(std::vector<uint32_t>(20));
  run("k", 1, 1, Parameters().add(out).add(in));
  const auto r = read<uint32_t>(out, 20);
  for (uint32_t i = 0; i < 4; ++i) {
    EXPECT_EQ(r[i], source[3 - i]);
    EXPECT_EQ(r[4 + i], source[4 + (i ^ 2)]);
    EXPECT_EQ(r[12 + i], source[i]);
    EXPECT_EQ(r[16 + i], source[i ^ 2]);
  }
  EXPECT_EQ(r[8], 0x04040301u);
}

// One block writes values of equal halves, the other counts those whose halves differ.
TEST_F(MemoryTest, AVectorIsWholeForOtherBlocks) {
  options.worker_threads = 2;
  load(kernel(R"(
  mov.u32 %r2, %ctaid.x; setp.ne.u32 %p1, %r2, 0; mov.u32 %r3, 0; mov.u32 %r9, 0;
  @%p1 bra reads;
writes:
  add.u32 %r3, %r3, 1; cvt.u64.u32 %rd5, %r3; mov.b128 %q1, {%rd5, %rd5};
  st.relaxed.gpu.global.v2.u32 [%rd3], {%r3, %r3};
  st.volatile.global.v4.u32 [%rd3+16], {%r3, %r3, %r3, %r3};
  st.volatile.global.v2.u64 [%rd3+32], {%rd5, %rd5};
  st.global.b128 [%rd3+48], %q1;
  setp.lt.u32 %p2, %r3, 200000; @%p2 bra writes;
  bra done;
reads:
  ld.relaxed.gpu.global.v2.u32 {%r4, %r5}, [%rd3];
  setp.ne.u32 %p3, %r4, %r5; @%p3 add.u32 %r9, %r9, 0x1;
  ld.volatile.global.v4.u32 {%r5, %r6, %r7, %r8}, [%rd3+16];
  setp.ne.u32 %p3, %r5, %r8; @%p3 or.b32 %r9, %r9, 0x1000000;
  ld.volatile.global.v2.u64 {%rd6, %rd7}, [%rd3+32];
  setp.ne.u64 %p3, %rd6, %rd7; @%p3 or.b32 %r9, %r9, 0x2000000;
  ld.global.b128 %q2, [%rd3+48]; mov.b128 {%rd6, %rd7}, %q2;
  setp.ne.u64 %p3, %rd6, %rd7; @%p3 or.b32 %r9, %r9, 0x4000000;
  setp.lt.u32 %p2, %r4, 200000; @%p2 bra reads;
  st.global.u32 [%rd1], %r9;
done:)"));
  const uint64_t in = buffer(std::vector<uint32_t>(16)), out = buffer(std::vector<uint32_t>(1));
  run("k", 2, 1, Parameters().add(out).add(in));
  EXPECT_EQ(read<uint32_t>(out, 1)[0], 0u);
}

TEST_F(MemoryTest, GenericAddressesAndSpaces) {
  load(kernel(R"(
  .local .align 8 .b8 mine[64]; .shared .align 8 .b8 ours[256];
  mov.u64 %rd5, mine; cvta.local.u64 %rd6, %rd5; add.u32 %r2, %r1, 100; st.u32 [%rd6+8], %r2;
  ld.local.u32 %r3, [mine+8];
  mov.u64 %rd7, ours; cvta.shared.u64 %rd8, %rd7; mul.wide.u32 %rd9, %r1, 4;
  add.u64 %rd8, %rd8, %rd9; st.u32 [%rd8], %r3; bar.sync 0;
  cvta.to.shared.u64 %rd10, %rd8; ld.shared.u32 %r4, [%rd10]; cvt.u32.u64 %r5, %rd10;
  ld.shared.u32 %r6, [%r5]; add.u32 %r4, %r4, %r6;
  isspacep.shared %p1, %rd8; selp.u32 %r7, 1000, 0, %p1; add.u32 %r4, %r4, %r7;
  isspacep.local %p1, %rd6; selp.u32 %r7, 2000, 0, %p1; add.u32 %r4, %r4, %r7;
  isspacep.global %p1, %rd2; selp.u32 %r7, 4000, 0, %p1; add.u32 %r4, %r4, %r7;
  isspacep.global %p1, %rd8; selp.u32 %r7, 50000, 0, %p1; add.u32 %r4, %r4, %r7;
  mov.b64 %rd11, in; cvta.param.u64 %rd12, %rd11; ld.u64 %rd13, [%rd12];
  setp.ne.u64 %p1, %rd13, %rd3; @%p1 trap; isspacep.param %p1, %rd12; @!%p1 trap;
  st.u32 [%rd2], %r4;)"));
  const uint64_t out = buffer(std::vector<uint32_t>(64)), in = buffer(std::vector<uint32_t>(1));
  run("k", 1, 64, Parameters().add(out).add(in));
  const auto r = read<uint32_t>(out, 64);
  for (uint32_t i = 0; i < 64; ++i) EXPECT_EQ(r[i], 7000 + 2 * (100 + i));
}

TEST_F(MemoryTest, DynamicSharedMemory) {
  load(kernel(R"(
  .shared .align 4 .b8 fixed[12];
  st.shared.u32 [fixed+8], 77; mov.u32 %r2, dynamic; shl.b32 %r3, %r1, 2; add.u32 %r3, %r2, %r3;
  st.shared.u32 [%r3], %r1; bar.sync 0;
  ld.shared.u32 %r4, [dynamic+20]; ld.shared.u32 %r5, [fixed+8]; mad.lo.u32 %r4, %r5, 100, %r4;
  mov.u64 %rd5, dynamic; cvta.shared.u64 %rd5, %rd5; ld.u32 %r6, [%rd5+4];
  add.u32 %r4, %r4, %r6; st.global.u32 [%rd2], %r4;)",
              ".extern .shared .align 16 .b8 dynamic[];"));
  EXPECT_EQ(program->kernel("k")->static_shared_bytes, 12u);
  const uint64_t out = buffer(std::vector<uint32_t>(32));
  run("k", 1, 32, Parameters().add(out).add(uint64_t{0}), 128);
  EXPECT_EQ(read<uint32_t>(out, 1)[0], 7706u);
  // One byte too few for the last thread.
  const auto fault = launch("k", 1, 32, Parameters().add(out).add(uint64_t{0}), 127);
  ASSERT_TRUE(fault.has_value());
  EXPECT_EQ(fault->kind, Fault::Kind::kIllegalAddress);
  EXPECT_EQ(fault->thread[0], 31u);
}

TEST_F(MemoryTest, VariablesAndInitialisers) {
  load(kernel(R"(
  ld.const.u32 %r2, [numbers+8]; ld.global.f32 %f1, [floats]; cvt.rzi.u32.f32 %r3, %f1;
  ld.global.u64 %rd5, [pointer]; ld.u32 %r4, [%rd5];
  ld.global.u8 %r5, [bytes+2]; mov.u64 %rd6, numbers; cvta.const.u64 %rd6, %rd6;
  ld.u32 %r6, [%rd6+4]; ld.global.u32 %r7, [table+12]; ld.const.f64 %fd1, [pi];
  cvt.rzi.u32.f64 %r8, %fd1;
  st.global.u32 [%rd1], %r2; st.global.u32 [%rd1+4], %r3; st.global.u32 [%rd1+8], %r4;
  st.global.u32 [%rd1+12], %r5; st.global.u32 [%rd1+16], %r6; st.global.u32 [%rd1+20], %r7;
  st.global.u32 [%rd1+24], %r8;
  ld.global.u32 %r9, [zeroed+400]; st.global.u32 [%rd1+28], %r9; ld.global.u8 %r10, [split+1];
  st.global.u32 [%rd1+32], %r10; ld.global.u32 %r11, [expression]; st.global.u32 [%rd1+36], %r11;
  atom.global.add.u32 %r12, [counter], 1;)",
              R"(
.const .align 4 .u32 numbers[4] = {10, 20, 30};
.global .f32 floats[2] = {0f42280000, -1.5};
.global .u64 pointer = generic(numbers)+4;
.global .align 1 .b8 bytes[] = {1, 2, 255};
.global .u32 table[2][2] = {{1, 2}, {3, 4}};
.const .f64 pi = 0d400921FB54442D18;
.global .u32 zeroed[200];
.global .b8 split[2] = {0xFF(bytes), 0xFF00(bytes)};
.global .s32 expression = (3 + 4) * 2 - (1 << 3) / 3;
.visible .global .u32 counter = 5;)"));
  const uint64_t out = buffer(std::vector<uint32_t>(10));
  run("k", 1, 1, Parameters().add(out).add(uint64_t{0}));
  run("k", 1, 1, Parameters().add(out).add(uint64_t{0}));
  const auto r = read<uint32_t>(out, 10);
  uint64_t bytes_address = 0, counter = 0;
  for (const GlobalInfo& g : program->globals()) {
    if (g.name == "bytes") bytes_address = g.address;
    if (g.name == "counter") counter = g.address;
    EXPECT_EQ(g.is_constant, g.name == "numbers" || g.name == "pi");
  }
  EXPECT_EQ(r, (std::vector<uint32_t>{30, 42, 20, 255, 20, 4, 3, 0,
                                      static_cast<uint32_t>(bytes_address >> 8 & 0xff), 12}));
  EXPECT_EQ(read<uint32_t>(counter, 1)[0], 7u);
  EXPECT_EQ(program->globals().size(), 10u);
  const size_t before = memory.count();
  program.reset();
  EXPECT_EQ(memory.count(), before - 2);  // variables go with their program
}

// 4096 threads in 16 blocks on several cores hit the same word.
TEST_F(MemoryTest, IntegerAtomicsOfManyBlocks) {
  options.worker_threads = 4;
  const auto total = [&](const std::string& op, uint64_t start) {
    const bool wide = op.ends_with("64");
    const std::string value = wide ? "%rd4" : "%r3";
    load(
        kernel("  mov.u32 %r4, %ctaid.x; mov.u32 %r5, %ntid.x; mad.lo.u32 %r3, %r4, %r5, %r1; "
               "cvt.u64.u32 %rd4, %r3; " +
               std::string(op) +
               (op.starts_with("red") ? " [%rd1], "
                : wide                ? " %rd5, [%rd1], "
                                      : " %r6, [%rd1], ") +
               value + ";"));
    const uint64_t out = buffer(std::vector<uint64_t>{start});
    run("k", 16, 256, Parameters().add(out).add(uint64_t{0}));
    return read<uint64_t>(out, 1)[0];
  };
  const uint64_t sum = 4095ull * 4096 / 2;
  EXPECT_EQ(total("atom.global.add.u32", 1), sum + 1);
  EXPECT_EQ(total("red.global.add.u64", 1), sum + 1);
  EXPECT_EQ(total("atom.add.release.gpu.u32", 0), sum);
  EXPECT_EQ(total("atom.global.max.s32", 0), 4095u);
  EXPECT_EQ(total("atom.global.min.u64", 77777), 0u);
  EXPECT_EQ(total("red.global.or.b32", 0), 4095u);
  EXPECT_EQ(total("atom.global.xor.b32", 9), 9u);
  EXPECT_EQ(total("atom.global.and.b32", 0xffff), 0u);
}

TEST_F(MemoryTest, AtomicResultsAndOperations) {
  load(kernel(R"(
  atom.global.inc.u32 %r2, [%rd1], 5; atom.global.inc.u32 %r2, [%rd1], 5;
  st.global.u32 [%rd1+4], %r2;
  atom.global.dec.u32 %r3, [%rd1+8], 9; atom.global.exch.b32 %r4, [%rd1+12], 99;
  st.global.u32 [%rd1+16], %r4;
  atom.global.cas.b32 %r5, [%rd1+20], 6, 66; atom.global.cas.b32 %r6, [%rd1+24], 100, 66;
  atom.global.cas.b64 %rd5, [%rd1+32], 9, 10;
  mov.b16 %h1, 1; mov.b16 %h2, 2; atom.global.cas.b16 %h3, [%rd1+40], %h1, %h2;
  mov.b128 %q1, {%rd3, %rd3}; atom.global.exch.b128 %q2, [%rd1+48], %q1; mov.b128 {%rd6, %rd7}, %q2;
  mov.b64 %rd9, 5; mov.b128 %q3, {%rd9, %rd9}; atom.global.cas.b128 %q2, [%rd1+48], %q1, %q3;
  st.global.u64 [%rd1+64], %rd6; atom.global.min.s32 %r7, [%rd1+72], -4;
  atom.global.max.u32 %r7, [%rd1+76], -4;)"));
  std::vector<uint32_t> start = {5, 0, 0, 12, 0, 6, 7, 0, 9, 0, 1, 0, 11, 0, 13, 0, 0, 0, 3, 3};
  const uint64_t out = buffer(start);
  run("k", 1, 1, Parameters().add(out).add(uint64_t{0}));
  const auto r = read<uint32_t>(out, 20);
  EXPECT_EQ(r[0], 1u);
  EXPECT_EQ(r[1], 0u);
  EXPECT_EQ(r[2], 9u);
  EXPECT_EQ(r[3], 99u);
  EXPECT_EQ(r[4], 12u);
  EXPECT_EQ(r[5], 66u);
  EXPECT_EQ(r[6], 7u);
  EXPECT_EQ(r[8], 10u);
  EXPECT_EQ(r[10], 2u);
  EXPECT_EQ(r[12], 5u);
  EXPECT_EQ(r[14], 5u);
  EXPECT_EQ(r[16], 11u);
  EXPECT_EQ(r[18], static_cast<uint32_t>(-4));
  EXPECT_EQ(r[19], static_cast<uint32_t>(-4));
}

TEST_F(MemoryTest, FloatAtomics) {
  options.worker_threads = 4;
  load(kernel(R"(
  atom.global.add.f32 %f1, [%rd1], 0f3F800000; red.global.add.f64 [%rd1+8], 0d3FE0000000000000;
  mov.b32 %r2, 0x3c003c00; red.global.add.noftz.f16x2 [%rd1+16], %r2; mov.b16 %h1, 0x3c00;
  atom.global.add.noftz.f16 %h2, [%rd1+20], %h1;
  mov.b32 %r3, 0x3f803f80; red.global.add.noftz.bf16x2 [%rd1+24], %r3;
  mov.u32 %r5, total; st.shared.u32 [%r5], 0; bar.sync 0; cvt.rn.f32.u32 %f2, %r1;
  atom.shared.add.f32 %f3, [%r5], %f2; bar.sync 0; ld.shared.f32 %f4, [%r5];
  st.global.f32 [%rd1+28], %f4;
  red.global.add.v2.f32 [%rd1+32], {%f2, 0f40000000};)",
              ".shared .f32 total;"));
  const uint64_t out = buffer(std::vector<uint32_t>(10));
  run("k", 4, 64, Parameters().add(out).add(uint64_t{0}));
  const auto f = read<float>(out, 10);
  EXPECT_EQ(f[0], 256.0f);
  EXPECT_EQ(read<double>(out + 8, 1)[0], 128.0);
  EXPECT_EQ(read<uint32_t>(out + 16, 1)[0], 0x5c005c00u);  // 256 as f16
  EXPECT_EQ(read<uint16_t>(out + 20, 1)[0], 0x5c00u);
  EXPECT_EQ(read<uint32_t>(out + 24, 1)[0], 0x43804380u);  // 256 as bf16
  EXPECT_EQ(f[7], 2016.0f);
  EXPECT_EQ(f[8], 4 * 2016.0f);
  EXPECT_EQ(f[9], 512.0f);
}

TEST_F(MemoryTest, AsynchronousCopies) {
  load(kernel(R"(
  mov.u32 %r2, tile; shl.b32 %r3, %r1, 4; add.u32 %r2, %r2, %r3; mul.wide.u32 %rd4, %r1, 16;
  add.u64 %rd4, %rd3, %rd4;
  cp.async.cg.shared.global [%r2], [%rd4], 16; cp.async.commit_group; cp.async.wait_group 0;
  bar.sync 0;
  ld.shared.u32 %r4, [%r2+8]; cp.async.ca.shared.global [%r2], [%rd4+4], 8, 4; cp.async.wait_all;
  ld.shared.v2.u32 {%r5, %r6}, [%r2];
  mad.lo.u32 %r4, %r4, 1000, %r5; add.u32 %r4, %r4, %r6; st.global.u32 [%rd2], %r4;)",
              ".shared .align 16 .b8 tile[512];"));
  std::vector<uint32_t> source;
  for (uint32_t i = 0; i < 128; ++i) source.push_back(i);
  const uint64_t in = buffer(source), out = buffer(std::vector<uint32_t>(32));
  auto fault = launch("k", 1, 32, Parameters().add(out).add(in));
  // The second copy begins at 4 bytes and is 8 long: misaligned, as on the device.
  ASSERT_TRUE(fault.has_value());
  EXPECT_EQ(fault->kind, Fault::Kind::kMisalignedAddress);
  load(kernel(R"(
  mov.u32 %r2, tile; shl.b32 %r3, %r1, 4; add.u32 %r2, %r2, %r3; mul.wide.u32 %rd4, %r1, 16;
  add.u64 %rd4, %rd3, %rd4;
  cp.async.cg.shared.global [%r2], [%rd4], 16; cp.async.commit_group; cp.async.wait_group 0;
  bar.sync 0;
  ld.shared.u32 %r4, [%r2+8]; cp.async.ca.shared.global [%r2], [%rd4+8], 8, 4; cp.async.wait_all;
  ld.shared.v2.u32 {%r5, %r6}, [%r2];
  mad.lo.u32 %r4, %r4, 1000, %r5; add.u32 %r4, %r4, %r6; st.global.u32 [%rd2], %r4;)",
              ".shared .align 16 .b8 tile[512];"));
  run("k", 1, 32, Parameters().add(out).add(in));
  const auto r = read<uint32_t>(out, 32);
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(r[i], (4 * i + 2) * 1000 + 4 * i + 2);
}

}  // namespace
}  // namespace fargpu::sim
