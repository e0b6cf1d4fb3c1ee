// Export handles that clients show.
#include <gtest/gtest.h>

#include "server/sharing/export_handle.h"

namespace fargpu::server {
namespace {

constexpr ShareIdentity kSelf{1, 2, 3};

std::span<const std::byte> bytes_of(const ExportHandle& export_handle) {
  return std::as_bytes(std::span(&export_handle, 1));
}

TEST(ExportHandle, IsTakenInItsJobAlone) {
  const auto made = make_export_handle(SharedKind::kMemory, kSelf);
  ASSERT_TRUE(made.ok());
  ExportHandle read;
  const auto reads = [&](const ShareIdentity& self) {
    return read_export_handle(bytes_of(*made), SharedKind::kMemory, self, &read);
  };
  EXPECT_EQ(reads({1, 2, 9}), CUDA_SUCCESS);  // another session
  EXPECT_EQ(read.secret, made->secret);
  EXPECT_EQ(read.session, 3u);
  EXPECT_EQ(reads({1, 9, 3}), CUDA_ERROR_NOT_PERMITTED);
  EXPECT_EQ(reads({9, 2, 3}), CUDA_ERROR_NOT_PERMITTED);
}

TEST(ExportHandle, IsRefusedWhenItIsNone) {
  const auto made = make_export_handle(SharedKind::kMemory, kSelf);
  ASSERT_TRUE(made.ok());
  ExportHandle read;
  ExportHandle other = *made;
  const auto reads = [&](std::span<const std::byte> bytes) {
    return read_export_handle(bytes, SharedKind::kMemory, kSelf, &read);
  };
  EXPECT_EQ(reads(bytes_of(*made).first(63)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(reads({}), CUDA_ERROR_INVALID_VALUE);
  other.magic ^= 1;
  EXPECT_EQ(reads(bytes_of(other)), CUDA_ERROR_INVALID_VALUE);
  other = *made;
  other.kind = static_cast<SharedKind>(77);
  EXPECT_EQ(reads(bytes_of(other)), CUDA_ERROR_INVALID_VALUE);
}

TEST(ExportHandle, SecretsDiffer) {
  EXPECT_NE(make_export_handle(SharedKind::kMemory, kSelf)->secret,
            make_export_handle(SharedKind::kMemory, kSelf)->secret);
}

}  // namespace
}  // namespace fargpu::server
