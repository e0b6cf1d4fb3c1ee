// Arrays and textures in the worker: what is charged, and that a client names only what it made.
#include <gtest/gtest.h>

#include "generated/schema/internal.capnp.h"
#include "generated/schema/memory.capnp.h"
#include "generated/schema/opcodes.h"
#include "tests/server/executor_fixture.h"

namespace fargpu::server {
namespace {

using rpc::HandleKind;

FakeDriver& driver() { return FakeDriver::get(); }

constexpr uint64_t kArray = rpc::make_handle(HandleKind::kArray, 1);
constexpr uint64_t kOther = rpc::make_handle(HandleKind::kArray, 2);
constexpr uint64_t kTexture = rpc::make_handle(HandleKind::kTexObject, 3);

template <typename T>
capnp::Data::Reader data_of(const T& value) {
  return {reinterpret_cast<const unsigned char*>(&value), sizeof value};
}

class ArrayTest : public ExecutorTest {
 protected:
  // Of `width` floats.
  CUresult create(uint64_t id, size_t width) {
    CUDA_ARRAY3D_DESCRIPTOR descriptor{};
    descriptor.Width = width;
    descriptor.Format = CU_AD_FORMAT_FLOAT;
    descriptor.NumChannels = 1;
    return result(send<schema::CuArray3DCreateV2Params>(
        schema::op_cuArray3DCreate_v2, [&](schema::CuArray3DCreateV2Params::Builder params) {
          params.setPHandle(id);
          params.setPAllocateArray(data_of(descriptor));
        }));
  }
  CUresult destroy(uint64_t id) {
    return result(send<schema::CuArrayDestroyParams>(
        schema::op_cuArrayDestroy,
        [&](schema::CuArrayDestroyParams::Builder params) { params.setHArray(id); }));
  }
  CUresult copy(uint64_t to) {
    const std::string text = "eight by";
    const copy::Copy copy{
        copy::Location::frame(), copy::Location::in_array({to, 4}), {text.size()}, {}};
    return result(send_copy(copy, 0, wire::kWantReply, 1, std::as_bytes(std::span(text))));
  }
  CUresult make_texture(uint64_t array) {
    CUDA_RESOURCE_DESC resource{};
    resource.resType = CU_RESOURCE_TYPE_ARRAY;
    resource.res.array.hArray = reinterpret_cast<CUarray>(array);
    const CUDA_TEXTURE_DESC texture{};
    return result(send<schema::FgTexObjectCreateParams>(
        schema::op_fgTexObjectCreate, [&](schema::FgTexObjectCreateParams::Builder params) {
          params.setResource(data_of(resource));
          params.setTexture(data_of(texture));
          params.setObject(kTexture);
        }));
  }
  CUresult destroy_texture(uint64_t id) {
    return result(send<schema::FgTexObjectDestroyParams>(
        schema::op_fgTexObjectDestroy,
        [&](schema::FgTexObjectDestroyParams::Builder params) { params.setObject(id); }));
  }
};

TEST_F(ArrayTest, ElementsAreChargedUntilTheArrayIsGone) {
  start(false, 1000);
  enter();
  EXPECT_EQ(create(kArray, 200), CUDA_SUCCESS);
  EXPECT_EQ(create(kOther, 51), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_FALSE(driver().saw("cuArray3DCreate 51")) << "the driver is not asked";
  EXPECT_EQ(create(kOther, 50), CUDA_SUCCESS);
  EXPECT_EQ(destroy(kArray), CUDA_SUCCESS);
  EXPECT_EQ(create(kArray, 200), CUDA_SUCCESS);
  driver().fail("cuArray3DCreate 1", CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(destroy(kOther), CUDA_SUCCESS);
  EXPECT_EQ(create(kOther, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(create(kOther, 50), CUDA_SUCCESS) << "what was refused is not charged";
  EXPECT_EQ(create(rpc::make_handle(HandleKind::kArray, 7), SIZE_MAX), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(ArrayTest, OnlyArraysOfTheClientAreCopied) {
  start();
  enter();
  ASSERT_EQ(create(kArray, 200), CUDA_SUCCESS);
  EXPECT_EQ(copy(kArray), CUDA_SUCCESS);
  EXPECT_TRUE(driver().saw("cuMemcpy3DAsync to the array at 4"));
  EXPECT_EQ(copy(kOther), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(copy(0xa1), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(destroy(kOther), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(destroy(kArray), CUDA_SUCCESS);
  EXPECT_EQ(copy(kArray), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(driver().count("cuMemcpy3DAsync to the array at 4"), 1u);
}

TEST_F(ArrayTest, TexturesAreKnownByIds) {
  start();
  enter();
  ASSERT_EQ(create(kArray, 200), CUDA_SUCCESS);
  EXPECT_EQ(make_texture(kOther), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(make_texture(0xa1), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(make_texture(kArray), CUDA_SUCCESS);
  EXPECT_TRUE(driver().saw("cuTexObjectCreate"));
  EXPECT_FALSE(driver().saw("cuTexObjectCreate of what"));
  EXPECT_EQ(destroy_texture(5), CUDA_ERROR_INVALID_HANDLE) << "the driver's value";
  EXPECT_EQ(destroy_texture(kArray), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(destroy_texture(kTexture), CUDA_SUCCESS);
  EXPECT_EQ(destroy_texture(kTexture), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(driver().count("cuTexObjectDestroy 5"), 1u);
}

}  // namespace
}  // namespace fargpu::server
