#include "client/handle_table.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>
#include <vector>

namespace fargpu::client {
namespace {

using rpc::HandleKind;

uint64_t make(HandleTable& table, HandleKind kind, Context* context = nullptr) {
  auto object = std::make_unique<Object>();
  object->id = table.reserve(kind);
  object->context = context;
  return table.publish(std::move(object))->id;
}

TEST(HandleTable, ReservedIsNotLive) {
  HandleTable table;
  const uint64_t id = table.reserve(HandleKind::kEvent);
  EXPECT_EQ(table.find(HandleKind::kEvent, id), nullptr);
}

TEST(HandleTable, FindsExactlyTheKind) {
  HandleTable table;
  const uint64_t id = make(table, HandleKind::kStream);
  EXPECT_NE(table.find(HandleKind::kStream, id), nullptr);
  EXPECT_EQ(table.find(HandleKind::kEvent, id), nullptr);
  EXPECT_EQ(table.find(HandleKind::kStream, id + 1), nullptr);
}

TEST(HandleTable, AnyValueIsSafe) {
  HandleTable table;
  make(table, HandleKind::kStream);
  for (const uint64_t value :
       {uint64_t{0}, uint64_t{1}, uint64_t{2}, UINT64_MAX, uint64_t{0x7fff12345678},
        rpc::make_handle(HandleKind::kStream, (uint64_t{1} << 36) - 1)}) {
    EXPECT_EQ(table.find(HandleKind::kStream, value), nullptr) << value;
  }
}

TEST(HandleTable, DestroyedStaysDestroyedAndIdsAreNotReused) {
  HandleTable table;
  std::set<uint64_t> seen;
  for (int i = 0; i < 20000; ++i) {
    const uint64_t id = make(table, HandleKind::kEvent);
    EXPECT_TRUE(seen.insert(id).second);
    EXPECT_TRUE(table.erase(id));
    EXPECT_FALSE(table.erase(id));
    EXPECT_EQ(table.find(HandleKind::kEvent, id), nullptr);
  }
}

TEST(HandleTable, ErasedRecordStaysReadable) {
  HandleTable table;
  const uint64_t id = make(table, HandleKind::kEvent);
  const Object* object = table.find(HandleKind::kEvent, id);
  table.erase(id);
  for (int i = 0; i < 100; ++i) table.erase(make(table, HandleKind::kEvent));
  EXPECT_EQ(object->id, id);
}

TEST(HandleTable, EraseIf) {
  HandleTable table;
  auto* context = reinterpret_cast<Context*>(0x10);
  const uint64_t mine = make(table, HandleKind::kEvent, context);
  const uint64_t other = make(table, HandleKind::kEvent);
  EXPECT_EQ(table.erase_if([&](const Object& o) { return o.context == context; }), 1u);
  EXPECT_EQ(table.find(HandleKind::kEvent, mine), nullptr);
  EXPECT_NE(table.find(HandleKind::kEvent, other), nullptr);
}

TEST(HandleTable, ThreadsGetDistinctIds) {
  HandleTable table;
  std::vector<std::vector<uint64_t>> ids(4);
  std::vector<std::thread> threads;
  for (auto& mine : ids) {
    threads.emplace_back([&table, &mine] {
      for (int i = 0; i < 5000; ++i) mine.push_back(make(table, HandleKind::kStream));
    });
  }
  for (auto& thread : threads) thread.join();
  std::set<uint64_t> all;
  for (const auto& mine : ids) {
    for (const uint64_t id : mine) {
      EXPECT_TRUE(all.insert(id).second);
      EXPECT_NE(table.find(HandleKind::kStream, id), nullptr);
    }
  }
}

}  // namespace
}  // namespace fargpu::client
