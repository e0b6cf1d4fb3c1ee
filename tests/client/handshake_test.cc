#include "client/interop/handshake.h"

#include <gtest/gtest.h>

#include <string>

#include "client/interop/md2.h"

namespace fargpu::client::interop {
namespace {

std::string hex(const Digest& digest) {
  std::string text;
  for (const uint8_t byte : digest) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

std::string md2_hex(const std::string& text) {
  return hex(md2({reinterpret_cast<const uint8_t*>(text.data()), text.size()}));
}

// The appendix of RFC 1319.
TEST(Md2, VectorsOfTheRfc) {
  EXPECT_EQ(md2_hex(""), "8350e5a3e24c153df2275c9f80692773");
  EXPECT_EQ(md2_hex("a"), "32ec01ec4a6dac72c0ab96fb34c0b5d1");
  EXPECT_EQ(md2_hex("abc"), "da853b0d3f88d99b30283a69e6ded6bb");
  EXPECT_EQ(md2_hex("message digest"), "ab4f496bfb2a530b219ff33031fe06b0");
  EXPECT_EQ(md2_hex("abcdefghijklmnopqrstuvwxyz"), "4e8ddff3650292ab5a4108c3aa47940b");
}

TEST(Md2, WholeBlocksArePadded) {
  EXPECT_NE(md2_hex(std::string(16, 'x')), md2_hex(std::string(17, 'x')));
  EXPECT_NE(md2_hex(std::string(16, 'x')), md2_hex(std::string(16, 'x') + std::string(16, '\x10')));
}

HandshakeInput fixed_input(std::span<const HandshakeDevice> devices) {
  HandshakeInput input;
  input.driver_version = 13000;
  input.version = 13002;
  input.process_id = 4242;
  input.thread_id = 0x1234abcd;
  input.cudart_table = 0x7f0011223344;
  input.integrity_table = 0x7f0055667788;
  input.function = 0x7f00deadbeef;
  input.unix_seconds = 1700000000;
  input.devices = devices;
  return input;
}

std::array<HandshakeDevice, 2> fixed_devices() {
  std::array<HandshakeDevice, 2> devices;
  for (int g = 0; g < 2; ++g) {
    for (int i = 0; i < 16; ++i) devices[g].uuid[i] = static_cast<uint8_t>(16 * g + i);
    devices[g].pci_domain = g;
    devices[g].pci_bus = 0x41 + g;
    devices[g].pci_device = g;
  }
  return devices;
}

// The expected words come from an independent implementation in another language.
TEST(Handshake, FixedInput) {
  const auto devices = fixed_devices();
  const auto answer = handshake(fixed_input(devices));
  EXPECT_EQ(answer[0], 0x76a769c4e8314d47u);
  EXPECT_EQ(answer[1], 0x6df52b88175494bbu);
}

TEST(Handshake, EveryFieldCounts) {
  const auto devices = fixed_devices();
  const auto reference = handshake(fixed_input(devices));
  auto other_thread = fixed_input(devices);
  other_thread.thread_id ^= 1;
  EXPECT_NE(handshake(other_thread), reference);
  auto fewer = fixed_input(std::span(devices).first(1));
  EXPECT_NE(handshake(fewer), reference);
  auto later = fixed_input(devices);
  ++later.unix_seconds;
  EXPECT_NE(handshake(later), reference);
}

TEST(Handshake, VersionsZeroAndOneAreConstants) {
  HandshakeInput input;
  input.version = 13000;
  EXPECT_EQ(handshake(input), (std::array<uint64_t, 2>{0x3341181C03CB675C, 0x8ED383AA1F4CD1E8}));
  input.version = 13001;
  EXPECT_EQ(handshake(input), (std::array<uint64_t, 2>{0x1841181C03CB675C, 0x8ED383AA1F4CD1E8}));
}

}  // namespace
}  // namespace fargpu::client::interop
