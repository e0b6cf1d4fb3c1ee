#include "client/image/image.h"

#include <elf.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

namespace fargpu::client {
namespace {

std::vector<std::byte> container(uint64_t payload, uint16_t header = 16) {
  std::vector<std::byte> bytes(header + payload);
  const uint32_t magic = 0xBA55ED50;
  const uint16_t version = 1;
  std::memcpy(bytes.data(), &magic, 4);
  std::memcpy(bytes.data() + 4, &version, 2);
  std::memcpy(bytes.data() + 6, &header, 2);
  std::memcpy(bytes.data() + 8, &payload, 8);
  return bytes;
}

struct Wrapper {
  uint32_t magic = 0x466243B1;
  uint32_t version = 1;
  const void* data = nullptr;
  const void* more = nullptr;
};

// One section of 40 bytes at 64, then the section headers (null, the section, one without bits).
std::vector<std::byte> elf() {
  std::vector<std::byte> bytes(64 + 40 + 3 * sizeof(Elf64_Shdr));
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_shoff = 104;
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = 3;
  std::memcpy(bytes.data(), &header, sizeof header);
  Elf64_Shdr sections[3]{};
  sections[1].sh_type = SHT_PROGBITS;
  sections[1].sh_offset = 64;
  sections[1].sh_size = 40;
  sections[2].sh_type = SHT_NOBITS;
  sections[2].sh_offset = 104;
  sections[2].sh_size = 1 << 30;
  std::memcpy(bytes.data() + 104, sections, sizeof sections);
  return bytes;
}

TEST(Image, ContainerByWrapper) {
  const auto bytes = container(100);
  const Wrapper wrapper{.data = bytes.data()};
  const auto image = inspect_image(&wrapper);
  ASSERT_TRUE(image.ok()) << image.status().message();
  EXPECT_EQ(image->kind, ImageKind::kContainer);
  EXPECT_EQ(image->bytes.data(), bytes.data());
  EXPECT_EQ(image->bytes.size(), 116u);
}

TEST(Image, WrapperWithTheContainersOfItsObjects) {
  const auto linked = container(0), first = container(100), second = container(24);
  const std::byte* const prelinked[] = {first.data(), second.data(), nullptr};
  Wrapper wrapper{.version = 2, .data = linked.data(), .more = prelinked};
  auto image = inspect_image(&wrapper);
  ASSERT_TRUE(image.ok()) << image.status().message();
  EXPECT_EQ(image->bytes.size(), 16u);
  ASSERT_EQ(image->prelinked.size(), 2u);
  EXPECT_EQ(image->prelinked[0].data(), first.data());
  EXPECT_EQ(image->prelinked[0].size(), 116u);
  EXPECT_EQ(image->prelinked[1].size(), 40u);
  // Of version 1 it is the name of a file.
  wrapper.version = 1;
  EXPECT_TRUE(inspect_image(&wrapper)->prelinked.empty());
  wrapper.version = 2;
  wrapper.more = nullptr;
  EXPECT_TRUE(inspect_image(&wrapper)->prelinked.empty());
  const std::vector<const std::byte*> too_many(5000, first.data());
  wrapper.more = too_many.data();
  EXPECT_FALSE(inspect_image(&wrapper).ok());
  const std::byte nonsense[16] = {};
  const std::byte* const bad[] = {first.data(), nonsense, nullptr};
  wrapper.more = bad;
  EXPECT_FALSE(inspect_image(&wrapper).ok());
}

TEST(Image, BareContainerElfAndText) {
  const auto fat = container(8);
  EXPECT_EQ(inspect_image(fat.data())->bytes.size(), 24u);
  const auto object = elf();
  const auto inspected = inspect_image(object.data());
  ASSERT_TRUE(inspected.ok()) << inspected.status().message();
  EXPECT_EQ(inspected->kind, ImageKind::kElf);
  EXPECT_EQ(inspected->bytes.size(), object.size());
  const char* ptx = "//\n.version 9.0\n";
  EXPECT_EQ(inspect_image(ptx)->kind, ImageKind::kPtx);
  EXPECT_EQ(inspect_image(ptx)->bytes.size(), std::strlen(ptx));
}

TEST(Image, NullAndUnknown) {
  EXPECT_FALSE(inspect_image(static_cast<const void*>(nullptr)).ok());
  EXPECT_FALSE(inspect_image(static_cast<const void*>("garbage")).ok());
  EXPECT_EQ(inspect_image(static_cast<const void*>("garbage"), true)->kind, ImageKind::kPtx);
  const Wrapper empty;
  EXPECT_FALSE(inspect_image(&empty).ok());
}

TEST(Image, ContainerLengthsAreJudged) {
  auto huge = container(8);
  const uint64_t claim = UINT64_MAX - 8;
  std::memcpy(huge.data() + 8, &claim, 8);
  EXPECT_FALSE(inspect_image(huge.data()).ok());
  EXPECT_FALSE(container_bytes(huge.data(), huge.size()).ok());
  auto small_header = container(8);
  const uint16_t header = 4;
  std::memcpy(small_header.data() + 6, &header, 2);
  EXPECT_FALSE(inspect_image(small_header.data()).ok());
}

TEST(Image, FileContentsAreNotReadBeyondTheirEnd) {
  const auto whole = container(64);
  for (size_t n = 0; n < whole.size(); ++n) {
    // A copy of exactly n bytes: address sanitizers see every byte too far.
    const std::vector<std::byte> cut(whole.begin(), whole.begin() + static_cast<long>(n));
    EXPECT_FALSE(inspect_image(std::span<const std::byte>(cut)).ok()) << n;
  }
  EXPECT_TRUE(inspect_image(std::span<const std::byte>(whole)).ok());
  const auto object = elf();
  for (size_t n = 0; n < object.size(); ++n) {
    const std::vector<std::byte> cut(object.begin(), object.begin() + static_cast<long>(n));
    EXPECT_FALSE(inspect_image(std::span<const std::byte>(cut)).ok()) << n;
  }
}

TEST(Image, TextInAFileEndsAtItsEndOrNul) {
  const std::string text = ".version 9.0\n.target sm_75\n";
  const auto image = inspect_image(std::as_bytes(std::span(text)));
  EXPECT_EQ(image->bytes.size(), text.size());
  const std::string padded = text + std::string(5, '\0');
  EXPECT_EQ(inspect_image(std::as_bytes(std::span(padded)))->bytes.size(), text.size());
}

TEST(Image, CorruptedElfNeverClaimsMoreThanThereIs) {
  std::mt19937 random(7);
  const auto good = elf();
  for (int round = 0; round < 20000; ++round) {
    auto bad = good;
    for (int i = 0; i < 3; ++i) bad[random() % bad.size()] = static_cast<std::byte>(random());
    const auto bytes = elf_bytes(bad.data(), bad.size());
    if (bytes.ok()) {
      EXPECT_LE(*bytes, bad.size());
    }
  }
}

}  // namespace
}  // namespace fargpu::client
