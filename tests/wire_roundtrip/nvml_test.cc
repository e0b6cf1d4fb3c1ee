// The server halves of NVML: whole requests are executed, truncated and longer ones are malformed
// and call nothing, damaged ones are an outcome or malformed, never a crash.
#include <gtest/gtest.h>

#include <set>

#include "generated/schema/nvml_opcodes.h"
#include "generated/server/nvml/serve.h"
#include "generated/server/nvml/table.h"
#include "server/nvml/arguments.h"
#include "server/nvml/desk.h"
#include "tests/wire_roundtrip/nvml_cases.h"

namespace fargpu::wiretest {
namespace {

using server::Desk;
using server::JobMemory;

class NvmlWire : public ::testing::Test {
 protected:
  struct Outcome {
    nvmlReturn_t result;
    bool malformed;
    size_t bytes;
  };
  Outcome serve(const NvmlCase& about, std::span<const std::byte> arguments) {
    // Exactly as long as it is: what reads beyond it is noticed by a sanitizer.
    const std::vector<std::byte> exact(arguments.begin(), arguments.end());
    server::NvmlArguments in(exact);
    server::NvmlOutputs out;
    library_calls = 0;
    const nvmlReturn_t result = server::find_nvml_serve(about.opcode)(desk_, in, out);
    return {result, in.malformed(), out.bytes().size()};
  }

  const server::NvmlTable table_ = library_that_succeeds();
  JobMemory memory_ = std::move(*JobMemory::create({2, 4, 0}));
  int devices_[2] = {};
  Desk desk_{
      table_,
      {reinterpret_cast<nvmlDevice_t>(&devices_[0]), reinterpret_cast<nvmlDevice_t>(&devices_[1])},
      memory_,
      0,
      1};
};

TEST_F(NvmlWire, EveryFunctionWithAMessageHasACase) {
  std::set<uint16_t> opcodes;
  for (const NvmlCase& each : nvml_cases()) opcodes.insert(each.opcode);
  const auto messages = schema::nvml_opcodes();
  EXPECT_EQ(opcodes, std::set<uint16_t>(messages.begin(), messages.end()));
  EXPECT_GT(opcodes.size(), 100u);
}

TEST_F(NvmlWire, WholeRequestsAreExecuted) {
  for (const NvmlCase& each : nvml_cases()) {
    const Outcome outcome = serve(each, each.arguments);
    EXPECT_FALSE(outcome.malformed) << each.name;
    EXPECT_EQ(outcome.result, NVML_SUCCESS) << each.name;
    EXPECT_EQ(outcome.bytes % 8, 0u) << each.name;
  }
}

TEST_F(NvmlWire, TruncatedAndLongerRequestsAreMalformedAndCallNothing) {
  for (const NvmlCase& each : nvml_cases()) {
    for (size_t bytes = 0; bytes < each.arguments.size(); bytes += 4) {
      EXPECT_TRUE(serve(each, std::span(each.arguments).first(bytes)).malformed)
          << each.name << " truncated to " << bytes;
      EXPECT_EQ(library_calls, 0) << each.name << " truncated to " << bytes;
    }
    std::vector<std::byte> longer = each.arguments;
    longer.resize(longer.size() + 8);
    EXPECT_TRUE(serve(each, longer).malformed) << each.name;
    EXPECT_EQ(library_calls, 0) << each.name;
  }
}

TEST_F(NvmlWire, DamagedRequestsAreAnOutcomeOrMalformed) {
  for (const NvmlCase& each : nvml_cases()) {
    for (size_t bit = 0; bit < each.arguments.size() * 8; ++bit) {
      std::vector<std::byte> damaged = each.arguments;
      damaged[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
      const Outcome outcome = serve(each, damaged);
      if (outcome.malformed) {
        EXPECT_EQ(library_calls, 0) << each.name << " bit " << bit;
      }
      EXPECT_LT(outcome.bytes, size_t{1} << 20) << each.name << " bit " << bit;
    }
  }
}

TEST_F(NvmlWire, AnotherOpcodeIsNoCall) {
  EXPECT_EQ(server::find_nvml_serve(0), nullptr);
  EXPECT_EQ(server::find_nvml_serve(4095), nullptr);
  EXPECT_EQ(server::find_nvml_serve(65535), nullptr);
}

}  // namespace
}  // namespace fargpu::wiretest
