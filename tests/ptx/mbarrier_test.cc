// Memory barriers, bulk copies and copies of tensors.
#include <fstream>
#include <iterator>

#include "sim/exec/tensor_map.h"
#include "tests/ptx/engine_fixture.h"

namespace fargpu::sim {
namespace {

class BarrierTest : public EngineTest {
 protected:
  void load_compiled(const std::string& target) {
    std::ifstream file(FARGPU_PTX_COMPILED "/transactions_" + target + ".ptx");
    if (!file) GTEST_SKIP() << "no nvcc: the kernels were not made";
    load(std::string(std::istreambuf_iterator<char>(file), {}));
  }
  // A kernel of one thread that may put results into %o; they are what comes back.
  std::optional<Fault> one_thread(const std::string& body) {
    load(
        module_text(".visible .entry k(.param .u64 out) {\n  .shared .align 8 .b64 bar;\n"
                    "  .reg .pred %p<9>; .reg .b32 %r<20>; .reg .b64 %s<9>, %out;\n"
                    "  ld.param.u64 %out, [out]; mov.u32 %r0, bar;\n" +
                    body + "\n  ret;\n}\n"));
    out_ = buffer(std::vector<uint32_t>(8));
    return launch("k", 1, 1, Parameters().add(out_));
  }
  std::vector<uint32_t> results() { return read<uint32_t>(out_, 8); }
  uint64_t out_ = 0;
};

std::string test_into(const std::string& test, int place) {
  return test + " selp.u32 %r10, 1, 0, %p1; st.global.u32 [%out+" + std::to_string(4 * place) +
         "], %r10;\n";
}

TEST_F(BarrierTest, PhasesEndWithTheLastArrival) {
  const std::string state = "mbarrier.test_wait.shared.b64 %p1, [%r0], %s1;";
  const auto parity = [](int p) {
    return "mbarrier.test_wait.parity.shared::cta.b64 %p1, [%r0], " + std::to_string(p) + ";";
  };
  const auto fault = one_thread(
      "mbarrier.init.shared.b64 [%r0], 3;\n" + test_into(parity(1), 0) + test_into(parity(0), 1) +
      "mbarrier.arrive.shared.b64 %s1, [%r0];\n"
      "mbarrier.arrive_drop.shared.b64 _, [%r0];\n" +
      test_into(state, 2) + "mbarrier.arrive.release.cta.shared::cta.b64 %s2, [%r0], 1;\n" +
      test_into(state, 3) + test_into(parity(0), 4) +
      // One of three has dropped out: two arrivals end the next phase.
      "mbarrier.arrive.noComplete.release.cta.shared.b64 %s3, [%r0], 1;\n"
      "mbarrier.pending_count.b64 %r11, %s3; st.global.u32 [%out+20], %r11;\n" +
      test_into(parity(1), 6) + "mbarrier.arrive.shared.b64 _, [bar];\n" + test_into(parity(1), 7));
  ASSERT_FALSE(fault.has_value()) << fault->text;
  EXPECT_EQ(results(), (std::vector<uint32_t>{1, 0, 0, 1, 1, 2, 0, 1}));
}

TEST_F(BarrierTest, TransactionsHoldAPhase) {
  const std::string done = "mbarrier.try_wait.parity.shared.b64 %p1, [%r0], 0;";
  const auto fault = one_thread(
      "mbarrier.init.shared.b64 [%r0], 1; fence.mbarrier_init.release.cluster;\n"
      // Bytes may be there before they are announced.
      "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r0], 48;\n"
      "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r0], 16;\n"
      "mbarrier.arrive.expect_tx.shared.b64 %s1, [%r0], 64;\n" +
      test_into(done, 0) + "mbarrier.complete_tx.shared.b64 [%r0], 16;\n" + test_into(done, 1) +
      "mbarrier.complete_tx.shared.b64 [%r0], 16;\n" + test_into(done, 2) +
      "cp.async.mbarrier.arrive.shared.b64 [%r0];\n" +
      test_into("mbarrier.test_wait.parity.shared.b64 %p1, [%r0], 1;", 3) +
      "cp.async.mbarrier.arrive.noinc.shared.b64 [%r0];\n" +
      test_into("mbarrier.test_wait.parity.shared.b64 %p1, [%r0], 1;", 4) +
      "mbarrier.inval.shared.b64 [%r0];");
  ASSERT_FALSE(fault.has_value()) << fault->text;
  EXPECT_EQ(results(), (std::vector<uint32_t>{0, 0, 1, 0, 1, 0, 0, 0}));
}

TEST_F(BarrierTest, MistakesFault) {
  for (const char* body :
       {"mbarrier.init.shared.b64 [%r0], 0;", "mbarrier.init.shared.b64 [%r0], 1048576;",
        "mbarrier.init.shared.b64 [%r0], 1; mbarrier.arrive.shared.b64 _, [%r0], 2;",
        "mbarrier.init.shared.b64 [%r0], 1; mbarrier.expect_tx.shared.b64 [%r0], 1048576;",
        ("mov.u32 %r2, 8; mbarrier.init.shared.b64 [%r0], 1; "
         "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r0], [%out], %r2, "
         "[%r0];")}) {
    const auto fault = one_thread(body);
    ASSERT_TRUE(fault.has_value()) << body;
    EXPECT_EQ(fault->kind, Fault::Kind::kIllegalInstruction) << fault->text;
  }
}

class CompiledBarrierTest : public BarrierTest, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override { load_compiled(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Targets, CompiledBarrierTest, ::testing::Values("80", "90"));

TEST_P(CompiledBarrierTest, ProducerAndConsumers) {
  constexpr int32_t kRounds = 9, kThreads = 128;
  std::vector<int32_t> in(size_t{32} * kRounds);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<int32_t>(i * 17 % 101);
  const uint64_t out = buffer(std::vector<int32_t>(kRounds));
  run("producer", 1, kThreads, Parameters().add(buffer(in)).add(out).add(kRounds));
  const auto sums = read<int32_t>(out, kRounds);
  for (int32_t round = 0; round < kRounds; ++round) {
    int32_t expected = 0;
    for (int32_t t = 32; t < kThreads; ++t) {
      const int32_t place = round * 32 + t % 32;
      expected += in[static_cast<size_t>(place)] * 3 + t;
    }
    EXPECT_EQ(sums[static_cast<size_t>(round)], expected) << round;
  }
}

TEST_P(CompiledBarrierTest, CopiesThatSignal) {
  std::vector<int32_t> in(size_t{4} * 256);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<int32_t>(i * 31);
  const uint64_t from = buffer(in), out = buffer(std::vector<int32_t>(in.size()));
  run("threads_copy", 1, 128, Parameters().add(from).add(out));
  auto r = read<int32_t>(out, 512);
  for (size_t i = 0; i < 512; ++i) ASSERT_EQ(r[i], in[(127 - i / 4) * 4 + i % 4]) << i;
  if (program->kernel("bulk") == nullptr) return;  // from sm_90 on
  run("bulk", 4, 64, Parameters().add(from).add(out));
  r = read<int32_t>(out, in.size());
  for (size_t i = 0; i < r.size(); ++i) ASSERT_EQ(r[i], in[i] * 2) << i;
}

// Block 0 copies to both blocks of the cluster; each waits at its own barrier. Then each writes to
// the other with st.async and red.async.
constexpr const char* kMulticast = R"(
.visible .entry k(.param .u64 in, .param .u64 out) .reqnctapercluster 2, 1, 1 {
  .shared .align 128 .b8 tile[128]; .shared .align 8 .b64 bar; .shared .align 8 .b64 gift;
  .reg .pred %p, %first; .reg .b16 %both; .reg .b32 %r<20>; .reg .b64 %rd<9>;
  mov.u32 %r1, %cluster_ctarank; setp.eq.u32 %first, %r1, 0;
  ld.param.u64 %rd1, [in]; ld.param.u64 %rd2, [out];
  mbarrier.init.shared::cta.b64 [bar], 1;
  mbarrier.arrive.expect_tx.shared.b64 %rd3, [bar], 128;
  barrier.cluster.arrive; barrier.cluster.wait;
  mov.u16 %both, 3; mov.u32 %r2, tile; mov.u32 %r3, bar;
  @%first cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster
    [%r2], [%rd1], 128, [%r3], %both;
WAIT:
  mbarrier.try_wait.shared.b64 %p, [bar], %rd3; @!%p bra WAIT;
  mbarrier.arrive.expect_tx.shared.b64 _, [bar], 12;
  barrier.cluster.arrive; barrier.cluster.wait;
  xor.b32 %r4, %r1, 1; mov.u32 %r5, gift;
  mapa.shared::cluster.u32 %r6, %r5, %r4; mapa.shared::cluster.u32 %r7, %r3, %r4;
  add.u32 %r8, %r1, 70; mov.u32 %r9, 5;
  st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%r6], {%r8, %r9}, [%r7];
  red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32
    [%r6], %r9, [%r7];
AGAIN:
  mbarrier.try_wait.parity.shared.b64 %p, [bar], 1, 100; @!%p bra AGAIN;
  ld.shared.u32 %r10, [tile+124]; ld.shared.u32 %r11, [gift]; ld.shared.u32 %r12, [gift+4];
  mul.wide.u32 %rd4, %r1, 16; add.u64 %rd2, %rd2, %rd4;
  st.global.v4.u32 [%rd2], {%r10, %r11, %r12, %r1};
  barrier.cluster.arrive; barrier.cluster.wait;
  ret;
})";

TEST_F(BarrierTest, OtherBlocksOfACluster) {
  load(module_text(kMulticast));
  std::vector<uint32_t> in(32);
  for (uint32_t i = 0; i < 32; ++i) in[i] = i + 500;
  const uint64_t out = buffer(std::vector<uint32_t>(8));
  run("k", 2, 1, Parameters().add(buffer(in)).add(out));
  EXPECT_EQ(read<uint32_t>(out, 8), (std::vector<uint32_t>{531, 76, 5, 0, 531, 75, 5, 1}));
}

// A box of a tensor with three dimensions into shared memory and, doubled, into another tensor.
constexpr const char* kTensor = R"(
.visible .entry k(.param .align 64 .b8 from[128], .param .align 64 .b8 to[128], .param .u64 raw,
                  .param .u32 x, .param .u32 y, .param .u32 z, .param .u32 bytes) {
  .shared .align 1024 .b8 tile[2048]; .shared .align 8 .b64 bar;
  .reg .pred %p; .reg .b32 %r<20>; .reg .b64 %rd<9>;
  mov.b64 %rd1, from; cvta.param.u64 %rd1, %rd1; mov.b64 %rd2, to; cvta.param.u64 %rd2, %rd2;
  ld.param.u32 %r1, [x]; ld.param.u32 %r2, [y]; ld.param.u32 %r3, [z]; ld.param.u32 %r4, [bytes];
  mov.u32 %r5, tile; mov.u32 %r6, bar;
  prefetch.tensormap [%rd1];
  fence.proxy.tensormap::generic.release.gpu;
  fence.proxy.tensormap::generic.acquire.gpu [%rd1], 128;
  mbarrier.init.shared.b64 [%r6], 1; fence.proxy.async;
  mbarrier.arrive.expect_tx.shared.b64 %rd3, [%r6], %r4;
  cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes
    [%r5], [%rd1, {%r1, %r2, %r3}], [%r6];
WAIT:
  mbarrier.try_wait.shared::cta.b64 %p, [%r6], %rd3; @!%p bra WAIT;
  ld.param.u64 %rd4, [raw]; mov.u32 %r7, 0;
LOOP:
  add.u32 %r8, %r5, %r7; ld.shared.u32 %r9, [%r8]; cvt.u64.u32 %rd5, %r7; add.u64 %rd5, %rd4, %rd5;
  st.global.u32 [%rd5], %r9; add.u32 %r9, %r9, %r9; st.shared.u32 [%r8], %r9;
  add.u32 %r7, %r7, 4; setp.lt.u32 %p, %r7, %r4; @%p bra LOOP;
  cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%rd2, {%r1, %r2, %r3}], [%r5];
  cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
  ret;
})";

TEST_F(BarrierTest, BoxesOfTensors) {
  // 10 x 7 x 5 elements of 4 bytes; boxes of 8 x 4 x 2, the second dimension every other one.
  constexpr uint32_t kX = 10, kY = 7, kZ = 5, kRow = 12;
  std::vector<uint32_t> values(kRow * kY * kZ);
  for (uint32_t i = 0; i < values.size(); ++i) values[i] = i + 1;
  for (const uint8_t swizzle : {0, 1, 2, 3}) {
    for (const auto& at : {std::array<int32_t, 3>{0, 0, 0}, {1, 2, 3}, {-3, -1, -1}, {6, 5, 4}}) {
      load(module_text(kTensor));
      const uint64_t in = buffer(values), out = buffer(std::vector<uint32_t>(values.size())),
                     raw = buffer(std::vector<uint32_t>(512));
      TensorMap map;
      map.mark = TensorMap::kMark;
      map.rank = 3;
      map.address = in;
      map.element_bytes = 4;
      map.strides = {4, kRow * 4, kRow * 4 * kY};
      map.size = {kX - 1, kY - 1, kZ - 1};
      map.box = {8, 4, 2};
      map.step = {1, 2, 1};
      map.swizzle_bits = swizzle;
      TensorMap to = map;
      to.address = out;
      struct alignas(64) Aligned {
        TensorMap map;
      };
      run("k", 1, 1,
          Parameters()
              .add(Aligned{map})
              .add(Aligned{to})
              .add(raw)
              .add(at[0])
              .add(at[1])
              .add(at[2])
              .add(8 * 2 * 2 * 4));
      std::vector<uint32_t> expected(values.size());
      const auto tile = read<uint32_t>(raw, 512);
      for (int32_t i = 0; i < 32; ++i) {
        const int32_t x = at[0] + i % 8, y = at[1] + i / 8 % 2 * 2, z = at[2] + i / 16;
        const bool inside = x >= 0 && x < 10 && y >= 0 && y < 7 && z >= 0 && z < 5;
        const int32_t place = x + 12 * (y + 7 * z);
        // The 16 bytes at 16 * chunk of row 128 * line lie at chunk ^ line.
        const auto byte = static_cast<uint32_t>(i) * 4, line = byte / 128;
        const uint32_t moved = byte ^ (line & ((1u << swizzle) - 1)) << 4;
        EXPECT_EQ(tile[moved / 4], inside ? values[static_cast<size_t>(place)] : 0)
            << i << " of " << at[0];
        if (inside) expected[place] = 2 * values[place];
      }
      EXPECT_EQ(read<uint32_t>(out, values.size()), expected);
    }
  }
}

TEST_F(BarrierTest, WhatIsNoTensorMapFaults) {
  load(module_text(kTensor));
  struct alignas(64) Nothing {
    char bytes[128] = {};
  };
  const auto fault = launch(
      "k", 1, 1,
      Parameters().add(Nothing{}).add(Nothing{}).add(uint64_t{0}).add(0).add(0).add(0).add(128));
  ASSERT_TRUE(fault.has_value());
  EXPECT_EQ(fault->kind, Fault::Kind::kIllegalInstruction) << fault->text;
}

}  // namespace
}  // namespace fargpu::sim
