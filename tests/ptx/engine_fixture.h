// What tests of the PTX engine share: device memory made of host allocations with exact bounds, and
// a runner that loads PTX, fills buffers, launches and gives results back.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "sim/exec/run/load.h"

namespace fargpu::sim {

// Allocations as the driver makes them: aligned to 256 bytes, zeroed, checked exactly.
class TestMemory final : public MemoryMap {
 public:
  ~TestMemory() override {
    for (auto& [address, bytes] : allocations_)
      ::operator delete (reinterpret_cast<void*>(address), std::align_val_t{256});
  }
  std::optional<Range> find(uint64_t address, size_t bytes) const override {
    const std::lock_guard lock(mutex_);
    auto it = allocations_.upper_bound(address);
    if (it == allocations_.begin()) return std::nullopt;
    --it;
    if (address - it->first > it->second || bytes > it->second - (address - it->first))
      return std::nullopt;
    return Range{it->first, it->second, true};
  }
  uint64_t allocate(size_t bytes) override {
    if (bytes > limit) return 0;
    void* memory = ::operator new (bytes, std::align_val_t{256}, std::nothrow);
    if (memory == nullptr) return 0;
    std::memset(memory, 0, bytes);
    const std::lock_guard lock(mutex_);
    const auto address = reinterpret_cast<uint64_t>(memory);
    allocations_[address] = bytes;
    return address;
  }
  void release(uint64_t address) override {
    {
      const std::lock_guard lock(mutex_);
      allocations_.erase(address);
    }
    ::operator delete (reinterpret_cast<void*>(address), std::align_val_t{256});
  }
  size_t count() const {
    const std::lock_guard lock(mutex_);
    return allocations_.size();
  }

  size_t limit = size_t{1} << 30;  // of one allocation

 private:
  mutable std::mutex mutex_;
  std::map<uint64_t, size_t> allocations_;
};

// Kernel parameters, one after the other at their natural alignment.
class Parameters {
 public:
  template <typename T>
  Parameters& add(T value) {
    const size_t at = (bytes_.size() + alignof(T) - 1) / alignof(T) * alignof(T);
    bytes_.resize(at + sizeof(T));
    std::memcpy(bytes_.data() + at, &value, sizeof(T));
    return *this;
  }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

// A module header for texts of tests.
inline std::string module_text(const std::string& body, const std::string& target = "sm_90") {
  return ".version 8.6\n.target " + target + "\n.address_size 64\n" + body;
}

class EngineTest : public ::testing::Test {
 protected:
  void load(const std::string& text) {
    LoadResult result = load_ptx(text, memory, options);
    ASSERT_NE(result.program, nullptr) << result.error.message << "\n" << text;
    program = std::move(result.program);
  }
  LoadError load_error(const std::string& text) {
    LoadResult result = load_ptx(text, memory, options);
    EXPECT_EQ(result.program, nullptr) << text;
    return result.error;
  }
  template <typename T>
  uint64_t buffer(const std::vector<T>& values) {
    const uint64_t address = memory.allocate(std::max<size_t>(values.size() * sizeof(T), 1));
    std::copy(values.begin(), values.end(), reinterpret_cast<T*>(address));
    return address;
  }
  template <typename T>
  std::vector<T> read(uint64_t address, size_t count) {
    std::vector<T> values(count);
    std::copy_n(reinterpret_cast<const T*>(address), count, values.begin());
    return values;
  }
  std::optional<Fault> launch(const std::string& kernel, uint32_t grid, uint32_t block,
                              const Parameters& parameters, size_t dynamic_shared = 0) {
    GridConfig config;
    config.grid = {grid, 1, 1};
    config.block = {block, 1, 1};
    config.dynamic_shared_bytes = dynamic_shared;
    return launch(kernel, config, parameters);
  }
  std::optional<Fault> launch(const std::string& kernel, const GridConfig& config,
                              const Parameters& parameters) {
    output.clear();
    return program->run(kernel, config, parameters.bytes(),
                        [this](std::string_view text) { output += text; });
  }
  void run(const std::string& kernel, uint32_t grid, uint32_t block, const Parameters& parameters,
           size_t dynamic_shared = 0) {
    const std::optional<Fault> fault = launch(kernel, grid, block, parameters, dynamic_shared);
    EXPECT_FALSE(fault.has_value()) << fault->text;
  }

  TestMemory memory;
  EngineOptions options;
  std::unique_ptr<Program> program;
  std::string output;
};

}  // namespace fargpu::sim
