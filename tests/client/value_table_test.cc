#include "client/object/value_table.h"

#include <gtest/gtest.h>

namespace fargpu::client {
namespace {

const Session* session(uint64_t number) { return reinterpret_cast<const Session*>(number << 8); }

TEST(ValueTable, NoIdIsAValue) {
  EXPECT_TRUE(ValueTable::is_distinct(0x7fc3eac74400));
  EXPECT_FALSE(ValueTable::is_distinct(0));
  for (unsigned serial = 0; serial < 100; ++serial)
    EXPECT_FALSE(
        ValueTable::is_distinct(rpc::make_handle(rpc::HandleKind::kGraphExec, serial, serial)));
}

TEST(ValueTable, FindsByValueAndSession) {
  ValueTable table;
  EXPECT_EQ(table.find(0x1000, session(1)), 0u);
  table.add(0x1000, session(1), 11);
  table.add(0x1000, session(2), 12);
  table.add(0x2000, session(2), 22);
  EXPECT_EQ(table.find(0x1000, session(1)), 11u);
  EXPECT_EQ(table.find(0x1000, session(2)), 12u);
  EXPECT_EQ(table.find(0x2000, session(1)), 22u);  // of another server than the current one's
  EXPECT_EQ(table.find(0x2000, nullptr), 22u);
  table.erase(0x1000, session(1), 11);
  EXPECT_EQ(table.find(0x1000, session(1)), 12u);
  table.erase(0x1000, session(2), 12);
  EXPECT_EQ(table.find(0x1000, session(1)), 0u);
}

TEST(ValueTable, AValueThatIsUsedAgainIsTheNewerObjects) {
  ValueTable table;
  table.add(0x1000, session(1), 11);
  table.add(0x1000, session(1), 12);
  table.erase(0x1000, session(1), 11);
  EXPECT_EQ(table.find(0x1000, session(1)), 12u);
}

}  // namespace
}  // namespace fargpu::client
