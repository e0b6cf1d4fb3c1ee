// Divergence, reconvergence, and operations that join the lanes of a warp or the warps of a block.
#include "tests/ptx/engine_fixture.h"

namespace fargpu::sim {
namespace {

constexpr const char* kHead = R"(
  .reg .pred %p<20>; .reg .b32 %r<40>; .reg .b64 %rd<20>;
  ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x; mov.u32 %r2, %laneid;
  mov.u32 %r20, %ctaid.x; mov.u32 %r21, %ntid.x; mad.lo.u32 %r22, %r20, %r21, %r1;
  mul.wide.u32 %rd2, %r22, 4; add.u64 %rd2, %rd1, %rd2;
)";

std::string kernel(const std::string& body, const std::string& before = "") {
  return module_text(before + "\n.visible .entry k(.param .u64 out, .param .u64 in) {" + kHead +
                     body + "\n  ret;\n}\n");
}

class WarpTest : public EngineTest {
 protected:
  std::vector<uint32_t> values(const std::string& text, uint32_t block = 32, uint32_t grid = 1) {
    load(text);
    if (!program) return std::vector<uint32_t>(block * grid);
    const uint64_t out = buffer(std::vector<uint32_t>(block * grid));
    run("k", grid, block, Parameters().add(out).add(uint64_t{0}));
    return read<uint32_t>(out, block * grid);
  }
};

TEST_F(WarpTest, BranchesAndReconvergence) {
  // Four ways through nested branches; after them all lanes vote together.
  const auto r = values(kernel(R"(
  and.b32 %r3, %r1, 1; setp.ne.u32 %p1, %r3, 0; mov.u32 %r4, 0;
  @%p1 bra ODD;
  and.b32 %r5, %r1, 2; setp.ne.u32 %p2, %r5, 0;
  @%p2 bra TWO;
  add.u32 %r4, %r4, 10; bra INNER;
TWO: add.u32 %r4, %r4, 20;
INNER: add.u32 %r4, %r4, 1; bra JOIN;
ODD: add.u32 %r4, %r4, 30;
JOIN:
  activemask.b32 %r6; popc.b32 %r7, %r6; mad.lo.u32 %r4, %r7, 1000, %r4;
  st.global.u32 [%rd2], %r4;)"));
  for (uint32_t i = 0; i < 32; ++i)
    EXPECT_EQ(r[i], 32000u + ((i & 1) ? 30 : (i & 2) ? 21 : 11)) << i;
}

TEST_F(WarpTest, LoopsOfDifferentLength) {
  const auto r = values(kernel(R"(
  mov.u32 %r3, 0; mov.u32 %r4, 0;
LOOP: setp.gt.u32 %p1, %r3, %r1; @%p1 bra DONE; add.u32 %r4, %r4, %r3; add.u32 %r3, %r3, 1;
  bra LOOP;
DONE: activemask.b32 %r6; popc.b32 %r7, %r6; mad.lo.u32 %r4, %r7, 100000, %r4;
  st.global.u32 [%rd2], %r4;)"),
                        64);
  for (uint32_t i = 0; i < 64; ++i) EXPECT_EQ(r[i], 3200000 + i * (i + 1) / 2);
}

TEST_F(WarpTest, EarlyExitAndPartialWarps) {
  const auto r = values(kernel(R"(
  setp.ge.u32 %p1, %r1, 40; @%p1 exit; setp.eq.u32 %p2, %r1, 3; @%p2 ret;
  bar.sync 0; activemask.b32 %r6; popc.b32 %r7, %r6; st.global.u32 [%rd2], %r7;)"),
                        50);
  for (uint32_t i = 0; i < 50; ++i)
    EXPECT_EQ(r[i], i >= 40 || i == 3 ? 0u : i < 32 ? 31u : 8u) << i;
}

TEST_F(WarpTest, IndexedBranch) {
  const auto r = values(kernel(R"(
  rem.u32 %r3, %r1, 3;
  T: .branchtargets A, B, C;
  brx.idx %r3, T;
A: mov.u32 %r4, 100; bra END;
B: mov.u32 %r4, 200; bra END;
C: mov.u32 %r4, 300;
END: activemask.b32 %r6; popc.b32 %r7, %r6; add.u32 %r4, %r4, %r7; st.global.u32 [%rd2], %r4;)"));
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(r[i], (i % 3 + 1) * 100 + 32);
}

TEST_F(WarpTest, Shuffles) {
  const auto shuffled = [&](const std::string& op) {
    return values(
        kernel("  mul.lo.u32 %r3, %r2, 7; mov.u32 %r4, 0; " + op +
               " selp.u32 %r5, 1000, 0, %p1; add.u32 %r4, %r4, %r5; st.global.u32 [%rd2], %r4;"));
  };
  const auto up = shuffled("shfl.sync.up.b32 %r4|%p1, %r3, 3, 0, -1;");
  const auto down = shuffled("shfl.sync.down.b32 %r4|%p1, %r3, 5, 31, -1;");
  const auto bfly = shuffled("shfl.sync.bfly.b32 %r4|%p1, %r3, 16, 31, -1;");
  const auto idx = shuffled("shfl.sync.idx.b32 %r4|%p1, %r3, 9, 31, -1;");
  const auto by_lane =
      shuffled("xor.b32 %r6, %r2, 1; shfl.sync.idx.b32 %r4|%p1, %r3, %r6, 31, -1;");
  // segments of 8 lanes
  const auto eights = shuffled("shfl.sync.down.b32 %r4|%p1, %r3, 1, 0x1807, -1;");
  for (uint32_t i = 0; i < 32; ++i) {
    EXPECT_EQ(up[i], i >= 3 ? 1000 + (i - 3) * 7 : i * 7);
    EXPECT_EQ(down[i], i + 5 < 32 ? 1000 + (i + 5) * 7 : i * 7);
    EXPECT_EQ(bfly[i], 1000 + (i ^ 16) * 7);
    EXPECT_EQ(idx[i], 1000u + 63);
    EXPECT_EQ(by_lane[i], 1000 + (i ^ 1) * 7);
    EXPECT_EQ(eights[i], i % 8 != 7 ? 1000 + (i + 1) * 7 : i * 7) << i;
  }
}

TEST_F(WarpTest, VotesMatchesAndReductions) {
  const auto r = values(kernel(R"(
  setp.lt.u32 %p1, %r2, 5; vote.sync.ballot.b32 %r3, %p1, -1;
  vote.sync.any.pred %p2, %p1, -1; vote.sync.all.pred %p3, %p1, -1; vote.sync.uni.pred %p4, %p1, -1;
  vote.sync.all.pred %p5, !%p2, -1;
  selp.u32 %r4, 1, 0, %p2; selp.u32 %r5, 2, 0, %p3; selp.u32 %r6, 4, 0, %p4;
  selp.u32 %r7, 8, 0, %p5;
  or.b32 %r4, %r4, %r5; or.b32 %r4, %r4, %r6; or.b32 %r4, %r4, %r7;
  shl.b32 %r3, %r3, 8; or.b32 %r4, %r4, %r3; st.global.u32 [%rd2], %r4;)"));
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(r[i], 0x1f00u | 1u);
  const auto any = values(
      kernel("  rem.u32 %r3, %r2, 5; match.any.sync.b32 %r4, %r3, -1; st.global.u32 [%rd2], %r4;"));
  const auto all =
      values(kernel("  mov.u64 %rd3, 77; match.all.sync.b64 %r4|%p1, %rd3, -1; selp.u32 %r5, %r4, "
                    "0, %p1; st.global.u32 [%rd2], %r5;"));
  const auto none =
      values(kernel("  match.all.sync.b32 %r4|%p1, %r2, -1; selp.u32 %r5, 9, %r4, %p1; "
                    "st.global.u32 [%rd2], %r5;"));
  for (uint32_t i = 0; i < 32; ++i) {
    uint32_t e = 0;
    for (uint32_t k = i % 5; k < 32; k += 5) e |= 1u << k;
    EXPECT_EQ(any[i], e);
    EXPECT_EQ(all[i], ~0u);
    EXPECT_EQ(none[i], 0u);
  }
  const auto redux = [&](const std::string& op) {
    return values(kernel("  sub.u32 %r3, %r2, 10; redux.sync." + op +
                         " %r4, %r3, -1; st.global.u32 [%rd2], %r4;"))[7];
  };
  EXPECT_EQ(redux("add.s32"), 496u - 320);
  EXPECT_EQ(redux("min.s32"), static_cast<uint32_t>(-10));
  EXPECT_EQ(redux("max.s32"), 21u);
  EXPECT_EQ(redux("min.u32"), 0u);
  EXPECT_EQ(redux("max.u32"), ~0u);
  EXPECT_EQ(redux("or.b32"), ~0u);
  EXPECT_EQ(redux("and.b32"), 0u);
  uint32_t x = 0;
  for (uint32_t i = 0; i < 32; ++i) x ^= i - 10;
  EXPECT_EQ(redux("xor.b32"), x);
  const auto elected =
      values(kernel("  setp.ge.u32 %p2, %r2, 12; mov.u32 %r4, 0; @%p2 elect.sync %r4|%p1, "
                    "0xfffff000; @!%p2 mov.pred %p1, 0; selp.u32 %r5, 100, 0, %p1; add.u32 %r4, "
                    "%r4, %r5; st.global.u32 [%rd2], %r4;"));
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(elected[i], i < 12 ? 0u : i == 12 ? 112u : 12u);
}

// Lanes on both sides of a branch meet at different instructions with the same member mask.
TEST_F(WarpTest, SyncAcrossBranches) {
  const auto r = values(kernel(R"(
  setp.lt.u32 %p1, %r2, 16; mul.lo.u32 %r3, %r2, 3;
  @%p1 bra LOW;
  shfl.sync.bfly.b32 %r4, %r3, 16, 31, -1; add.u32 %r4, %r4, 1000; bra END;
LOW:
  shfl.sync.bfly.b32 %r4, %r3, 16, 31, -1; add.u32 %r4, %r4, 2000;
END: st.global.u32 [%rd2], %r4;)"));
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(r[i], (i < 16 ? 2000 : 1000) + (i ^ 16) * 3);
}

// Halves of a warp with their own member masks, converged and divergent.
TEST_F(WarpTest, MemberMasks) {
  const auto r = values(kernel(R"(
  setp.lt.u32 %p1, %r2, 16; selp.b32 %r3, 0x0000ffff, 0xffff0000, %p1;
  setp.eq.u32 %p2, %r2, 3; vote.sync.any.pred %p3, %p2, %r3; selp.u32 %r4, 1, 0, %p3;
  and.b32 %r5, %r2, 1; setp.eq.u32 %p4, %r5, 0; selp.b32 %r6, 0x55555555, 0xaaaaaaaa, %p4;
  @%p4 bra EVEN;
  redux.sync.add.u32 %r7, %r2, %r6; bra END;
EVEN: redux.sync.add.u32 %r7, %r2, %r6; add.u32 %r7, %r7, 10000;
END: bar.warp.sync -1; mad.lo.u32 %r4, %r7, 10, %r4; st.global.u32 [%rd2], %r4;)"));
  for (uint32_t i = 0; i < 32; ++i)
    EXPECT_EQ(r[i], ((i & 1) ? 256u : 10240u) * 10 + (i < 16 ? 1 : 0)) << i;
}

// A guard that leaves part of the warp out of a sync, which then waits for the others' own one.
TEST_F(WarpTest, GuardedSync) {
  const auto r = values(kernel(R"(
  setp.lt.u32 %p1, %r2, 8; mov.u32 %r4, 0;
  @%p1 vote.sync.ballot.b32 %r4, 1, 0x000000ff;
  @!%p1 vote.sync.ballot.b32 %r4, 1, 0xffffff00;
  st.global.u32 [%rd2], %r4;)"));
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(r[i], i < 8 ? 0xffu : 0xffffff00u);
}

// A lock taken by every lane of a warp in turn: the holder must get on while others spin.
TEST_F(WarpTest, LockBetweenLanes) {
  const auto r = values(kernel(R"(
  mov.u32 %r3, lock;
SPIN: atom.shared.cas.b32 %r4, [%r3], 0, 1; setp.ne.u32 %p1, %r4, 0; @%p1 bra SPIN;
  ld.volatile.shared.u32 %r5, [%r3+4]; add.u32 %r5, %r5, 1; st.volatile.shared.u32 [%r3+4], %r5;
  membar.cta; atom.shared.exch.b32 %r4, [%r3], 0;
  bar.sync 0; ld.shared.u32 %r6, [%r3+4]; st.global.u32 [%rd2], %r6;)",
                               ".shared .align 4 .u32 lock[2];"),
                        96);
  // Shared memory is zero in a new block of this engine's first run.
  for (uint32_t i = 0; i < 96; ++i) EXPECT_EQ(r[i], 96u);
}

// Block 0 waits for a flag that the last block sets.
TEST_F(WarpTest, BlocksWaitForLaterBlocks) {
  options.worker_threads = 1;
  load(kernel(R"(
  ld.param.u64 %rd3, [in]; setp.ne.u32 %p1, %r20, 0; @%p1 bra OTHER;
WAIT: ld.acquire.gpu.global.u32 %r3, [%rd3]; setp.lt.u32 %p2, %r3, 7; @%p2 bra WAIT;
  bra END;
OTHER: setp.ne.u32 %p3, %r1, 0; @%p3 bra END; red.release.gpu.global.add.u32 [%rd3], 1;
END: mov.u32 %r4, 5; st.global.u32 [%rd2], %r4;)"));
  const uint64_t out = buffer(std::vector<uint32_t>(8 * 64)),
                 flag = buffer(std::vector<uint32_t>{0});
  run("k", 8, 64, Parameters().add(out).add(flag));
  EXPECT_EQ(read<uint32_t>(flag, 1)[0], 7u);
  for (const uint32_t v : read<uint32_t>(out, 8 * 64)) EXPECT_EQ(v, 5u);
}

TEST_F(WarpTest, Barriers) {
  // Values travel through shared memory in both directions; barrier 1 is for the first two warps
  // only.
  const auto r = values(kernel(R"(
  mov.u32 %r3, data; shl.b32 %r4, %r1, 2; add.u32 %r4, %r3, %r4; st.shared.u32 [%r4], %r1;
  bar.sync 0;
  sub.u32 %r5, 127, %r1; shl.b32 %r5, %r5, 2; add.u32 %r5, %r3, %r5; ld.shared.u32 %r6, [%r5];
  barrier.sync 0;
  setp.ge.u32 %p1, %r1, 64; @%p1 bra END;
  st.shared.u32 [%r4], %r6; bar.sync 1, 64; xor.b32 %r7, %r4, 128; ld.shared.u32 %r6, [%r7];
END: st.global.u32 [%rd2], %r6;)",
                               ".shared .align 512 .u32 data[128];"),
                        128);
  for (uint32_t i = 0; i < 128; ++i) EXPECT_EQ(r[i], i >= 64 ? 127 - i : 127 - (i ^ 32)) << i;
}

TEST_F(WarpTest, BarrierReductionsAndArrive) {
  const auto r = values(kernel(R"(
  setp.lt.u32 %p1, %r1, 50; bar.red.popc.u32 %r3, 0, %p1; bar.red.and.pred %p2, 0, %p1;
  bar.red.or.pred %p3, 0, !%p1;
  selp.u32 %r4, 1000, 0, %p2; selp.u32 %r5, 2000, 0, %p3; add.u32 %r3, %r3, %r4;
  add.u32 %r3, %r3, %r5;
  setp.lt.u32 %p4, %r1, 32; @!%p4 bar.arrive 3, 96; @%p4 bar.sync 3, 96;
  st.global.u32 [%rd2], %r3;)"),
                        96);
  for (uint32_t i = 0; i < 96; ++i) EXPECT_EQ(r[i], 2050u);
}

// Threads at different barrier instructions of a divergent branch meet all the same.
TEST_F(WarpTest, BarrierInDivergentCode) {
  const auto r = values(kernel(R"(
  mov.u32 %r3, data; and.b32 %r4, %r1, 1; setp.ne.u32 %p1, %r4, 0; @%p1 bra ODD;
  st.shared.u32 [%r3], 42; barrier.sync 0; mov.u32 %r5, 1; bra END;
ODD: barrier.sync 0; ld.shared.u32 %r5, [%r3];
END: st.global.u32 [%rd2], %r5;)",
                               ".shared .u32 data;"),
                        64);
  for (uint32_t i = 0; i < 64; ++i) EXPECT_EQ(r[i], (i & 1) ? 42u : 1u);
}

// Values stay in registers that a warp gives up and takes, and warps do so on their own.
TEST_F(WarpTest, NumbersOfRegisters) {
  const auto r = values(kernel(R"(
  mad.lo.u32 %r3, %r1, 3, 1; mul.lo.u32 %r4, %r1, %r1; setp.lt.u32 %p1, %r1, 32; @%p1 bra FEWER;
  setmaxnreg.inc.sync.aligned.u32 256; add.u32 %r5, %r3, %r4; bra END;
FEWER: setmaxnreg.dec.sync.aligned.u32 24; sub.u32 %r5, %r3, %r4;
END: bar.sync 0; st.global.u32 [%rd2], %r5;)"),
                        64);
  for (uint32_t i = 0; i < 64; ++i)
    EXPECT_EQ(r[i], i < 32 ? i * 3 + 1 - i * i : i * 3 + 1 + i * i) << i;
}

TEST_F(WarpTest, NumbersOfRegistersThatCannotBe) {
  for (const char* count : {"16", "264", "25", "0", "-8", "%r1"}) {
    const LoadError error =
        load_error(kernel(std::string("setmaxnreg.inc.sync.aligned.u32 ") + count + ";"));
    EXPECT_NE(error.message.find("multiple of 8"), std::string::npos) << count << error.message;
  }
  for (const char* form : {"setmaxnreg.inc.aligned.u32", "setmaxnreg.inc.sync.u32",
                           "setmaxnreg.sync.aligned.u32", "setmaxnreg.dec.sync.aligned.s32"})
    EXPECT_NE(load_error(kernel(std::string(form) + " 40;")).message, "") << form;
}

TEST_F(WarpTest, DeadlockIsAFault) {
  load(kernel("  setp.lt.u32 %p1, %r1, 32; @%p1 bar.sync 1, 96; st.global.u32 [%rd2], 1;"));
  const uint64_t out = buffer(std::vector<uint32_t>(64));
  const auto fault = launch("k", 1, 64, Parameters().add(out).add(uint64_t{0}));
  ASSERT_TRUE(fault.has_value());
  EXPECT_EQ(fault->kind, Fault::Kind::kDeadlock);
  EXPECT_NE(fault->text.find("bar.sync"), std::string::npos) << fault->text;
  // Lanes of one warp that wait for each other at syncs of different masks.
  load(
      kernel("  setp.lt.u32 %p1, %r2, 16; @%p1 bra A; bar.warp.sync 0xffff0001; bra E;\nA: "
             "bar.warp.sync 0x8000ffff;\nE: st.global.u32 [%rd2], 1;"));
  const auto crossed = launch("k", 1, 32, Parameters().add(out).add(uint64_t{0}));
  ASSERT_TRUE(crossed.has_value());
  EXPECT_EQ(crossed->kind, Fault::Kind::kDeadlock);
}

TEST_F(WarpTest, CooperativeGridSync) {
  // The code that cooperative groups compile to: the barrier's address comes in two halves.
  load(kernel(R"(
  st.global.u32 [%rd2], %r22;
  mov.u32 %r3, %envreg2; mov.u32 %r4, %envreg1; cvt.u64.u32 %rd3, %r3; cvt.u64.u32 %rd4, %r4;
  bfi.b64 %rd5, %rd4, %rd3, 32, 32;
  setp.ne.s64 %p1, %rd5, 0; @%p1 bra OK; trap;
OK: barrier.sync 0; setp.ne.u32 %p2, %r1, 0; @%p2 bra PASS;
  mov.u32 %r5, %nctaid.x; sub.u32 %r6, -2147483647, %r5; setp.eq.u32 %p3, %r20, 0;
  selp.b32 %r7, %r6, 1, %p3;
  atom.add.release.gpu.u32 %r8, [%rd5+4], %r7;
WAIT: ld.acquire.gpu.u32 %r9, [%rd5+4]; xor.b32 %r10, %r9, %r8; setp.gt.s32 %p4, %r10, -1;
  @%p4 bra WAIT;
PASS: barrier.sync 0;
  mov.u32 %r5, %nctaid.x; mul.lo.u32 %r11, %r5, %r21; sub.u32 %r11, %r11, 1;
  sub.u32 %r11, %r11, %r22;
  mul.wide.u32 %rd6, %r11, 4; add.u64 %rd6, %rd1, %rd6; ld.global.u32 %r12, [%rd6];
  ld.param.u64 %rd7, [in]; mul.wide.u32 %rd8, %r22, 4; add.u64 %rd7, %rd7, %rd8;
  st.global.u32 [%rd7], %r12;)"));
  const uint32_t n = 24 * 64;
  const uint64_t out = buffer(std::vector<uint32_t>(n)), in = buffer(std::vector<uint32_t>(n));
  GridConfig config;
  config.grid = {24, 1, 1};
  config.block = {64, 1, 1};
  config.cooperative = true;
  const auto fault = launch("k", config, Parameters().add(out).add(in));
  ASSERT_FALSE(fault.has_value()) << fault->text;
  const auto r = read<uint32_t>(in, n);
  for (uint32_t i = 0; i < n; ++i) ASSERT_EQ(r[i], n - 1 - i);
  // Not cooperative: no barrier, and the program says so by its trap.
  config.cooperative = false;
  EXPECT_EQ(launch("k", config, Parameters().add(out).add(in))->kind, Fault::Kind::kTrap);
}

TEST_F(WarpTest, SpecialRegisters) {
  load(kernel(R"(
  mov.u32 %r3, %lanemask_lt; mov.u32 %r4, %lanemask_le; mov.u32 %r5, %lanemask_eq;
  mov.u32 %r6, %lanemask_ge; mov.u32 %r7, %lanemask_gt;
  add.u32 %r8, %r3, %r5; setp.ne.u32 %p1, %r8, %r4; @%p1 trap; or.b32 %r9, %r5, %r7;
  setp.ne.u32 %p1, %r9, %r6; @%p1 trap;
  popc.b32 %r10, %r3; setp.ne.u32 %p1, %r10, %r2; @%p1 trap;
  mov.u32 %r11, %warpid; mov.u32 %r12, %nwarpid; mov.u32 %r13, %smid; mov.u32 %r14, %nsmid;
  setp.ge.u32 %p1, %r13, %r14; @%p1 trap; setp.ge.u32 %p1, %r11, %r12; @%p1 trap;
  mov.u64 %rd3, %clock64; mov.u64 %rd4, %clock64; setp.lt.u64 %p1, %rd4, %rd3; @%p1 trap;
  mov.u64 %rd5, %globaltimer; setp.eq.u64 %p1, %rd5, 0; @%p1 trap;
  mov.u32 %r15, %dynamic_smem_size; setp.ne.u32 %p1, %r15, 128; @%p1 trap;
  mov.u32 %r16, %cluster_nctarank; setp.ne.u32 %p1, %r16, 1; @%p1 trap;
  mov.u32 %r17, %tid.z; shl.b32 %r17, %r17, 8; mov.u32 %r18, %tid.y; or.b32 %r17, %r17, %r18;
  shl.b32 %r17, %r17, 8; or.b32 %r17, %r17, %r1;
  mov.u32 %r23, %ctaid.y; shl.b32 %r23, %r23, 24; or.b32 %r17, %r17, %r23;
  mov.u32 %r24, %ntid.x; mov.u32 %r25, %ntid.y; mov.u32 %r26, %tid.z;
  mad.lo.u32 %r27, %r26, %r25, %r18; mad.lo.u32 %r27, %r27, %r24, %r1;
  mov.u32 %r28, %ctaid.z; mov.u32 %r29, %nctaid.y; mov.u32 %r30, %ctaid.y;
  mad.lo.u32 %r28, %r28, %r29, %r30; mov.u32 %r31, %nctaid.x; mad.lo.u32 %r28, %r28, %r31, %r20;
  mad.lo.u32 %r27, %r28, 60, %r27; mul.wide.u32 %rd6, %r27, 4; add.u64 %rd6, %rd1, %rd6;
  st.global.u32 [%rd6], %r17;)"));
  const uint64_t out = buffer(std::vector<uint32_t>(60 * 12));
  GridConfig config;
  config.grid = {2, 3, 2};
  config.block = {5, 4, 3};
  config.dynamic_shared_bytes = 128;
  const auto fault = launch("k", config, Parameters().add(out).add(uint64_t{0}));
  ASSERT_FALSE(fault.has_value()) << fault->text;
  const auto r = read<uint32_t>(out, 60 * 12);
  for (uint32_t b = 0; b < 12; ++b) {
    for (uint32_t t = 0; t < 60; ++t)
      EXPECT_EQ(r[b * 60 + t], (b / 2 % 3) << 24 | (t / 20) << 16 | (t / 5 % 4) << 8 | t % 5);
  }
}

}  // namespace
}  // namespace fargpu::sim
