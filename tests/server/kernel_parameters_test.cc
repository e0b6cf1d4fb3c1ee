#include <gtest/gtest.h>

#include <vector>

#include "server/image/parameter_layouts.h"

namespace fargpu::server {
namespace {

constexpr uint64_t kFunction = 7, kKernel = 9;

KnownKernel two_parameters() {
  KnownKernel kernel;
  kernel.offsets = {0, 8};
  kernel.sizes = {8, 4};
  return kernel;
}

// Its number may be another kernel's, with more parameters, from then on.
TEST(ParameterLayouts, EndWithTheirFunction) {
  ParameterLayouts layouts;
  layouts.learn(kFunction, two_parameters());
  layouts.learn(kKernel, two_parameters());
  layouts.function_ended({.id = kFunction});
  EXPECT_EQ(layouts.find(kFunction), nullptr);
  ASSERT_NE(layouts.find(kKernel), nullptr);
  layouts.kernel_ended({.id = kKernel});
  EXPECT_EQ(layouts.find(kKernel), nullptr);
}

TEST(ParameterLayouts, AKernelReadsNothingBehindWhatCame) {
  const KnownKernel kernel = two_parameters();
  std::vector<std::byte> packed(12);
  void* each[2] = {};
  ASSERT_TRUE(find_parameters(kernel, packed, each));
  EXPECT_EQ(each[1], packed.data() + 8);
  packed.pop_back();
  EXPECT_FALSE(find_parameters(kernel, packed, each));
  EXPECT_FALSE(find_parameters(kernel, {}, each));
}

}  // namespace
}  // namespace fargpu::server
