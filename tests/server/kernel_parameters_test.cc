#include "server/image/kernel_parameters.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace fargpu::server {
namespace {

using Numbers = std::vector<unsigned>;

KernelLayouts read(std::string_view image) {
  return layouts_in_image({reinterpret_cast<const std::byte*>(image.data()), image.size()});
}

TEST(KernelParametersTest, InPtx) {
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
  ASSERT_EQ(layouts.size(), 3u);
  EXPECT_TRUE(layouts.at("none").sizes.empty());
  EXPECT_TRUE(layouts.at("bare").sizes.empty());
  // As a compiler lays it out for (int, double, struct of 5016 bytes, three shorts, char, float*).
  EXPECT_EQ(layouts.at("many").offsets, (Numbers{0, 8, 16, 5032, 5038, 5040}));
  EXPECT_EQ(layouts.at("many").sizes, (Numbers{4, 8, 5016, 6, 1, 8}));
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
  put(0x28, 64, 8);  // the sections
  put(0x3a, 64, 2);  // bytes of each
  put(0x3c, 2, 2);   // how many
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

TEST(KernelParametersTest, InCubins) {
  const auto old = read(cubin(kOld));
  EXPECT_EQ(old.at("k").offsets, (Numbers{0, 8}));
  EXPECT_EQ(old.at("k").sizes, (Numbers{8, 4}));
  const auto recent = read(cubin(kNew));
  EXPECT_EQ(recent.at("k").offsets, (Numbers{0, 16}));
  EXPECT_EQ(recent.at("k").sizes, (Numbers{8, 5016}));
}

TEST(KernelParametersTest, DamagedImages) {
  const std::string whole = cubin(kOld);
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    // From memory of its own, so that a sanitizer sees what is read behind the end.
    const std::vector<char> part(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(bytes));
    EXPECT_EQ(read({part.data(), part.size()}).size(), 0u) << bytes;
  }
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = '\xff';
    (void)read(damaged);
  }
  EXPECT_TRUE(read("").empty());
  EXPECT_TRUE(read(".entry").empty());
  EXPECT_TRUE(read(".entry k(.param .u32 a").empty());
  EXPECT_TRUE(read(".entry k(.param .align 0 .b8 a[4])").empty());
  EXPECT_TRUE(read(".entry k(.param .b8 a[99999999999])").empty());
}

}  // namespace
}  // namespace fargpu::server
