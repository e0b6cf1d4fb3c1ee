// What random programs look like: without some shapes the hunter would be blind to whole kinds of
// mistakes.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/hunt/order.h"
#include "tests/hunt/program.h"

namespace fargpu::hunt {
namespace {

constexpr uint64_t kPrograms = 400;

bool is_kernel(Kind kind) { return kind == Kind::kFill || kind == Kind::kKernelCopy; }

bool uses_host_memory(const Program& program, const Operation& operation) {
  const auto is_host = [&](const Place& place) {
    return place.buffer >= 0 && on_host(program.buffers[place.buffer].memory);
  };
  return is_host(operation.to) || is_host(operation.from);
}

TEST(GenerateTest, SomeProgramsGiveDeviceCodeNoHostMemory) {
  size_t sharing = 0, copying = 0;
  for (uint64_t seed = 0; seed < kPrograms; ++seed) {
    const Program program = generate(seed);
    const bool mapped =
        std::any_of(program.buffers.begin(), program.buffers.end(),
                    [](const Buffer& buffer) { return buffer.memory == Memory::kMapped; });
    bool copies = false;
    for (const Operation& operation : program.operations) {
      if (is_kernel(operation.kind) && !mapped) {
        EXPECT_FALSE(uses_host_memory(program, operation)) << seed;
      }
      copies |= operation.kind == Kind::kCopy && operation.from.buffer >= 0 &&
                program.buffers[operation.from.buffer].memory == Memory::kPinned;
    }
    sharing += mapped ? 1 : 0;
    copying += !mapped && copies ? 1 : 0;
  }
  EXPECT_GT(sharing, kPrograms / 2);
  EXPECT_GT(copying, kPrograms / 20);
}

TEST(GenerateTest, LargeImagesAreLoadedBySeveralThreads) {
  size_t large = 0;
  for (uint64_t seed = 0; seed < kPrograms; ++seed) {
    const Program program = generate(seed);
    EXPECT_GE(program.image_bytes, size_t{1} << 20);
    if (program.image_bytes < 16u << 20) continue;
    ++large;
    std::set<int> threads;
    for (const Operation& operation : program.operations) {
      if (operation.kind == Kind::kLoad) threads.insert(operation.thread);
    }
    EXPECT_GE(threads.size(), 2u) << seed;
  }
  EXPECT_GT(large, 0u);
  EXPECT_LT(large, kPrograms / 10);  // they take long
}

TEST(GenerateTest, GraphsHaveAllKindsOfNodesAndAreCapturedOrBuilt) {
  std::set<NodeKind> built, captured;
  size_t changed = 0, most_launches = 0;
  for (uint64_t seed = 0; seed < kPrograms; ++seed) {
    const Program program = generate(seed);
    for (size_t i = 0; i < program.graphs.size(); ++i) {
      const Graph& graph = program.graphs[i];
      for (const Node& node : graph.nodes) (graph.captured ? captured : built).insert(node.kind);
      most_launches = std::max(most_launches, launches_of(program, static_cast<int>(i)).size());
    }
    for (const Operation& operation : program.operations)
      changed += operation.kind == Kind::kSetParams || operation.kind == Kind::kUpdate ? 1 : 0;
  }
  EXPECT_EQ(built.size(), 10u);
  EXPECT_EQ(captured.size(), 9u);  // no child
  EXPECT_GT(changed, kPrograms / 4);
  EXPECT_GT(most_launches, 50u);
}

TEST(GenerateTest, TheHostUsesManagedMemoryOnlyWhileTheDeviceIsIdle) {
  size_t touched = 0;
  for (uint64_t seed = 0; seed < kPrograms; ++seed) {
    const Program program = generate(seed);
    EXPECT_TRUE(allowed_values(program).legal) << seed;
    for (const Graph& graph : program.graphs) touched += graph.quiet ? 1 : 0;
  }
  EXPECT_GT(touched, kPrograms / 20);
}

TEST(GenerateTest, ProcessesUseTheirOwnAndWhatIsShared) {
  size_t with_two = 0, handovers = 0;
  for (uint64_t seed = 0; seed < kPrograms; ++seed) {
    const Program program = generate(seed);
    if (program.processes == 1) continue;
    ++with_two;
    for (const Operation& operation : program.operations) {
      const int process = program.process_of(operation.thread);
      for (const Place& place : {operation.to, operation.from}) {
        if (place.buffer < 0) continue;
        const Buffer& buffer = program.buffers[static_cast<size_t>(place.buffer)];
        EXPECT_TRUE(buffer.shared || buffer.process == process) << seed;
      }
      const auto event = static_cast<size_t>(operation.event);
      if (operation.kind != Kind::kRecord && operation.kind != Kind::kWaitEvent) continue;
      EXPECT_TRUE(program.event_shared[event] || program.event_process[event] == process) << seed;
      EXPECT_EQ(program.stream_process[static_cast<size_t>(operation.stream)], process) << seed;
      handovers += operation.kind == Kind::kWaitEvent && program.event_process[event] != process;
    }
  }
  EXPECT_GT(with_two, kPrograms / 20);
  EXPECT_GT(handovers, with_two);
}

TEST(GenerateTest, PipelinesAreFromOneToHundredsOfStepsDeep) {
  std::set<size_t> held;
  size_t longest = 0;
  for (uint64_t seed = 0; seed < kPrograms; ++seed) {
    const Program program = generate(seed);
    longest = std::max(longest, program.operations.size());
    for (const Operation& operation : program.operations) held.insert(operation.hold);
  }
  EXPECT_GT(longest, 2000u);
  EXPECT_GT(held.size(), 20u);
}

}  // namespace
}  // namespace fargpu::hunt
