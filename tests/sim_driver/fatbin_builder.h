// Makes fat binary containers for tests.
#pragma once

#include <lz4.h>
#include <zstd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "common/fatbin/fatbin.h"

namespace fargpu::sim {

enum class Packing { kNone, kLz4, kZstd };

class FatbinBuilder {
 public:
  FatbinBuilder& add(uint16_t kind, uint32_t arch, const std::string& contents,
                     Packing packing = Packing::kNone) {
    std::string payload = contents;
    uint64_t flags = 0;
    if (packing == Packing::kZstd) {
      payload.resize(ZSTD_compressBound(contents.size()));
      payload.resize(
          ZSTD_compress(payload.data(), payload.size(), contents.data(), contents.size(), 3));
      flags = 0x8000;
    } else if (packing == Packing::kLz4) {
      payload.resize(static_cast<size_t>(LZ4_compressBound(static_cast<int>(contents.size()))));
      payload.resize(static_cast<size_t>(LZ4_compress_default(contents.data(), payload.data(),
                                                              static_cast<int>(contents.size()),
                                                              static_cast<int>(payload.size()))));
      flags = 0x2000;
    }
    const auto compressed = static_cast<uint32_t>(packing == Packing::kNone ? 0 : payload.size());
    payload.resize((payload.size() + 7) / 8 * 8);
    std::vector<std::byte> header(64);
    put(header, 0, kind);
    put(header, 4, uint32_t{64});
    put(header, 8, static_cast<uint64_t>(payload.size()));
    put(header, 16, compressed);
    put(header, 28, arch);
    put(header, 40, flags);
    put(header, 56, static_cast<uint64_t>(packing == Packing::kNone ? 0 : contents.size()));
    body_.insert(body_.end(), header.begin(), header.end());
    const auto* bytes = reinterpret_cast<const std::byte*>(payload.data());
    body_.insert(body_.end(), bytes, bytes + payload.size());
    return *this;
  }

  std::vector<std::byte> container() const {
    std::vector<std::byte> result(16 + body_.size());
    put(result, 0, kFatbinMagic);
    put(result, 4, uint16_t{1});
    put(result, 6, uint16_t{16});
    put(result, 8, static_cast<uint64_t>(body_.size()));
    std::copy(body_.begin(), body_.end(), result.begin() + 16);
    return result;
  }

  template <typename T>
  static void put(std::vector<std::byte>& bytes, size_t at, T value) {
    std::memcpy(bytes.data() + at, &value, sizeof value);
  }

 private:
  std::vector<std::byte> body_;
};

// What the compiler puts around a container.
struct FatbinWrapper {
  uint32_t magic = kWrapperMagic;
  uint32_t version = 1;
  const void* data = nullptr;
  const void* const* prelinked = nullptr;
};

}  // namespace fargpu::sim
