#include "client/memory/mirrors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace fargpu::client {
namespace {

// The worker's side, and the host's memory, of one region.
class MirrorsTest : public testing::Test {
 protected:
  static constexpr size_t kBytes = 3 * Mirrors::kPage + 100;
  MirrorsTest() : host_(kBytes), worker_(kBytes) { mirrors_.add(address(), kBytes, address()); }
  uint64_t address() { return reinterpret_cast<uint64_t>(host_.data()); }
  Mirrors::Wire wire() {
    return {[this](uint64_t at, const void* data, size_t bytes) {
              std::memcpy(worker_.data() + (at - address()), data, bytes);
              pushed_ += bytes;
              return CUDA_SUCCESS;
            },
            [this](uint64_t at, void* data, size_t bytes) {
              std::memcpy(data, worker_.data() + (at - address()), bytes);
              pulled_ += bytes;
              return CUDA_SUCCESS;
            }};
  }
  Mirrors mirrors_;
  std::vector<char> host_, worker_;
  size_t pushed_ = 0, pulled_ = 0;
};

TEST_F(MirrorsTest, FirstPushIsWholeLaterOnesAreChangedPages) {
  host_[5] = 1;
  ASSERT_EQ(mirrors_.push(wire()), CUDA_SUCCESS);
  EXPECT_EQ(pushed_, kBytes);
  EXPECT_EQ(worker_, host_);
  pushed_ = 0;
  ASSERT_EQ(mirrors_.push(wire()), CUDA_SUCCESS);
  EXPECT_EQ(pushed_, 0u);
  host_[kBytes - 1] = 9;
  ASSERT_EQ(mirrors_.push(wire()), CUDA_SUCCESS);
  EXPECT_EQ(pushed_, 100u);
  EXPECT_EQ(worker_, host_);
}

TEST_F(MirrorsTest, PullOnlyAfterPush) {
  ASSERT_EQ(mirrors_.pull(wire(), true), CUDA_SUCCESS);
  EXPECT_EQ(pulled_, 0u);
  mirrors_.push(wire());
  mirrors_.pull(wire(), false);
  EXPECT_EQ(pulled_, kBytes);
  mirrors_.pull(wire(), true);  // other work may still have been running
  EXPECT_EQ(pulled_, 2 * kBytes);
  mirrors_.pull(wire(), true);
  EXPECT_EQ(pulled_, 2 * kBytes);
}

TEST_F(MirrorsTest, BothSidesChangeDifferentBytesOfOnePage) {
  mirrors_.push(wire());
  worker_[10] = 42;  // the device
  host_[11] = 43;    // the application, meanwhile
  ASSERT_EQ(mirrors_.pull(wire(), true), CUDA_SUCCESS);
  EXPECT_EQ(host_[10], 42);
  EXPECT_EQ(host_[11], 43);
  ASSERT_EQ(mirrors_.push(wire()), CUDA_SUCCESS);
  EXPECT_EQ(worker_, host_);
}

TEST_F(MirrorsTest, RemoveAndErrors) {
  EXPECT_TRUE(mirrors_.any());
  EXPECT_EQ(mirrors_.device_pointer(address()), address());
  auto failing = wire();
  failing.push = [](uint64_t, const void*, size_t) { return CUDA_ERROR_DEVICE_UNAVAILABLE; };
  EXPECT_EQ(mirrors_.push(failing), CUDA_ERROR_DEVICE_UNAVAILABLE);
  EXPECT_TRUE(mirrors_.remove(address()));
  EXPECT_FALSE(mirrors_.remove(address()));
  EXPECT_FALSE(mirrors_.any());
  EXPECT_FALSE(mirrors_.device_pointer(address()));
}

}  // namespace
}  // namespace fargpu::client
