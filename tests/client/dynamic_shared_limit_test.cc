// When a limit of dynamic shared memory need not be sent again.
#include "client/object/dynamic_shared_limit.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>

#include "client/object/handle_table.h"

namespace fargpu::client {
namespace {

class DynamicSharedLimitTest : public testing::Test {
 protected:
  void SetUp() override {
    for (int device : {0, 1}) table_->add_primary(device, device);
    for (int device : {0, 1}) table_->activate(context(device), 0);
  }
  Context& context(int device = 0) { return *table_->primary(device); }
  void set(int bytes, int device = 0) {
    DynamicSharedLimit::Setting setting(limit_, &context(device), device);
    setting.succeeded(bytes);
  }
  bool is(int bytes, int device = 0) { return limit_.is(context(device), device, bytes); }

  std::unique_ptr<HandleTable> handles_ = std::make_unique<HandleTable>();
  std::unique_ptr<ContextTable> table_ = std::make_unique<ContextTable>(*handles_);
  DynamicSharedLimit limit_;
};

TEST_F(DynamicSharedLimitTest, IsWhatWasSetLast) {
  EXPECT_FALSE(is(0));
  set(60000);
  EXPECT_TRUE(is(60000));
  EXPECT_FALSE(is(50000));
  set(50000);
  EXPECT_TRUE(is(50000));
  EXPECT_FALSE(is(60000));
}

TEST_F(DynamicSharedLimitTest, IsUnknownAfterARefusal) {
  set(60000);
  { const DynamicSharedLimit::Setting refused(limit_, &context(), 0); }
  EXPECT_FALSE(is(60000));
}

TEST_F(DynamicSharedLimitTest, DevicesHaveTheirOwn) {
  set(60000, 0);
  set(50000, 1);
  EXPECT_TRUE(is(60000, 0));
  EXPECT_TRUE(is(50000, 1));
}

TEST_F(DynamicSharedLimitTest, AnotherContextOfTheDeviceMayHaveSetIt) {
  set(60000);
  Context* const other = table_->create(0, 0, 0);
  ASSERT_NE(other, nullptr);
  table_->activate(*other, 0);
  EXPECT_FALSE(limit_.is(*other, 0, 60000));
  DynamicSharedLimit::Setting(limit_, other, 0).succeeded(50000);
  EXPECT_TRUE(limit_.is(*other, 0, 50000));
  EXPECT_FALSE(is(60000));
}

// cuKernelSetAttribute needs none.
TEST_F(DynamicSharedLimitTest, ThreadsWithoutAContextMayHaveSetIt) {
  set(60000);
  DynamicSharedLimit::Setting(limit_, nullptr, 0).succeeded(50000);
  EXPECT_FALSE(is(60000));
  EXPECT_FALSE(is(50000));
}

TEST_F(DynamicSharedLimitTest, EndsWithTheContext) {
  set(60000);
  table_->retire(context(), ContextState::kInactive);
  EXPECT_FALSE(is(60000));
  table_->activate(context(), 0);
  EXPECT_FALSE(is(60000));
}

// Nobody knows in which order the server took them.
TEST_F(DynamicSharedLimitTest, IsUnknownAfterSettingsAtOnce) {
  std::optional<DynamicSharedLimit::Setting> first(std::in_place, limit_, &context(), 0);
  std::optional<DynamicSharedLimit::Setting> second(std::in_place, limit_, &context(), 0);
  first->succeeded(60000);
  second->succeeded(50000);
  first.reset();
  EXPECT_FALSE(is(60000));
  second.reset();
  EXPECT_FALSE(is(50000));
  set(60000);
  EXPECT_TRUE(is(60000));
}

}  // namespace
}  // namespace fargpu::client
