// Clusters of blocks, as nvcc compiles them (kernels/clusters.cu) and by hand.
#include <fstream>
#include <iterator>

#include "tests/ptx/engine_fixture.h"

namespace fargpu::sim {
namespace {

class ClusterTest : public EngineTest {
 protected:
  void load_compiled() {
    std::ifstream file(FARGPU_PTX_COMPILED "/clusters_90.ptx");
    if (!file) GTEST_SKIP() << "no nvcc: the kernels were not made";
    load(std::string(std::istreambuf_iterator<char>(file), {}));
  }
  static GridConfig config(std::array<uint32_t, 3> grid, uint32_t block,
                           std::array<uint32_t, 3> cluster) {
    GridConfig config;
    config.grid = grid;
    config.block = {block, 1, 1};
    config.cluster = cluster;
    return config;
  }
};

TEST_F(ClusterTest, BlocksReadEachOthersSharedMemory) {
  load_compiled();
  if (!program) return;
  EXPECT_EQ(program->kernel("ring")->required_cluster, (std::array<uint32_t, 3>{4, 1, 1}));
  const uint64_t out = buffer(std::vector<int32_t>(64 * 32));
  run("ring", 64, 32, Parameters().add(out));
  const auto r = read<int32_t>(out, 64 * 32);
  for (int32_t i = 0; i < 64 * 32; ++i) {
    const int32_t block = i / 32, from = block / 4 * 4 + (block + 3) % 4;
    ASSERT_EQ(r[static_cast<size_t>(i)], from * 1000 + i % 32) << i;
  }
  EXPECT_TRUE(launch("ring", 6, 32, Parameters().add(out)).has_value()) << "not whole clusters";
}

TEST_F(ClusterTest, AtomicsOnAnotherBlock) {
  load_compiled();
  if (!program) return;
  std::vector<uint8_t> data(5000);
  std::vector<uint32_t> expected(256);
  for (size_t i = 0; i < data.size(); ++i) ++expected[data[i] = static_cast<uint8_t>(i * i >> 3)];
  const uint64_t in = buffer(data);
  for (const uint32_t size : {1u, 2u, 8u}) {
    const uint64_t bins = buffer(std::vector<uint32_t>(256));
    GridConfig shape = config({16, 1, 1}, 64, {size, 1, 1});
    shape.dynamic_shared_bytes = 256 / size * 4;
    const auto fault = launch("histogram", shape, Parameters().add(in).add(5000).add(bins));
    EXPECT_FALSE(fault.has_value()) << fault->text;
    EXPECT_EQ(read<uint32_t>(bins, 256), expected) << size;
  }
}

TEST_F(ClusterTest, Shapes) {
  load_compiled();
  if (!program) return;
  struct Shape {
    std::array<uint32_t, 3> block, cluster_block, cluster_blocks, clusters, cluster;
    uint32_t rank, of_pointer;
  };
  const std::array<uint32_t, 3> grid = {4, 6, 2}, size = {2, 3, 1};
  const uint64_t out = buffer(std::vector<Shape>(48));
  const auto fault = launch("shape", config(grid, 1, size), Parameters().add(out));
  ASSERT_FALSE(fault.has_value()) << fault->text;
  const auto shapes = read<Shape>(out, 48);
  for (uint32_t i = 0; i < 48; ++i) {
    const Shape& s = shapes[i];
    const std::array<uint32_t, 3> block = {i % 4, i / 4 % 6, i / 24};
    EXPECT_EQ(s.block, block);
    for (size_t d = 0; d < 3; ++d) {
      EXPECT_EQ(s.cluster[d], block[d] / size[d]) << i;
      EXPECT_EQ(s.cluster_block[d], block[d] % size[d]) << i;
      EXPECT_EQ(s.clusters[d], grid[d] / size[d]) << i;
    }
    EXPECT_EQ(s.cluster_blocks, size);
    EXPECT_EQ(s.rank, block[0] % 2 + 2 * (block[1] % 3)) << i;
    EXPECT_EQ(s.of_pointer, 5u);
  }
}

// Threads that have ended are not waited for; those who wait only once see all who arrived.
constexpr const char* kLeave = R"(
.visible .entry k(.param .u64 out) .reqnctapercluster 2, 1, 1 {
  .shared .b32 flag;
  .reg .pred %p, %q, %e; .reg .b32 %r<10>; .reg .b64 %rd<4>;
  mov.u32 %r1, %cluster_ctarank; mov.u32 %r2, %tid.x; setp.eq.u32 %p, %r1, 0;
  setp.ge.u32 %q, %r2, 40; @%q exit;
  mov.u32 %r3, flag; mapa.shared::cluster.u32 %r4, %r3, 1;
  @%p bra FIRST;
  barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;
  bra DONE;
FIRST:
  mov.u32 %r5, 5;
  red.shared::cluster.add.u32 [%r4], %r5;
  barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
DONE:
  ld.shared::cluster.u32 %r6, [%r4];
  getctarank.shared::cluster.u32 %r7, %r4; mad.lo.u32 %r6, %r7, 1000, %r6;
  mov.pred %e, %is_explicit_cluster; @%e add.u32 %r6, %r6, 10000;
  ld.param.u64 %rd1, [out]; mad.lo.u32 %r8, %r1, 64, %r2; mul.wide.u32 %rd2, %r8, 4;
  add.u64 %rd1, %rd1, %rd2; st.global.u32 [%rd1], %r6;
  barrier.cluster.arrive; barrier.cluster.wait;
  ret;
})";

TEST_F(ClusterTest, TheBarrierDoesNotWaitForThreadsThatEnded) {
  load(module_text(kLeave));
  const uint64_t out = buffer(std::vector<uint32_t>(128));
  run("k", 2, 64, Parameters().add(out));
  const auto r = read<uint32_t>(out, 128);
  for (uint32_t i = 0; i < 128; ++i) ASSERT_EQ(r[i], i % 64 < 40 ? 11200u : 0u) << i;
}

TEST_F(ClusterTest, ADeadlockOfTheClusterIsFound) {
  load(module_text(R"(
.visible .entry k() .reqnctapercluster 2, 1, 1 {
  .reg .pred %p; .reg .b32 %r<3>;
  mov.u32 %r1, %cluster_ctarank; setp.eq.u32 %p, %r1, 0;
  @%p bra WAIT;
  bar.sync 1, 64; ret;
WAIT: barrier.cluster.arrive; barrier.cluster.wait; ret;
})"));
  const auto fault = launch("k", 2, 32, Parameters());
  ASSERT_TRUE(fault.has_value());
  EXPECT_EQ(fault->kind, Fault::Kind::kDeadlock) << fault->text;
}

TEST_F(ClusterTest, AddressesOfNoBlockFault) {
  load(module_text(R"(
.visible .entry k() {
  .shared .b32 v; .reg .b32 %r<4>;
  mov.u32 %r1, v; mapa.shared::cluster.u32 %r2, %r1, 1; ld.shared::cluster.u32 %r3, [%r2]; ret;
})"));
  const auto alone = launch("k", config({2, 1, 1}, 1, {1, 1, 1}), Parameters());
  ASSERT_TRUE(alone.has_value());
  EXPECT_EQ(alone->kind, Fault::Kind::kIllegalAddress);
  EXPECT_FALSE(launch("k", config({2, 1, 1}, 1, {2, 1, 1}), Parameters()).has_value());
}

}  // namespace
}  // namespace fargpu::sim
