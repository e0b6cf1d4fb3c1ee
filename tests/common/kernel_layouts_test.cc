#include "common/fatbin/kernel_layouts.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fargpu {
namespace {

using Numbers = std::vector<unsigned>;

KernelLayouts read(std::string_view image) {
  KernelLayouts layouts;
  read_kernel_layouts({reinterpret_cast<const std::byte*>(image.data()), image.size()}, layouts);
  return layouts;
}

// Of a kernel with one layout.
const ParameterLayout& only(const KernelLayouts& layouts, const char* kernel) {
  EXPECT_EQ(layouts.kernels.at(kernel).size(), 1u) << kernel;
  return layouts.kernels.at(kernel).front();
}

std::string entry(const std::string& parameters) {
  return ".version 8.0\n.entry k(" + parameters + ") { ret; }";
}

TEST(KernelLayoutsTest, InPtx) {
  const auto layouts = read(R"(.version 8.0
.target sm_75
// .entry commented(.param .u32 a)
.visible .func (.param .b32 r) helper(.param .b64 x) { ret; }
.visible .entry none() { ret; }
.entry bare { ret; }
.visible .entry many(
	.param .u32 many_param_0,
	.param .f64 many_param_1, /* , .param .u8 no */
	.param .align 8 .b8 many_param_2[5016],
	.param .align 2 .b8 many_param_3[6],
	.param .u8 many_param_4,
	.param .u64 .ptr .global .align 16 many_param_5
)
.maxntid 128, 1, 1
{ .reg .b32 %r<2>; ret; }
)");
  EXPECT_FALSE(layouts.has_more);
  ASSERT_EQ(layouts.kernels.size(), 3u);
  EXPECT_TRUE(only(layouts, "none").sizes.empty());
  EXPECT_TRUE(only(layouts, "bare").sizes.empty());
  // As a compiler lays it out for (int, double, struct of 5016 bytes, three shorts, char, float*).
  EXPECT_EQ(only(layouts, "many").offsets, (Numbers{0, 8, 16, 5032, 5038, 5040}));
  EXPECT_EQ(only(layouts, "many").sizes, (Numbers{4, 8, 5016, 6, 1, 8}));
}

TEST(KernelLayoutsTest, RequiredBlocksInPtx) {
  const auto layouts = read(R"(.version 8.0
.entry three(.param .u32 a) .maxnreg 32 .reqntid 64, 2, 3 { ret; }
.entry two() .reqntid 64, 2 .minnctapersm 1 { ret; }
.entry one .reqntid 96
{ ret; }
.entry most(.param .u32 a) .maxntid 64, 1, 1 { .reqntid 7; ret; }
.entry broken(.param .u32 a) .reqntid x { ret; }
.entry cut(.param .u32 a) .reqntid 64,)");
  using Block = std::array<unsigned, 3>;
  EXPECT_EQ(only(layouts, "three").required_block, (Block{64, 2, 3}));
  EXPECT_EQ(only(layouts, "two").required_block, (Block{64, 2, 1}));
  EXPECT_EQ(only(layouts, "one").required_block, (Block{96, 1, 1}));
  EXPECT_EQ(only(layouts, "most").required_block, Block{});
  EXPECT_EQ(only(layouts, "broken").required_block, Block{});
  EXPECT_EQ(only(layouts, "cut").required_block, Block{});
}

TEST(KernelLayoutsTest, VectorsAndTextsInPtx) {
  const auto vector = read(entry(".param .u8 a, .param .v4 .f32 b"));
  EXPECT_EQ(only(vector, "k").offsets, (Numbers{0, 16}));
  EXPECT_EQ(only(vector, "k").sizes, (Numbers{1, 16}));
  const auto text = read(".version 8.0\n.file 1 \"/a/*/b.cu\"\n.entry k(.param .u8 a) { ret; }");
  EXPECT_EQ(only(text, "k").sizes, (Numbers{1}));
}

// Without comments of several lines.
TEST(KernelLayoutsTest, WordsThatAreNoKernelInPtx) {
  const auto layouts = read(R"ptx(.version 8.0
.file 1 "a .entry quoted(.param .u32 a)"
// .entry commented(.param .u32 a)
.visible .entry one(.param .u32 a) // .entry behind(.param .u32 a)
{ call some.entry, (x); call %.entry; .entrydoor x(.param .u32 a); ret; }
.entry two { ret; } .visible .entry three() .entry
)ptx");
  ASSERT_EQ(layouts.kernels.size(), 3u);
  EXPECT_EQ(only(layouts, "one").sizes, (Numbers{4}));
  EXPECT_TRUE(only(layouts, "two").sizes.empty());
  EXPECT_TRUE(only(layouts, "three").sizes.empty());
}

TEST(KernelLayoutsTest, QuotesBeforeAKernelInItsLine) {
  const std::string quotes = R"(.entry a(.param .u64 p) { .pragma "nounroll"; ret; })";
  for (const std::string& before : std::vector<std::string>{
           ".version 8.0 " + quotes, ".version 8.0\n" + quotes,
           ".version 8.0\n.entry a(.param .u64 p) {\n.pragma \"nounroll\"; ret; }",
           ".version 8.0\n.entry a(.param .u64 p) { ret; }\n.file 1 \"//a .entry no(.param .u8 "
           "a)\""}) {
    const auto layouts = read(before + " .visible .entry k(.param .u32 p) { ret; }\n");
    EXPECT_FALSE(layouts.has_more) << before;
    ASSERT_EQ(layouts.kernels.size(), 2u) << before;
    EXPECT_EQ(only(layouts, "a").sizes, (Numbers{8})) << before;
    EXPECT_EQ(only(layouts, "k").sizes, (Numbers{4})) << before;
  }
}

TEST(KernelLayoutsTest, OctalNumbersInPtx) {
  const auto octal = read(entry(".param .align 010 .b8 a[010], .param .u32 b[02]"));
  EXPECT_EQ(only(octal, "k").offsets, (Numbers{0, 8}));
  EXPECT_EQ(only(octal, "k").sizes, (Numbers{8, 8}));
}

TEST(KernelLayoutsTest, ParametersThatCannotBeRead) {
  for (const char* parameters :
       {".param .texref t", ".param .u32 a, .param b", ".param .u32 a[0]", ".param .u32 a[N]",
        ".param .u32 a[08]", ".param .u32 a[0x8]", ".param .u32 a[8U]"}) {
    const auto layouts = read(entry(parameters));
    EXPECT_FALSE(layouts.has_more) << parameters;
    EXPECT_TRUE(layouts.kernels.at("k").empty()) << parameters;
  }
}

TEST(KernelLayoutsTest, EntriesThatDiffer) {
  KernelLayouts layouts;
  for (const char* parameters : {".param .u32 a", ".param .u64 a", ".param .u32 b"}) {
    const std::string text = entry(parameters);
    read_kernel_layouts(std::as_bytes(std::span(text)), layouts);
  }
  ASSERT_EQ(layouts.kernels.at("k").size(), 2u);
  EXPECT_EQ(layouts.kernels.at("k")[0].sizes, (Numbers{4}));
  EXPECT_EQ(layouts.kernels.at("k")[1].sizes, (Numbers{8}));
}

// An ELF file of one section ".nv.info.k" with these attributes.
std::string cubin(std::string_view attributes) {
  const std::string names("\0.names\0.nv.info.k\0", 19);
  std::string elf(64, '\0');
  std::memcpy(elf.data(),
              "\x7f"
              "ELF",
              4);
  const auto put = [&elf](size_t at, uint64_t value, size_t bytes) {
    std::memcpy(elf.data() + at, &value, bytes);
  };
  put(0x12, 190, 2);  // CUDA
  put(0x28, 64, 8);   // the sections
  put(0x3a, 64, 2);   // bytes of each
  put(0x3c, 2, 2);    // how many
  elf.resize(64 + 2 * 64);
  const auto section = [&](size_t index, uint64_t name, std::string_view bytes) {
    put(64 + index * 64, name, 4);
    put(64 + index * 64 + 0x18, elf.size(), 8);
    put(64 + index * 64 + 0x20, bytes.size(), 8);
    elf += bytes;
  };
  section(0, 1, names);
  section(1, 8, attributes);
  return elf;
}

constexpr std::string_view kOld(
    "\x04\x0a\x08\x00\x01\x00\x00\x00\x60\x01\x0c\x00"                  // something else
    "\x03\x19\x0c\x00"                                                  // a value
    "\x04\x17\x0c\x00\x00\x00\x00\x00\x01\x00\x08\x00\x00\xf0\x11\x00"  // second: 4 bytes at 8
    "\x04\x17\x0c\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xf0\x21\x00",
    48);  // first: 8 bytes
constexpr std::string_view kNew(
    "\x04\x45\x0c\x00\x00\x00\x00\x00\x01\x00\x10\x00\x98\x13\x00\x00"
    "\x04\x45\x0c\x00\x00\x00\x00\x00\x00\x00\x00\x00\x08\x00\x00\x05",
    32);

// As ptxas writes it for .reqntid 64, 2, and for .maxntid.
TEST(KernelLayoutsTest, RequiredBlocksInCubins) {
  using Block = std::array<unsigned, 3>;
  constexpr std::string_view kBlock(
      "\x04\x10\x0c\x00\x40\x00\x00\x00\x02\x00\x00\x00\x01\x00\x00\x00", 16);
  constexpr std::string_view kMost(
      "\x04\x05\x0c\x00\x40\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x00", 16);
  EXPECT_EQ(only(read(cubin(kBlock)), "k").required_block, (Block{64, 2, 1}));
  EXPECT_EQ(only(read(cubin(kMost)), "k").required_block, Block{});
  EXPECT_TRUE(read(cubin(std::string_view("\x04\x10\x04\x00zzzz", 8))).kernels.at("k").empty())
      << "too short";
}

TEST(KernelLayoutsTest, InCubins) {
  const auto old = read(cubin(kOld));
  EXPECT_EQ(only(old, "k").offsets, (Numbers{0, 8}));
  EXPECT_EQ(only(old, "k").sizes, (Numbers{8, 4}));
  const auto recent = read(cubin(kNew));
  EXPECT_EQ(only(recent, "k").offsets, (Numbers{0, 16}));
  EXPECT_EQ(only(recent, "k").sizes, (Numbers{8, 5016}));
}

// The header has 16 bits for the number of sections.
TEST(KernelLayoutsTest, CubinsOfManySections) {
  std::string elf = cubin(kOld);
  const auto put = [&elf](size_t at, uint64_t value, size_t bytes) {
    std::memcpy(elf.data() + at, &value, bytes);
  };
  // The names' section is the first one here, which says how long it is: so many sections.
  const size_t names = elf.find(std::string_view("\0.names", 7));
  constexpr size_t kMany = 70000;
  const size_t table = elf.size();
  elf.resize(table + kMany * 64);
  put(0x28, table, 8);
  put(0x3c, 0, 2);
  put(0x3e, 0xffff, 2);
  put(table + 0x20, kMany, 8);
  put(table + 0x28, 1, 4);
  put(table + 64 + 0x18, names, 8);
  put(table + 64 + 0x20, 19, 8);
  put(table + (kMany - 1) * 64, 8, 4);
  put(table + (kMany - 1) * 64 + 0x18, names + 19, 8);
  put(table + (kMany - 1) * 64 + 0x20, kOld.size(), 8);
  const auto layouts = read(elf);
  EXPECT_FALSE(layouts.has_more);
  EXPECT_EQ(only(layouts, "k").sizes, (Numbers{8, 4}));
}

TEST(KernelLayoutsTest, DamagedImages) {
  const std::string whole = cubin(kOld);
  EXPECT_FALSE(read(whole).has_more);
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    // From memory of its own, so that a sanitizer sees what is read behind the end.
    const std::vector<char> part(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(bytes));
    const auto layouts = read({part.data(), part.size()});
    EXPECT_TRUE(layouts.has_more || layouts.kernels.empty()) << bytes;
  }
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = '\xff';
    (void)read(damaged);
  }
  for (const char* text : {"", ".entry", "BC\xc0\xde"}) {
    EXPECT_TRUE(read(text).has_more) << text;
    EXPECT_TRUE(read(text).kernels.empty()) << text;
  }
  for (const char* text : {".entry k(.param .u32 a", ".entry k(.param .align 0 .b8 a[4])",
                           ".entry k(.param .b8 a[99999999999])"})
    EXPECT_TRUE(read(text).kernels.at("k").empty()) << text;
}

uint64_t variables(const std::string& declarations) {
  const std::string text = ".version 8.0\n.target sm_75\n" + declarations;
  // UINT64_MAX - 1: it cannot be told.
  return variable_bytes(std::as_bytes(std::span(text)), 90).value_or(UINT64_MAX - 1);
}

TEST(VariableBytesTest, OfDeclarationsInPtx) {
  EXPECT_EQ(variables(".visible .global .align 4 .b8 big[4096];\n"), 4096u);
  EXPECT_EQ(variables(".global .v4 .f32 a, b[2][3];\n.const .u64 c = 5;\n"), 16 + 96 + 8u);
  EXPECT_EQ(variables(".global .align 8 .b32 listed[] = {1, 2, {3}};"), 12u);
  EXPECT_EQ(variables(".global .attribute(.managed) .u16 shared_by_both[10];"), 20u);
  EXPECT_EQ(variables(".global .b8 huge[9223372036854775807][9223372036854775807];"), UINT64_MAX);
}

TEST(VariableBytesTest, WordsThatDeclareNoneInPtx) {
  EXPECT_EQ(variables(R"(// .global .b8 commented[64];
.visible .entry k(.param .u64 .ptr .global .align 16 p, .param .u64 .ptr
 .global q) { .shared .b8 s[4096]; ld.global.u32 %r1, [%rd1]; cvta.to.global.u64 %rd1, %rd2; ret; }
)"),
            0u);
  EXPECT_EQ(variables("/* .global .b8 commented[64]; */ .global /* x */ .b8 one[7];"), 7u);
}

TEST(VariableBytesTest, WhatCannotBeCounted) {
  for (const char* text : {".global .b8 sum[4*4096];", ".global .b8 many<4096>;",
                           ".global .b8 endless[4096]", ".global .b8 a[];}\n.global .b8 b[0x10];"})
    EXPECT_EQ(variables(text), UINT64_MAX - 1) << text;
}

// A fat binary's entry: 1: PTX, 2: machine code.
std::string fat_entry(uint16_t kind, uint32_t arch, size_t bytes, uint64_t unpacked = 0) {
  std::string entry(64 + bytes, '\0');
  const auto put = [&entry](size_t at, auto value) {
    std::memcpy(&entry[at], &value, sizeof value);
  };
  put(0, kind);
  put(4, uint32_t{64});
  put(8, uint64_t{bytes});
  put(28, arch);
  put(56, unpacked);
  return entry;
}

uint64_t ptx_of_fatbin(const std::string& entries) {
  const uint32_t magic = 0xBA55ED50;
  const uint16_t version = 1, header_bytes = 16;
  const uint64_t bytes = entries.size();
  std::string image(16, '\0');
  std::memcpy(&image[0], &magic, 4);
  std::memcpy(&image[4], &version, 2);
  std::memcpy(&image[6], &header_bytes, 2);
  std::memcpy(&image[8], &bytes, 8);
  image += entries;
  return ptx_bytes(std::as_bytes(std::span(image)), 86);
}

TEST(PtxBytesTest, WhatADriverCompiles) {
  EXPECT_EQ(ptx_of_fatbin(fat_entry(1, 80, 100)), 100u);
  EXPECT_EQ(ptx_of_fatbin(fat_entry(1, 70, 100, 5000) + fat_entry(1, 80, 200)), 5000u);
  // Machine code is found, or is none for this GPU.
  for (const uint32_t arch : {80, 86})
    EXPECT_EQ(ptx_of_fatbin(fat_entry(1, 70, 100) + fat_entry(2, arch, 100)), 0u) << arch;
  for (const uint32_t arch : {75, 87, 90})
    EXPECT_EQ(ptx_of_fatbin(fat_entry(1, 70, 100) + fat_entry(2, arch, 300)), 100u) << arch;
  const std::string text = ".version 8.0\n", code =
                                                 "\x7f"
                                                 "ELF and more";
  EXPECT_EQ(ptx_bytes(std::as_bytes(std::span(text)), 86), text.size());
  EXPECT_EQ(ptx_bytes(std::as_bytes(std::span(code)), 86), 0u);
}

}  // namespace
}  // namespace fargpu
