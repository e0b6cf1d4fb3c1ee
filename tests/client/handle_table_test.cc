#include "client/object/handle_table.h"

#include <gtest/gtest.h>

#include <atomic>
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

TEST(HandleTable, IdsDifferByTheirSession) {
  HandleTable table({.slots = 2});  // one object at a time
  auto object = std::make_unique<Object>();
  const uint64_t first = object->id = table.reserve(HandleKind::kEvent, 255);
  EXPECT_EQ(rpc::handle_session(first), 255u);
  EXPECT_EQ(rpc::handle_kind(first), HandleKind::kEvent);
  EXPECT_EQ(first >> 63, 0u);
  table.publish(std::move(object));
  EXPECT_NE(table.find(HandleKind::kEvent, first), nullptr);
  const uint64_t of_first_session = first & ~(uint64_t{255} << rpc::kSessionShift);
  EXPECT_EQ(table.find(HandleKind::kEvent, of_first_session), nullptr);
  ASSERT_TRUE(table.erase(first));
  const uint64_t next = table.reserve(HandleKind::kEvent);
  EXPECT_EQ(rpc::handle_slot(next), rpc::handle_slot(first));
  EXPECT_EQ(rpc::handle_session(next), 0u);
}

TEST(HandleTable, AnyValueIsSafe) {
  HandleTable table;
  make(table, HandleKind::kStream);
  for (const uint64_t value :
       {uint64_t{0}, uint64_t{1}, uint64_t{2}, UINT64_MAX, uint64_t{0x7fff12345678},
        rpc::make_handle(HandleKind::kStream, (uint64_t{1} << rpc::kSerialBits) - 1)}) {
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

TEST(HandleTable, IdsLeaveRoomAndAreNoSpecialValues) {
  HandleTable table;
  for (int i = 0; i < 3; ++i) {
    const uint64_t id = make(table, HandleKind::kExternalSemaphore);
    EXPECT_EQ(id >> 55, 0u) << "the first session";
    EXPECT_EQ(id & 15, 0u);
    EXPECT_EQ(rpc::handle_kind(id), HandleKind::kExternalSemaphore);
    EXPECT_EQ(rpc::make_handle(rpc::handle_kind(id), rpc::handle_serial(id)), id);
    EXPECT_EQ(rpc::handle_kind(id | uint64_t{1} << 63), HandleKind::kNone);
    EXPECT_EQ(rpc::handle_kind(id | 8), HandleKind::kNone);
    table.erase(id);
  }
}

// Many more objects than slots, one after the other.
TEST(HandleTable, SlotsAreUsedAgainAndIdsAreNot) {
  HandleTable table({.slots = 4, .generations = 1u << 20});
  std::set<uint64_t> seen;
  uint64_t stale = make(table, HandleKind::kEvent);
  table.erase(stale);
  for (int i = 0; i < 10000; ++i) {
    const uint64_t id = make(table, HandleKind::kEvent);
    ASSERT_NE(id, 0u);
    ASSERT_TRUE(seen.insert(id).second);
    EXPECT_EQ(table.find(HandleKind::kEvent, stale), nullptr);
    EXPECT_FALSE(table.erase(stale));
    ASSERT_EQ(table.find(HandleKind::kEvent, id)->id, id);
    table.erase(id);
    stale = id;
  }
}

TEST(HandleTable, AFullTableGivesNoIdUntilSomethingGoes) {
  HandleTable table({.slots = 4});
  std::vector<uint64_t> ids;
  for (int i = 0; i < 3; ++i) ids.push_back(make(table, HandleKind::kStream));
  EXPECT_EQ(table.reserve(HandleKind::kStream), 0u);
  EXPECT_EQ(table.reserve(HandleKind::kEvent), 0u);
  table.erase(ids[1]);
  const uint64_t id = table.reserve(HandleKind::kEvent);
  EXPECT_NE(id, 0u);
  EXPECT_EQ(table.reserve(HandleKind::kEvent), 0u);
  table.give_back(id);
  table.give_back(0);
  const uint64_t next = table.reserve(HandleKind::kEvent);
  EXPECT_NE(next, 0u);
  EXPECT_NE(next, id) << "the server may have seen it";
}

TEST(HandleTable, ASlotRestsAfterItsLastGeneration) {
  HandleTable table({.slots = 4, .generations = 5});
  std::set<uint64_t> seen;
  for (int i = 0; i < 3 * 5; ++i) {
    const uint64_t id = make(table, HandleKind::kEvent);
    EXPECT_TRUE(seen.insert(id).second);
    table.erase(id);
  }
  EXPECT_EQ(table.reserve(HandleKind::kEvent), 0u);
  for (const uint64_t id : seen) EXPECT_EQ(table.find(HandleKind::kEvent, id), nullptr);
}

TEST(HandleTable, ATakenRecordBelongsToTheCaller) {
  HandleTable table;
  const uint64_t id = make(table, HandleKind::kContext);
  const std::unique_ptr<Object> record = table.take(id);
  ASSERT_NE(record, nullptr);
  EXPECT_EQ(record->id, id);
  EXPECT_EQ(table.find(HandleKind::kContext, id), nullptr);
  EXPECT_EQ(table.take(id), nullptr);
}

// Threads look up ids while their slots go from one object to the next: what they find is what they
// asked for.
TEST(HandleTable, LookupsDuringReuseFindTheRightObjectOrNone) {
  HandleTable table({.slots = 4});
  std::atomic<uint64_t> latest{make(table, HandleKind::kEvent)};
  std::atomic<bool> stop{false};
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i) {
    readers.emplace_back([&] {
      uint64_t stale = 0;
      while (!stop) {
        const uint64_t id = latest;
        for (const uint64_t asked : {id, stale}) {
          const Object* found = table.find(rpc::handle_kind(asked), asked);
          if (found != nullptr) {
            EXPECT_EQ(found->id, asked);
          }
        }
        stale = id;
      }
    });
  }
  // Few enough that no record is freed: a reader may rest between its lookup and its look.
  constexpr int kErasures = 4000;
  for (int i = 0; i < kErasures; ++i) {
    const uint64_t id = make(table, i % 2 == 0 ? HandleKind::kStream : HandleKind::kEvent);
    table.erase(latest.exchange(id));
  }
  stop = true;
  for (std::thread& reader : readers) reader.join();
}

TEST(HandleTable, ErasedRecordStaysReadable) {
  HandleTable table;
  const uint64_t id = make(table, HandleKind::kEvent);
  const Object* object = table.find(HandleKind::kEvent, id);
  table.erase(id);
  for (int i = 0; i < 100; ++i) table.erase(make(table, HandleKind::kEvent));
  EXPECT_EQ(object->id, id);
}

TEST(HandleTable, TakeIf) {
  HandleTable table;
  auto* context = reinterpret_cast<Context*>(0x10);
  const uint64_t mine = make(table, HandleKind::kEvent, context);
  const uint64_t other = make(table, HandleKind::kEvent);
  auto taken = table.take_if([&](const Object& o) { return o.context == context; });
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_EQ(taken[0]->id, mine);
  table.bury(std::move(taken[0]));
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
