// Every way a kernel can go wrong ends in a fault that says where.
#include "tests/ptx/engine_fixture.h"

namespace fargpu::sim {
namespace {

class FaultTest : public EngineTest {
 protected:
  std::optional<Fault> fault_of(const std::string& body, uint32_t grid = 2, uint32_t block = 64) {
    load(module_text(R"(.visible .entry wrong(.param .u64 out) {
  .reg .pred %p<4>; .reg .b32 %r<8>; .reg .b64 %rd<8>; .local .align 8 .b8 mine[16];
  .shared .align 8 .b8 ours[32];
  ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x;
)" + body + "\nret; }"));
    out_ = buffer(std::vector<uint32_t>(16));
    return launch("wrong", grid, block, Parameters().add(out_));
  }
  uint64_t out_ = 0;
};

TEST_F(FaultTest, IllegalAddressNamesEverything) {
  const auto fault = fault_of(
      "setp.ne.u32 %p1, %r2, 1; @%p1 ret; setp.ne.u32 %p2, %r1, 37; @%p2 ret;\n"
      "st.global.u32 [%rd1+64], %r1;");
  ASSERT_TRUE(fault.has_value());
  EXPECT_EQ(fault->kind, Fault::Kind::kIllegalAddress);
  EXPECT_EQ(fault->kernel, "wrong");
  EXPECT_EQ(fault->block, (std::array<uint32_t, 3>{1, 0, 0}));
  EXPECT_EQ(fault->thread, (std::array<uint32_t, 3>{37, 0, 0}));
  EXPECT_EQ(fault->address, out_ + 64);
  EXPECT_EQ(fault->bytes, 4u);
  EXPECT_EQ(fault->ptx_line, 9);
  for (const char* part :
       {"illegal address", "wrong", "(1, 0, 0)", "(37, 0, 0)", "st.global.u32", "line 9"}) {
    EXPECT_NE(fault->text.find(part), std::string::npos) << fault->text;
  }
}

TEST_F(FaultTest, EverySpaceIsChecked) {
  const std::pair<const char*, Fault::Kind> cases[] = {
      {"ld.global.u32 %r3, [%rd1-4];", Fault::Kind::kIllegalAddress},
      {"ld.global.u32 %r3, [0];", Fault::Kind::kIllegalAddress},
      {"mov.u64 %rd2, 0; st.u32 [%rd2], 1;", Fault::Kind::kIllegalAddress},
      {"ld.global.v4.u32 {%r3,%r4,%r5,%r6}, [%rd1+56];", Fault::Kind::kIllegalAddress},
      {"ld.global.u32 %r3, [%rd1+2];", Fault::Kind::kMisalignedAddress},
      {"ld.global.v2.u32 {%r3,%r4}, [%rd1+4];", Fault::Kind::kMisalignedAddress},
      {"st.local.u64 [mine+4], %rd1;", Fault::Kind::kMisalignedAddress},
      {"mov.u32 %r3, 1000; ld.local.u32 %r4, [%r3];", Fault::Kind::kIllegalAddress},
      {"mov.u32 %r3, 32; ld.shared.u32 %r4, [%r3];", Fault::Kind::kIllegalAddress},
      {"mov.u32 %r3, ours; ld.shared.u16 %r4, [%r3+1];", Fault::Kind::kMisalignedAddress},
      {"mov.u32 %r3, -4; ld.shared.u32 %r4, [%r3];", Fault::Kind::kIllegalAddress},
      {"atom.global.add.u32 %r3, [%rd1+64], 1;", Fault::Kind::kIllegalAddress},
      {"atom.global.add.u64 %rd2, [%rd1+4], 1;", Fault::Kind::kMisalignedAddress},
      {"mov.u64 %rd2, ours; cvta.shared.u64 %rd2, %rd2; ld.u64 %rd3, [%rd2+32];",
       Fault::Kind::kIllegalAddress},
      {"mov.u64 %rd2, mine; cvta.local.u64 %rd2, %rd2; st.u64 [%rd2+80], %rd1;",
       Fault::Kind::kIllegalAddress},
      {"mov.b64 %rd2, out; cvta.param.u64 %rd2, %rd2; st.u64 [%rd2], %rd1;",
       Fault::Kind::kIllegalAddress},
      {"trap;", Fault::Kind::kTrap},
      {"brkpt;", Fault::Kind::kTrap},
      {"bar.sync 16;", Fault::Kind::kIllegalInstruction},
  };
  for (const auto& [body, kind] : cases) {
    const auto fault = fault_of(body);
    ASSERT_TRUE(fault.has_value()) << body;
    EXPECT_EQ(fault->kind, kind) << body << ": " << fault->text;
  }
}

TEST_F(FaultTest, InactiveLanesDoNotFault) {
  const auto fault = fault_of(
      "setp.lt.u32 %p1, %r1, 16; mul.wide.u32 %rd2, %r1, 4; add.u64 %rd2, %rd1, %rd2; @%p1 "
      "st.global.u32 [%rd2], %r1;\n"
      "@%p1 ld.global.u32 %r3, [%rd2]; setp.ge.u32 %p2, %r1, 16; @%p2 bra END; atom.global.add.u32 "
      "%r4, [%rd2], 1; END:");
  EXPECT_FALSE(fault.has_value()) << fault->text;
}

TEST_F(FaultTest, IndexOfBranchTable) {
  const auto fault = fault_of("T: .branchtargets A, B; brx.idx %r1, T; A: B:");
  ASSERT_TRUE(fault.has_value());
  EXPECT_EQ(fault->kind, Fault::Kind::kInvalidProgramCounter);
  EXPECT_EQ(fault->address, 2u);
}

TEST_F(FaultTest, AProgramRunsAgainAfterAFault) {
  load(module_text(
      ".visible .entry k(.param .u64 out) { .reg .b64 %rd<2>; ld.param.u64 %rd1, [out]; "
      "st.global.u32 [%rd1], 9; ret; }"));
  EXPECT_TRUE(launch("k", 4, 32, Parameters().add(uint64_t{16})).has_value());
  const uint64_t out = buffer(std::vector<uint32_t>(1));
  run("k", 4, 32, Parameters().add(out));
  EXPECT_EQ(read<uint32_t>(out, 1)[0], 9u);
}

TEST_F(FaultTest, ImpossibleLaunches) {
  load(module_text(".visible .entry k(.param .u64 out) { ret; }"));
  EXPECT_TRUE(launch("k", 1, 0, Parameters().add(uint64_t{0})).has_value());
  EXPECT_TRUE(launch("k", 0, 1, Parameters().add(uint64_t{0})).has_value());
  EXPECT_TRUE(launch("k", 1, 1025, Parameters().add(uint64_t{0})).has_value());
  EXPECT_TRUE(launch("k", 1, 1, Parameters()).has_value());
  EXPECT_TRUE(launch("other", 1, 1, Parameters().add(uint64_t{0})).has_value());
  EXPECT_FALSE(launch("k", 1, 1, Parameters().add(uint64_t{0})).has_value());
}

}  // namespace
}  // namespace fargpu::sim
