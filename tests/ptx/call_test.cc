// Calls, recursion, function pointers, and the functions of the device runtime.
#include "tests/ptx/engine_fixture.h"

namespace fargpu::sim {
namespace {

class CallTest : public EngineTest {
 protected:
  static std::string kernel(const std::string& body, const std::string& before) {
    return module_text(before + R"(
.visible .entry k(.param .u64 out, .param .u32 n) {
  .reg .pred %p<10>; .reg .b32 %r<40>; .reg .b64 %rd<20>; .reg .f32 %f<4>;
  ld.param.u64 %rd1, [out]; ld.param.u32 %r30, [n]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4;
  add.u64 %rd2, %rd1, %rd2;
)" + body + "\n  ret;\n}\n");
  }
  std::vector<uint32_t> values(uint32_t n, uint32_t block = 32) {
    const uint64_t out = buffer(std::vector<uint32_t>(block));
    run("k", 1, block, Parameters().add(out).add(n));
    return read<uint32_t>(out, block);
  }
};

constexpr const char* kFibonacci = R"(
.func (.param .b32 result) fib(.param .b32 n)
{
  .reg .pred %p<2>; .reg .b32 %r<8>;
  ld.param.u32 %r1, [n];
  setp.lt.u32 %p1, %r1, 2;
  @%p1 bra SMALL;
  sub.u32 %r2, %r1, 1;
  { .param .b32 a; st.param.b32 [a+0], %r2; .param .b32 r; call.uni (r), fib, (a);
  ld.param.b32 %r3, [r+0]; }
  sub.u32 %r4, %r1, 2;
  { .param .b32 a; st.param.b32 [a+0], %r4; .param .b32 r; call (r), fib, (a);
  ld.param.b32 %r5, [r+0]; }
  add.u32 %r6, %r3, %r5;
  st.param.b32 [result+0], %r6;
  ret;
SMALL:
  st.param.b32 [result+0], %r1;
  ret;
}
)";

TEST_F(CallTest, DivergentRecursion) {
  load(kernel(R"(
  and.b32 %r2, %r1, 15;
  { .param .b32 a; st.param.b32 [a], %r2; .param .b32 r; call (r), fib, (a); ld.param.b32 %r3, [r];
  }
  activemask.b32 %r4; popc.b32 %r5, %r4; mad.lo.u32 %r3, %r5, 10000, %r3;
  st.global.u32 [%rd2], %r3;)",
              kFibonacci));
  const auto r = values(0);
  const uint32_t fib[] = {0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377, 610};
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(r[i], 320000 + fib[i & 15]) << i;
}

TEST_F(CallTest, GuardedCallAndManyTypes) {
  load(kernel(R"(
  mov.u32 %r3, 7; setp.lt.u32 %p1, %r1, 5;
  { .param .align 8 .b8 s[16]; st.param.b32 [s], %r1; st.param.b8 [s+5], 9; mov.f32 %f1, 0f40200000;
  st.param.f32 [s+8], %f1; .param .b32 r;
    @%p1 call (r), sum, (s); @%p1 ld.param.b32 %r3, [r]; }
  st.global.u32 [%rd2], %r3;)",
              R"(
.func (.param .b32 result) sum(.param .align 8 .b8 s[16]) {
  .reg .b32 %r<8>; .reg .f32 %f<2>; .reg .b64 %rd<3>;
  ld.param.b32 %r1, [s]; ld.param.s8 %r2, [s+5]; ld.param.f32 %f1, [s+8]; cvt.rni.s32.f32 %r3, %f1;
  mov.b64 %rd1, s; ld.param.u8 %r5, [%rd1+5]; cvta.local.u64 %rd2, %rd1; ld.u8 %r6, [%rd2+5];
  setp_free: add.u32 %r5, %r5, %r6;
  add.u32 %r4, %r1, %r2; add.u32 %r4, %r4, %r3; mad.lo.u32 %r4, %r5, 100, %r4;
  st.param.b32 [result], %r4; ret;
})"));
  const auto r = values(0);
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(r[i], i < 5 ? 1800 + i + 9 + 2 : 7u);
}

constexpr const char* kOperations = R"(
.func (.param .b32 result) twice(.param .b32 n) { .reg .b32 %r<3>; ld.param.u32 %r1, [n];
    shl.b32 %r2, %r1, 1; st.param.b32 [result], %r2; ret; }
.func (.param .b32 result) square(.param .b32 n) { .reg .b32 %r<3>; ld.param.u32 %r1, [n];
    mul.lo.u32 %r2, %r1, %r1; st.param.b32 [result], %r2; ret; }
.visible .func (.param .b32 result) next(.param .b32 n) { .reg .b32 %r<3>; ld.param.u32 %r1, [n];
    add.u32 %r2, %r1, 1; st.param.b32 [result], %r2; ret; }
.alias plus, next;
.global .u64 table[3] = {twice, square, next};
)";

TEST_F(CallTest, FunctionPointers) {
  load(kernel(R"(
  rem.u32 %r2, %r1, 3; mul.wide.u32 %rd3, %r2, 8; mov.u64 %rd4, table; add.u64 %rd3, %rd4, %rd3;
  ld.global.u64 %rd5, [%rd3];
  { .param .b32 a; st.param.b32 [a], %r1; .param .b32 r;
  P: .callprototype (.param .b32 _) _ (.param .b32 _); call (r), %rd5, (a), P;
  ld.param.b32 %r3, [r]; }
  mov.u64 %rd6, square; { .param .b32 a; st.param.b32 [a], %r3; .param .b32 r;
  Q: .callprototype (.param .b32 _) _ (.param .b32 _); call.uni (r), %rd6, (a), Q;
  ld.param.b32 %r3, [r]; }
  { .param .b32 a; st.param.b32 [a], %r3; .param .b32 r; call (r), plus, (a); ld.param.b32 %r3, [r];
  }
  activemask.b32 %r4; popc.b32 %r5, %r4; mad.lo.u32 %r3, %r5, 10000000, %r3;
  st.global.u32 [%rd2], %r3;)",
              kOperations));
  const auto r = values(0);
  for (uint32_t i = 0; i < 32; ++i) {
    const uint32_t v = i % 3 == 0 ? 2 * i : i % 3 == 1 ? i * i : i + 1;
    EXPECT_EQ(r[i], 320000000 + v * v + 1) << i;
  }
}

TEST_F(CallTest, WildPointerIsAFault) {
  load(kernel(R"(
  cvt.u64.u32 %rd5, %r30;
  { .param .b32 a; st.param.b32 [a], %r1; .param .b32 r;
  P: .callprototype (.param .b32 _) _ (.param .b32 _); call (r), %rd5, (a), P;
  ld.param.b32 %r3, [r]; })",
              kOperations));
  const uint64_t out = buffer(std::vector<uint32_t>(32));
  const auto fault = launch("k", 1, 32, Parameters().add(out).add(uint32_t{1234}));
  ASSERT_TRUE(fault.has_value());
  EXPECT_EQ(fault->kind, Fault::Kind::kInvalidProgramCounter);
  EXPECT_EQ(fault->address, 1234u);
}

TEST_F(CallTest, EndlessRecursionIsAFault) {
  load(kernel("  { .param .b32 a; st.param.b32 [a], %r1; call deeper, (a); }",
              ".func deeper(.param .b32 n) { .local .b8 space[64]; .reg .b32 %r<2>; ld.param.u32 "
              "%r1, [n]; st.local.u32 [space], %r1;"
              "{ .param .b32 a; st.param.b32 [a], %r1; call deeper, (a); } ret; }"));
  const uint64_t out = buffer(std::vector<uint32_t>(32));
  const auto fault = launch("k", 1, 32, Parameters().add(out).add(uint32_t{0}));
  ASSERT_TRUE(fault.has_value());
  EXPECT_EQ(fault->kind, Fault::Kind::kStackOverflow);
}

constexpr const char* kRuntime = R"(
.extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);
.extern .func (.param .b64 r) malloc(.param .b64 a);
.extern .func free(.param .b64 a);
.extern .func __assertfail(.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d,
    .param .b64 e);
.global .align 1 .b8 format[64] = {37, 100, 124, 37, 48, 53, 46, 49, 102, 124, 37, 115, 124, 37,
    108, 108, 117, 124, 37, 99, 37, 37, 124, 37, 45, 52, 120, 124, 10, 0};
.global .align 1 .b8 word[6] = {104, 101, 108, 108, 111, 0};
.global .align 1 .b8 message[6] = {120, 32, 62, 32, 48, 0};
.global .align 1 .b8 file[5] = {97, 46, 99, 117, 0};
)";

// "%d|%05.1f|%s|%llu|%c%%|%-4x|\n"
TEST_F(CallTest, Printf) {
  load(kernel(R"(
  .local .align 8 .b8 args[48]; setp.ne.u32 %p1, %r1, 3; @%p1 bra END;
  st.local.u32 [args], -5; mov.b64 %rd3, 0d400A000000000000; st.local.b64 [args+8], %rd3;
  mov.u64 %rd4, word; st.local.u64 [args+16], %rd4; mov.b64 %rd5, 12345678901234;
  st.local.u64 [args+24], %rd5; st.local.u32 [args+32], 65; st.local.u32 [args+36], 255;
  mov.u64 %rd6, args; cvta.local.u64 %rd6, %rd6; mov.u64 %rd7, format;
  { .param .b64 a; st.param.b64 [a], %rd7; .param .b64 b; st.param.b64 [b], %rd6; .param .b32 r;
  call.uni (r), vprintf, (a, b); ld.param.b32 %r3, [r]; st.global.u32 [%rd2], %r3; }
END:)",
              kRuntime));
  const auto r = values(0);
  EXPECT_EQ(output, "-5|003.2|hello|12345678901234|A%|ff  |\n");
  EXPECT_EQ(r[3], 6u);
  EXPECT_EQ(r[2], 0u);
}

TEST_F(CallTest, AssertReportsAndFaults) {
  load(kernel(R"(
  setp.ne.u32 %p1, %r1, 40; @%p1 bra END; mov.u64 %rd3, message; mov.u64 %rd4, file;
  mov.u64 %rd5, word;
  { .param .b64 a; st.param.b64 [a], %rd3; .param .b64 b; st.param.b64 [b], %rd4; .param .b32 c;
  st.param.b32 [c], 17; .param .b64 d; st.param.b64 [d], %rd5; .param .b64 e; st.param.b64 [e], 1;
    call.uni __assertfail, (a, b, c, d, e); }
END:)",
              kRuntime));
  const uint64_t out = buffer(std::vector<uint32_t>(64));
  const auto fault = launch("k", 1, 64, Parameters().add(out).add(uint32_t{0}));
  ASSERT_TRUE(fault.has_value());
  EXPECT_EQ(fault->kind, Fault::Kind::kAssert);
  EXPECT_EQ(fault->thread[0], 40u);
  EXPECT_EQ(fault->messages,
            "a.cu:17: hello: block: [0,0,0], thread: [40,0,0] Assertion `x > 0` failed.\n");
}

TEST_F(CallTest, MallocAndFree) {
  options.malloc_heap_bytes = 64 << 10;
  load(kernel(R"(
  mov.u32 %r10, 0;
AGAIN:
  { .param .b64 a; st.param.b64 [a], 100; .param .b64 r; call.uni (r), malloc, (a);
  ld.param.b64 %rd3, [r]; }
  setp.eq.u64 %p1, %rd3, 0; @%p1 trap;
  st.u32 [%rd3+96], %r1; bar.warp.sync -1; ld.u32 %r3, [%rd3+96];
  { .param .b64 a; st.param.b64 [a], %rd3; call.uni free, (a); }
  add.u32 %r10, %r10, 1; setp.lt.u32 %p2, %r10, 50; @%p2 bra AGAIN;
  { .param .b64 a; st.param.b64 [a], 1000000; .param .b64 r; call.uni (r), malloc, (a);
  ld.param.b64 %rd4, [r]; }
  setp.ne.u64 %p1, %rd4, 0; @%p1 trap;
  st.global.u32 [%rd2], %r3;)",
              kRuntime));
  const auto r = values(0, 64);
  for (uint32_t i = 0; i < 64; ++i) EXPECT_EQ(r[i], i);
}

TEST_F(CallTest, LinkedModules) {
  const std::string a = module_text(R"(
.extern .func (.param .b32 result) helper(.param .b32 n);
.extern .global .u32 factor;
.global .u32 own = 5;
.visible .entry k(.param .u64 out) {
  .reg .b32 %r<5>; .reg .b64 %rd<3>; ld.param.u64 %rd1, [out]; ld.global.u32 %r1, [own];
  { .param .b32 a; st.param.b32 [a], %r1; .param .b32 r; call (r), helper, (a);
  ld.param.b32 %r2, [r]; }
  ld.global.u32 %r3, [factor]; mul.lo.u32 %r2, %r2, %r3; st.global.u32 [%rd1], %r2; ret; })");
  const std::string b = module_text(R"(
.visible .global .u32 factor = 3;
.global .u32 own = 100;
.weak .func (.param .b32 result) helper(.param .b32 n) { .reg .b32 %r<4>; ld.param.u32 %r1, [n];
    ld.global.u32 %r2, [own]; add.u32 %r3, %r1, %r2; st.param.b32 [result], %r3; ret; })");
  const std::string_view texts[] = {a, b};
  LoadResult result = load_ptx_linked(texts, memory, options);
  ASSERT_NE(result.program, nullptr) << result.error.message;
  program = std::move(result.program);
  const uint64_t out = buffer(std::vector<uint32_t>(1));
  run("k", 1, 1, Parameters().add(out));
  EXPECT_EQ(read<uint32_t>(out, 1)[0], 315u);
  // Alone the first one lacks its other half.
  const LoadError error = load_error(a);
  EXPECT_EQ(error.kind, LoadError::Kind::kUnresolvedSymbol);
  EXPECT_NE(error.message.find("helper"), std::string::npos);
}

}  // namespace
}  // namespace fargpu::sim
