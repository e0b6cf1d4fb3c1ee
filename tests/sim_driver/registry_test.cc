#include "sim/base/registry.h"

#include <gtest/gtest.h>

#include "sim/context/event.h"
#include "sim/context/stream.h"

namespace fargpu::sim {
namespace {

struct Thing {
  static constexpr ObjectKind kKind = ObjectKind::kModule;
  int value;
};
struct Other {
  static constexpr ObjectKind kKind = ObjectKind::kLibrary;
  int value;
};

TEST(RegistryTest, FindsOnlyTheRightKind) {
  Registry registry;
  const uint64_t handle = registry.add(std::make_shared<Thing>(Thing{5}), 0);
  ASSERT_NE(registry.find<Thing>(handle), nullptr);
  EXPECT_EQ(registry.find<Thing>(handle)->value, 5);
  EXPECT_EQ(registry.find<Other>(handle), nullptr);
  EXPECT_EQ(registry.remove<Other>(handle), nullptr);
  EXPECT_EQ(registry.find<Thing>(uint64_t{0}), nullptr);
  EXPECT_EQ(registry.find<Thing>(handle + 256), nullptr);
}

TEST(RegistryTest, AStaleHandleStaysStale) {
  Registry registry;
  const uint64_t first = registry.add(std::make_shared<Thing>(Thing{1}), 0);
  const auto kept = registry.remove<Thing>(first);
  EXPECT_EQ(kept->value, 1);
  EXPECT_EQ(registry.remove<Thing>(first), nullptr);
  const uint64_t second = registry.add(std::make_shared<Thing>(Thing{2}), 0);
  EXPECT_NE(first, second);
  EXPECT_EQ(registry.find<Thing>(first), nullptr);
}

TEST(RegistryTest, RemovesWhatHasAnOwner) {
  Registry registry;
  const uint64_t mine = registry.add(std::make_shared<Thing>(Thing{1}), 7);
  const uint64_t other = registry.add(std::make_shared<Thing>(Thing{2}), 8);
  EXPECT_EQ(registry.remove_owned(7).size(), 1u);
  EXPECT_EQ(registry.find<Thing>(mine), nullptr);
  EXPECT_NE(registry.find<Thing>(other), nullptr);
}

}  // namespace
}  // namespace fargpu::sim
