// Lexer, parser, flow graph, and what a text that is not PTX gets told.
#include "sim/ptx/parser.h"

#include "sim/ptx/cfg.h"
#include "sim/ptx/lexer.h"
#include "tests/ptx/engine_fixture.h"

namespace fargpu::sim {
namespace {

using ptx::TokenKind;

std::vector<ptx::Token> tokens(std::string_view text) {
  ptx::Lexer lexer(text);
  std::vector<ptx::Token> all;
  for (ptx::Token t = lexer.next(); t.kind != TokenKind::kEnd; t = lexer.next()) all.push_back(t);
  return all;
}

TEST(Lexer, KindsAndValues) {
  const auto t = tokens(
      "ld.global.v4.u32 {%r1,_}, [$x+0x10]; 0f3F800000 0d3FF0000000000000 1.5e2 017 0b101 12U \"a "
      "b\" .shared::cta.b64 // c\n/* \n */ end");
  const std::string_view texts[] = {
      "ld",    "global", "v4",    "u32", "{",          "%r1",
      ",",     "_",      "}",     ",",   "[",          "$x",
      "+",     "0x10",   "]",     ";",   "0f3F800000", "0d3FF0000000000000",
      "1.5e2", "017",    "0b101", "12U", "a b",        "shared::cta",
      "b64",   "end"};
  ASSERT_EQ(t.size(), std::size(texts));
  for (size_t i = 0; i < t.size(); ++i) EXPECT_EQ(t[i].text, texts[i]);
  EXPECT_EQ(t[13].value, 16u);
  EXPECT_EQ(t[16].value, 0x3f800000u);
  EXPECT_EQ(t[17].value, 0x3ff0000000000000u);
  EXPECT_EQ(t[18].value, 0x4062c00000000000u);
  EXPECT_EQ(t[19].value, 15u);
  EXPECT_EQ(t[20].value, 5u);
  EXPECT_TRUE(t[21].is_unsigned);
  EXPECT_EQ(t.back().line, 3);
}

TEST(Lexer, BadBytesAreTokens) {
  for (const char* text : {"0x", "0f12", "12abc", "\"open", "\x01", "#", "99999999999999999999"}) {
    const auto t = tokens(text);
    ASSERT_FALSE(t.empty());
    EXPECT_EQ(t[0].kind, TokenKind::kBad) << text;
  }
}

TEST(Parser, DebugDirectivesAndScopes) {
  ptx::Diagnostic error;
  const auto module = ptx::parse_module(R"(
.version 9.0
.target sm_90a, debug
.address_size 64
.file 1 "a.cu", 12, 34
.section .debug_str { .b8 1, 2 ; L: .b32 0 }
.visible .entry k(.param .u64 .ptr .global .align 4 p, .param .align 8 .b8 s[24])
    .maxntid 128, 2 .minnctapersm 2
{
  .loc 1 3 4, function_name $info+4, inlined_at 1 2 3
  .reg .b32 %r<5>;
  .pragma "nounroll";
$top:
  { .reg .b32 %r<2>; add.s32 %r1, %r0, 1; L: bra L; }
  { L: add.s32 %r4, %r3, 1; @!p0 bra L; .reg .pred p0; }
  bra $top;
})",
                                        error);
  // A predicate must be declared before it guards.
  EXPECT_FALSE(module.has_value());
  EXPECT_EQ(error.line, 15);
  EXPECT_NE(error.message.find("p0"), std::string::npos);
}

TEST(Parser, ScopedLabelsAndRegisters) {
  ptx::Diagnostic error;
  const auto module = ptx::parse_module(R"(.version 8.0 .target sm_75 .address_size 64
.entry k() { .reg .b32 %r<5>; .reg .pred p;
  { .reg .b64 %r<2>; L: @p bra L; mov.u64 %r1, 0; }
  { L: bra.uni M; bra L; M: mov.u32 %r1, 0; }
})",
                                        error);
  ASSERT_TRUE(module.has_value()) << error.message;
  EXPECT_EQ(module->version, 80);
  EXPECT_EQ(module->target_arch, 75);
  const ptx::Function& f = *module->functions.at(0);
  ASSERT_EQ(f.body.size(), 5u);
  EXPECT_NE(f.body[0].operands[0].index, f.body[3].operands[0].index);
  EXPECT_EQ(f.labels[f.body[0].operands[0].index].position, 0u);
  EXPECT_EQ(f.labels[f.body[2].operands[0].index].position, 4u);
  EXPECT_EQ(f.registers[f.body[1].operands[0].index].type, ptx::Type::kB64);
  EXPECT_EQ(f.registers[f.body[4].operands[0].index].type, ptx::Type::kB32);
}

TEST(FlowGraph, PostDominators) {
  ptx::Diagnostic error;
  const auto module = ptx::parse_module(R"(.version 8.0 .target sm_75 .address_size 64
.entry k() { .reg .pred p;
  @p bra B;
  membar.cta; @p bra C; ret;
B: membar.cta;
C: membar.cta; @p bra C;
D: bra D;
})",
                                        error);
  ASSERT_TRUE(module.has_value()) << error.message;
  const ptx::FlowGraph graph = build_flow_graph(*module->functions[0]);
  const auto block = [&](uint32_t instruction) {
    return graph.blocks[graph.block_of[instruction]];
  };
  EXPECT_EQ(block(0).post_dominator, ptx::BasicBlock::kNone);  // one way leaves
  EXPECT_EQ(block(1).post_dominator, ptx::BasicBlock::kNone);
  EXPECT_EQ(block(7).successors.size(), 1u);  // the endless loop never leaves
  EXPECT_EQ(block(7).post_dominator, ptx::BasicBlock::kNone);
}

struct Bad {
  const char* text;
  const char* says;  // part of the message
  int line;
  LoadError::Kind kind = LoadError::Kind::kInvalidPtx;
};

class BadPtx : public EngineTest, public ::testing::WithParamInterface<Bad> {};

TEST_P(BadPtx, IsRefusedWithLine) {
  const LoadError error = load_error(GetParam().text);
  EXPECT_NE(error.message.find(GetParam().says), std::string::npos) << error.message;
  EXPECT_EQ(error.line, GetParam().line) << error.message;
  EXPECT_EQ(error.kind, GetParam().kind) << error.message;
}

#define HEAD ".version 8.0\n.target sm_75\n.address_size 64\n"
#define KERNEL(body)                                                                          \
  HEAD ".visible .entry k(.param .u64 out) {\n.reg .b32 %r<5>; .reg .b64 %rd<5>; .reg .pred " \
       "%p<3>; .reg .f32 %f<3>;\n" body "\nret; }"
using K = LoadError::Kind;

INSTANTIATE_TEST_SUITE_P(
    All, BadPtx,
    ::testing::Values(
        Bad{"", ".version", 1}, Bad{"hello", ".version", 1}, Bad{".version 8.0\n", ".target", 2},
        Bad{".version 8.0 .target sm_90x .address_size 32", "address_size 32", 1,
            K::kUnsupportedTarget},
        Bad{".version 8.0\n.target sm_999\n.address_size 64", "sm_999", 1, K::kUnsupportedTarget},
        Bad{".version 8.0\n.target other", "needs a .target", 2},
        Bad{HEAD ".wrong", "unknown directive .wrong", 4},
        Bad{HEAD ".entry k( {", "expected .param", 4},
        Bad{HEAD ".entry k() {\nadd.u32", "end of the text", 5},
        Bad{HEAD ".entry k() { ret; } \n.entry k() { ret; }", "defined twice", 5},
        Bad{HEAD ".global .u32 a;\n.global .u32 a;", "defined twice", 5},
        Bad{HEAD ".global .u32 a[99999999999999];", "out of range", 4},
        Bad{HEAD ".global .u32 a[2] = {1,2,3};", "too many initial", 4},
        Bad{HEAD ".global .align 3 .u32 a;", "power of two", 4},
        Bad{HEAD ".global .u64 a = missing;", "missing", 4, K::kUnresolvedSymbol},
        Bad{HEAD ".global .u32 a = 1/0;", "division by zero", 4},
        Bad{HEAD ".shared .u32 a = 1;", "initial values", 4},
        Bad{KERNEL("frobnicate.u32 %r1, %r2;"), "frobnicate.u32", 6, K::kUnsupportedInstruction},
        Bad{KERNEL("add.u32.fast %r1, %r2, %r3;"), "fast", 6, K::kUnsupportedInstruction},
        Bad{KERNEL("wgmma.fence.sync.aligned;"), "wgmma.fence", 6, K::kUnsupportedInstruction},
        Bad{KERNEL("\nadd.u32 %r1, %r2;"), "2 operands", 7},
        Bad{KERNEL("add.u32 %r1, %r2, %rd1;"), "%rd1", 6},
        Bad{KERNEL("add.u32 %r1, %r2, %p1;"), "%p1", 6},
        Bad{KERNEL("add.u32 7, %r2, %r1;"), "not a register", 6},
        Bad{KERNEL("add.u32 %r9, %r2, %r1;"), "not a register", 6},
        Bad{KERNEL("mov.u32 %r1, nobody;"), "nobody", 6, K::kUnresolvedSymbol},
        Bad{KERNEL("mov.u32 %r1, %frob;"), "%frob", 6, K::kUnsupportedInstruction},
        Bad{KERNEL("bra NOWHERE;"), "NOWHERE", 6}, Bad{KERNEL("L:\nL: bra L;"), "twice", 7},
        Bad{KERNEL("@%r1 bra L; L:"), "predicate", 6},
        Bad{KERNEL("ld.global.u32 %r1, %rd1;"), "address", 6},
        Bad{KERNEL("ld.global.u32 %r1, [%r2];"), "address register", 6},
        Bad{KERNEL("ld.global.u64 %r1, [%rd2];"), "narrow", 6},
        Bad{KERNEL("ld.param.u64 %rd1, [out+8];"), "parameters", 6},
        Bad{KERNEL("ld.param.u32 %r1, [out+2];"), "aligned", 6},
        Bad{KERNEL("st.param.u64 [out], %rd1;"), "written", 6},
        Bad{KERNEL("st.const.u32 [%rd1], %r1;"), "written", 6, K::kUnsupportedInstruction},
        Bad{KERNEL("ld.global.v4.u32 {%r1,%r2}, [%rd1];"), "4 registers", 6},
        Bad{KERNEL("mov.b64 %rd1, {%r1, %r2, %r3};"), "parts", 6},
        Bad{KERNEL("call nobody;"), "nobody", 6, K::kUnresolvedSymbol},
        Bad{KERNEL("call k;"), "kernel", 6}, Bad{KERNEL(".reg .b32 %r<3>;"), "declared twice", 6},
        Bad{KERNEL(".reg .v4 .f32 %v;"), "vector registers", 6},
        Bad{KERNEL("setp.lt.u32 %r1, %r2, %r3;"), "%r1", 6},
        Bad{KERNEL("lop3.b32 %r1, %r2, %r3, %r4, 300;"), "table", 6},
        Bad{KERNEL("}"), "directive", 7}));

TEST_F(EngineTest, DeepNestingEndsInAnError) {
  const LoadError braces = load_error(module_text(".entry k() { " + std::string(100000, '{')));
  EXPECT_NE(braces.message.find("nested"), std::string::npos) << braces.message;
  const LoadError parentheses =
      load_error(module_text(".global .u32 a = " + std::string(100000, '(') + "1"));
  EXPECT_NE(parentheses.message.find("nested"), std::string::npos) << parentheses.message;
  const LoadError minus =
      load_error(module_text(".global .u32 a = " + std::string(100000, '-') + "1;"));
  EXPECT_NE(minus.message.find("nested"), std::string::npos) << minus.message;
  const LoadError vectors =
      load_error(module_text(".entry k() { mov.b32 " + std::string(100000, '{')));
  EXPECT_NE(vectors.message.find("nested"), std::string::npos) << vectors.message;
}

TEST_F(EngineTest, KernelInformation) {
  load(module_text(R"(
.const .u32 c[10];
.visible .entry a(.param .u32 x, .param .u64 y, .param .align 16 .b8 z[20], .param .u8 w)
    .maxntid 64, 2, 1 { .shared .f64 s[4]; .local .b8 l[40]; ret; }
.visible .entry b() .reqntid 32, 4 { ret; })",
                   "sm_80"));
  const KernelInfo* a = program->kernel("a");
  ASSERT_NE(a, nullptr);
  ASSERT_EQ(a->parameters.size(), 4u);
  EXPECT_EQ(a->parameters[1].offset, 8u);
  EXPECT_EQ(a->parameters[2].offset, 16u);
  EXPECT_EQ(a->parameters[2].size, 20u);
  EXPECT_EQ(a->parameters[3].offset, 36u);
  EXPECT_EQ(a->parameter_bytes, 37u);
  EXPECT_EQ(a->static_shared_bytes, 32u);
  EXPECT_EQ(a->local_bytes, 48u);
  EXPECT_EQ(a->constant_bytes, 40u);
  EXPECT_EQ(a->max_threads_per_block, 128);
  EXPECT_EQ(a->ptx_version, 86);
  EXPECT_EQ(a->target_arch, 80);
  EXPECT_EQ(program->kernel("b")->required_block, (std::array<uint32_t, 3>{32, 4, 1}));
  EXPECT_EQ(program->kernel("c"), nullptr);
  EXPECT_EQ(program->kernel_names(), (std::vector<std::string>{"a", "b"}));
}

TEST_F(EngineTest, NoMemoryForVariables) {
  memory.limit = 1000;
  EXPECT_NE(load_error(module_text(".global .u32 big[1000];")).message.find("memory"),
            std::string::npos);
}

}  // namespace
}  // namespace fargpu::sim
