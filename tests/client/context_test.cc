#include "client/object/context.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>

#include "client/object/handle_table.h"
#include "client/object/image_records.h"

namespace fargpu::client {
namespace {

class ContextTest : public testing::Test {
 protected:
  void SetUp() override {
    table_->add_primary(0, 0);
    table_->add_primary(1, 1);
  }
  void TearDown() override { forget_context_stack(); }
  std::unique_ptr<HandleTable> handles_ = std::make_unique<HandleTable>();
  std::unique_ptr<ContextTable> table_ = std::make_unique<ContextTable>(*handles_);
};

TEST_F(ContextTest, PrimariesHaveFixedWireIds) {
  EXPECT_EQ(table_->primary(0)->wire_id, 1);
  EXPECT_EQ(table_->primary(1)->wire_id, 2);
  EXPECT_EQ(table_->primary(2), nullptr);
  EXPECT_EQ(table_->primary(-1), nullptr);
  EXPECT_FALSE(table_->primary(0)->usable());
  EXPECT_EQ(table_->find(table_->primary(1)->handle()), table_->primary(1));
}

TEST_F(ContextTest, UniqueIdsAreNotReusedOverResets) {
  Context* context = table_->primary(0);
  table_->activate(*context, 0);
  const uint64_t first = context->unique_id.load();
  table_->retire(*context, ContextState::kInactive);
  table_->activate(*context, 0);
  EXPECT_NE(context->unique_id.load(), first);
}

TEST_F(ContextTest, RetiringTakesErrorsAwayAndBeginsAnEpoch) {
  Context* context = table_->primary(0);
  table_->activate(*context, 0);
  const uint32_t epoch = context->epoch.load();
  context->sticky.store(CUDA_ERROR_ILLEGAL_ADDRESS);
  table_->retire(*context, ContextState::kInactive);
  EXPECT_NE(context->epoch.load(), epoch);
  EXPECT_EQ(context->sticky.load(), CUDA_SUCCESS);
}

// Entries of ended contexts are used again: a launch looks at all of them.
TEST_F(ContextTest, AttributesAreKeptForLivingContextsAlone) {
  Function function;
  const int values[kFunctionAttributes] = {1, 2};
  const FunctionAttributes* const of_kernel = function.remember(0, values);
  const auto begin = [this] {
    Context* const context = table_->create(0, 0, 0);
    table_->activate(*context, 0);
    return context;
  };
  const auto in = [&function](const Context& context, size_t attribute) {
    return (*function.in_context(context))[attribute].load();
  };
  Context* const primary = table_->primary(0);
  table_->activate(*primary, 0);
  Context* const lasting = begin();
  function.set_in_context(*lasting, static_cast<CUfunction_attribute>(0), 7);
  for (int i = 0; i < 100; ++i) {
    Context* const context = begin();
    EXPECT_EQ(function.in_context(*context), of_kernel);
    function.set_in_context(*context, static_cast<CUfunction_attribute>(i % 2), 100 + i);
    function.set_in_context(*primary, static_cast<CUfunction_attribute>(i % 2), 200 + i);
    function.set_on_device(0, static_cast<CUfunction_attribute>(1 - i % 2), i);
    for (const int attribute : {0, 1}) {
      const bool is_own = attribute == i % 2;
      EXPECT_EQ(in(*context, attribute), is_own ? 100 + i : i);
      EXPECT_EQ(in(*primary, attribute), is_own ? 200 + i : i);
    }
    EXPECT_EQ(in(*lasting, 0), 7);
    table_->retire(*context, ContextState::kDestroyed);
    table_->retire(*primary, ContextState::kInactive);
    table_->activate(*primary, 0);
    EXPECT_EQ(function.in_context(*primary), of_kernel);
  }
  size_t entries = 0;
  for (const auto* each = function.by_context.load(); each != nullptr; each = each->next.get())
    ++entries;
  EXPECT_EQ(entries, 3u);
}

// What was made in between, when the context could not be used, is not of the new one.
TEST_F(ContextTest, ActivationBeginsAnEpoch) {
  Context* context = table_->primary(0);
  table_->activate(*context, 0);
  table_->retire(*context, ContextState::kInactive);
  const uint32_t between = context->epoch.load();
  table_->activate(*context, 0);
  EXPECT_NE(context->epoch.load(), between);
}

TEST_F(ContextTest, CreatedContextsGetIdsFrom256) {
  Context* context = table_->create(1, 1, 0);
  ASSERT_NE(context, nullptr);
  EXPECT_EQ(context->wire_id, 256);
  EXPECT_EQ(table_->find_wire(256), context);
}

TEST_F(ContextTest, PrimariesOfSessionsMayHaveTheSameWireId) {
  table_->add_primary(2, 0, {nullptr, 1});
  const Context* const second = table_->primary(2);
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(second->device, 2);
  EXPECT_EQ(second->wire_id, 1);
  EXPECT_EQ(rpc::handle_session(second->id), 1u);
  EXPECT_EQ(table_->find_wire(1, 0), table_->primary(0));
  EXPECT_EQ(table_->find_wire(1, 1), second);
  EXPECT_EQ(table_->find_wire(2, 1), nullptr);
  const Context* const created = table_->create(2, 0, 0, {nullptr, 1});
  EXPECT_EQ(table_->find_wire(created->wire_id, 1), created);
  EXPECT_EQ(table_->find_wire(created->wire_id, 0), nullptr);
}

TEST_F(ContextTest, ContextsOfALostSessionFail) {
  table_->add_primary(2, 0, {nullptr, 1});
  table_->add_primary(3, 1, {nullptr, 1});
  Context *const here = table_->primary(1), *const lost = table_->primary(2),
                 *const late = table_->primary(3);
  table_->activate(*here, 0);
  table_->activate(*lost, 0);
  Context* const created = table_->create(3, 1, 0, {nullptr, 1});
  table_->lose(1);
  table_->activate(*late, 0);
  for (const Context* context : {lost, late, created})
    EXPECT_EQ(context->sticky.load(), CUDA_ERROR_DEVICE_UNAVAILABLE);
  EXPECT_EQ(here->sticky.load(), CUDA_SUCCESS);
}

TEST_F(ContextTest, WireIdsOfDestroyedContextsComeBackHandlesDoNot) {
  Context* kept = table_->create(0, 0, 0);
  table_->activate(*kept, 0);
  uint64_t first_handle = 0;
  for (int i = 0; i < 70000; ++i) {
    Context* context = table_->create(0, 0, 0);
    ASSERT_NE(context, nullptr) << i;
    EXPECT_NE(context->wire_id, kept->wire_id);
    if (i == 0) first_handle = context->id;
    if (i > 0) {
      ASSERT_NE(context->id, first_handle);
    }
    context->state.store(ContextState::kDestroyed);
  }
}

// Contexts that come and go take no more slots than a table has.
TEST_F(ContextTest, DestroyedContextsGiveTheirSlotsBack) {
  HandleTable handles({.slots = 1100});
  ContextTable table(handles);
  Context* first = nullptr;
  for (int i = 0; i < 3000; ++i) {
    Context* context = table.create(0, 0, 0);
    ASSERT_NE(context, nullptr) << i;
    if (i == 0) first = context;
    table.activate(*context, 0);
    table.retire(*context, ContextState::kDestroyed);
    EXPECT_EQ(table.find(context->handle()), context) << "the last ones are known as destroyed";
  }
  EXPECT_EQ(table.find(first->handle()), nullptr);
  EXPECT_EQ(first->state.load(), ContextState::kDestroyed) << "some thread may have it";
}

TEST_F(ContextTest, NoContextWithoutASlot) {
  HandleTable handles({.slots = 3});
  ContextTable table(handles);
  EXPECT_NE(table.create(0, 0, 0), nullptr);
  EXPECT_NE(table.create(0, 0, 0), nullptr);
  EXPECT_EQ(table.create(0, 0, 0), nullptr);
}

TEST_F(ContextTest, StackOfTheThread) {
  Context *a = table_->primary(0), *b = table_->primary(1);
  EXPECT_EQ(current_context(), nullptr);
  push_context(a);
  push_context(b);
  EXPECT_EQ(current_context(), b);
  std::thread([] { EXPECT_EQ(current_context(), nullptr); }).join();
  set_current_context(a);
  EXPECT_EQ(pop_context(), a);
  EXPECT_EQ(current_context(), a);
  set_current_context(nullptr);
  EXPECT_EQ(current_context(), nullptr);
  EXPECT_EQ(pop_context(), nullptr);
}

TEST_F(ContextTest, ScopeLeavesTheStackAlone) {
  push_context(table_->primary(0));
  {
    ContextScope scope(table_->primary(1));
    EXPECT_EQ(current_context(), table_->primary(1));
  }
  EXPECT_EQ(current_context(), table_->primary(0));
}

TEST(Sticky, ExecutionErrorsOnly) {
  EXPECT_TRUE(is_sticky(CUDA_ERROR_ILLEGAL_ADDRESS));
  EXPECT_TRUE(is_sticky(CUDA_ERROR_ASSERT));
  EXPECT_TRUE(is_sticky(CUDA_ERROR_LAUNCH_FAILED));
  EXPECT_FALSE(is_sticky(CUDA_SUCCESS));
  EXPECT_FALSE(is_sticky(CUDA_ERROR_INVALID_VALUE));
  EXPECT_FALSE(is_sticky(CUDA_ERROR_OUT_OF_MEMORY));
  EXPECT_FALSE(is_sticky(CUDA_ERROR_NOT_READY));
}

}  // namespace
}  // namespace fargpu::client
