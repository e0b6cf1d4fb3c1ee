#include "client/image/own_layouts.h"

#include <gtest/gtest.h>

#include <string>

namespace fargpu::client {
namespace {

std::string ptx(const std::string& parameters) {
  return ".version 8.0\n.target sm_80\n.entry k(" + parameters + ") { ret; }";
}

struct Layouts : OwnLayouts {
  explicit Layouts(const std::string& image) { add_text(image); }
  void add_text(const std::string& image) {
    const auto bytes = std::as_bytes(std::span(image));
    add({&bytes, 1});
  }
  Status add_linked_text(const std::string& image) {
    const auto bytes = std::as_bytes(std::span(image));
    return add_linked({&bytes, 1});
  }
};

const ParameterLayout kNone, kWord{{0}, {4}}, kLong{{0}, {2048}}, kTwo{{0, 8}, {4, 8}};

TEST(OwnLayouts, WhatAnImageSaysHolds) {
  Layouts layouts(ptx(".param .u32 a"));
  EXPECT_TRUE(layouts.check("k", kWord).ok());
  for (const ParameterLayout& other : {kNone, kLong, kTwo}) {
    const Status refused = layouts.check("k", other);
    EXPECT_EQ(refused.code(), StatusCode::kProtocol);
    EXPECT_NE(refused.message().find("kernel k"), std::string::npos) << refused.message();
    EXPECT_NE(refused.message().find("1 parameters of 4 bytes"), std::string::npos);
  }
}

// ptxas puts a parameter that is aligned to 64 bytes (a CUtensorMap) at another offset than PTX
// does, for the place of the parameters in the constant bank. Nothing more is read by that.
TEST(OwnLayouts, OffsetsAreTheDrivers) {
  Layouts layouts(ptx(".param .u8 c, .param .align 64 .b8 map[128]"));
  EXPECT_TRUE(layouts.check("k", {{0, 64}, {1, 128}}).ok());
  EXPECT_TRUE(layouts.check("k", {{0, 48}, {1, 128}}).ok());
  EXPECT_TRUE(layouts.check("k", {{0, 64}, {1, 64}}).ok()) << "less";
  EXPECT_FALSE(layouts.check("k", {{0, 64}, {2, 128}}).ok());
  EXPECT_FALSE(layouts.check("k", {{0, 64}, {128, 1}}).ok());
}

TEST(OwnLayouts, AKernelThatIsNotInTheImageHasNoParameters) {
  Layouts layouts(ptx(".param .u32 a"));
  EXPECT_TRUE(layouts.check("other", kNone).ok());
  EXPECT_FALSE(layouts.check("other", kWord).ok());
}

TEST(OwnLayouts, OfWhatCannotBeReadTheServersWordIsTaken) {
  Layouts form("BC\xc0\xde");
  EXPECT_TRUE(form.check("k", kWord).ok());
  Layouts parameter(ptx(".param .texref t"));
  EXPECT_TRUE(parameter.check("k", kWord).ok());
  EXPECT_FALSE(parameter.check("other", kWord).ok());
  Layouts beside(ptx(".param .u32 a"));
  beside.add_unknown();
  EXPECT_TRUE(beside.check("other", kLong).ok());
  EXPECT_FALSE(beside.check("k", kLong).ok()) << "it is known";
}

TEST(OwnLayouts, ALinkedImageIsComparedWithItsInputs) {
  Layouts inputs(ptx(".param .u32 a"));
  EXPECT_TRUE(inputs.add_linked_text(ptx(".param .u32 a")).ok());
  EXPECT_FALSE(inputs.add_linked_text(ptx(".param .b8 a[2048]")).ok());
  EXPECT_FALSE(inputs.add_linked_text(".version 8.0\n.entry more(.param .u32 a) { ret; }").ok());
  inputs.add_unknown();
  EXPECT_TRUE(inputs.add_linked_text(".version 8.0\n.entry more(.param .u32 a) { ret; }").ok());
  EXPECT_TRUE(inputs.check("more", kWord).ok());
  EXPECT_FALSE(inputs.check("more", kLong).ok()) << "known since then";
  EXPECT_FALSE(inputs.add_linked_text(ptx(".param .b8 a[2048]")).ok()) << "known before";
}

}  // namespace
}  // namespace fargpu::client
