#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "server/memory/physical_memory.h"
#include "server/object/handle_table.h"
#include "server/object/ledger.h"
#include "server/object/pending.h"

namespace fargpu::server {
namespace {

using rpc::HandleKind;
using rpc::make_handle;

void* fake(uint64_t value) { return reinterpret_cast<void*>(value); }

TEST(HandleTable, FindsWhatWasAddedAndNothingElse) {
  HandleTable table;
  const uint64_t id = make_handle(HandleKind::kStream, 1);
  ASSERT_EQ(table.add(HandleKind::kStream, id, {fake(7), 0, 1}), CUDA_SUCCESS);
  void* found = nullptr;
  EXPECT_EQ(table.find(HandleKind::kStream, id, &found), CUDA_SUCCESS);
  EXPECT_EQ(found, fake(7));
  EXPECT_EQ(table.find(HandleKind::kEvent, id, &found), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(table.find(HandleKind::kStream, make_handle(HandleKind::kStream, 2), &found),
            CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(table.find(HandleKind::kStream, 0xffffffffffffffff, &found), CUDA_ERROR_INVALID_HANDLE);
  table.remove(id);
  EXPECT_EQ(table.find(HandleKind::kStream, id, &found), CUDA_ERROR_INVALID_HANDLE);
}

TEST(HandleTable, RefusesIdsThatAreTakenMalformedOrOfAnotherKind) {
  HandleTable table;
  const uint64_t id = make_handle(HandleKind::kEvent, 5);
  ASSERT_EQ(table.add(HandleKind::kEvent, id, {fake(1), 0, 1}), CUDA_SUCCESS);
  EXPECT_EQ(table.add(HandleKind::kEvent, id, {fake(2), 0, 1}), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(table.add(HandleKind::kEvent, id | 1, {fake(2), 0, 1}), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(table.add(HandleKind::kEvent, 0, {fake(2), 0, 1}), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(table.add(HandleKind::kEvent, make_handle(HandleKind::kEvent, 0), {fake(2), 0, 1}),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(table.add(HandleKind::kStream, make_handle(HandleKind::kEvent, 6), {fake(2), 0, 1}),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(table.add(HandleKind::kEvent, make_handle(HandleKind::kEvent, 6) | (uint64_t{1} << 63),
                      {fake(2), 0, 1}),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(table.size(), 1u);
}

// The number of a session is the client's business: ids that differ in it are different ids.
TEST(HandleTable, IdsOfAnySessionOfTheClientAreTaken) {
  HandleTable table(10);
  const uint64_t first = make_handle(HandleKind::kEvent, 5, 0);
  const uint64_t last = make_handle(HandleKind::kEvent, 5, 255);
  ASSERT_EQ(table.add(HandleKind::kEvent, last, {fake(1), 0, 1}), CUDA_SUCCESS);
  void* found = nullptr;
  EXPECT_EQ(table.find(HandleKind::kEvent, last, &found), CUDA_SUCCESS);
  EXPECT_EQ(table.find(HandleKind::kEvent, first, &found), CUDA_ERROR_INVALID_HANDLE);
}

TEST(HandleTable, ChildrenGoWithTheirParent) {
  HandleTable table;
  const uint64_t module = make_handle(HandleKind::kModule, 1),
                 other = make_handle(HandleKind::kModule, 2);
  ASSERT_EQ(table.add(HandleKind::kModule, module, {fake(1), 0, 1}), CUDA_SUCCESS);
  ASSERT_EQ(table.add(HandleKind::kModule, other, {fake(2), 0, 1}), CUDA_SUCCESS);
  for (uint64_t i = 1; i <= 3; ++i) {
    ASSERT_EQ(table.add(HandleKind::kFunction, make_handle(HandleKind::kFunction, i),
                        {fake(10 + i), module, 1}),
              CUDA_SUCCESS);
  }
  ASSERT_EQ(
      table.add(HandleKind::kFunction, make_handle(HandleKind::kFunction, 9), {fake(19), other, 1}),
      CUDA_SUCCESS);
  table.remove(make_handle(HandleKind::kFunction, 2));  // a child may go first
  table.remove(module);
  EXPECT_EQ(table.size(), 2u);
  void* found = nullptr;
  EXPECT_EQ(table.find(HandleKind::kFunction, make_handle(HandleKind::kFunction, 9), &found),
            CUDA_SUCCESS);
}

TEST(HandleTable, AFullTableIsOutOfMemoryUntilSomethingGoes) {
  HandleTable table(2);
  const auto add = [&](uint64_t serial) {
    return table.add(HandleKind::kEvent, make_handle(HandleKind::kEvent, serial),
                     {fake(serial), 0, 1});
  };
  EXPECT_EQ(add(1), CUDA_SUCCESS);
  EXPECT_EQ(add(2), CUDA_SUCCESS);
  EXPECT_EQ(add(3), CUDA_ERROR_OUT_OF_MEMORY);
  table.remove(make_handle(HandleKind::kEvent, 1));
  EXPECT_EQ(add(3), CUDA_SUCCESS);
}

TEST(HandleTable, TellsOfEveryObjectThatGoes) {
  HandleTable table;
  std::set<uint64_t> gone;
  table.when_ended([&](const ObjectEnd& end) { EXPECT_TRUE(gone.insert(end.id).second); });
  const uint64_t module = make_handle(HandleKind::kModule, 1);
  std::set<uint64_t> all{module, make_handle(HandleKind::kEvent, 9)};
  ASSERT_EQ(table.add(HandleKind::kModule, module, {fake(1), 0, 1}), CUDA_SUCCESS);
  for (uint64_t i = 2; i <= 4; ++i) {
    const uint64_t function = make_handle(HandleKind::kFunction, i);
    ASSERT_EQ(table.add(HandleKind::kFunction, function, {fake(i), module, 1}), CUDA_SUCCESS);
    all.insert(function);
  }
  ASSERT_EQ(table.add(HandleKind::kEvent, make_handle(HandleKind::kEvent, 9), {fake(9), 0, 1}),
            CUDA_SUCCESS);
  table.remove(module);
  EXPECT_EQ(gone.size(), 4u);
  table.remove_context(1);
  EXPECT_EQ(gone, all);
}

TEST(HandleTable, WhatWasMadeFromSomethingEndsWithIt) {
  HandleTable table;
  std::vector<uint64_t> ended;
  table.when_ended([&](const ObjectEnd& end) { ended.push_back(end.id); });
  const uint64_t library = make_handle(HandleKind::kLibrary, 1),
                 kernel = make_handle(HandleKind::kKernel, 2),
                 of_kernel = make_handle(HandleKind::kFunction, 3),
                 module = make_handle(HandleKind::kModule, 4),
                 of_module = make_handle(HandleKind::kFunction, 5);
  ASSERT_EQ(table.add(HandleKind::kLibrary, library, {fake(1), 0, 1}), CUDA_SUCCESS);
  ASSERT_EQ(table.add(HandleKind::kKernel, kernel, {fake(2), library, 1}), CUDA_SUCCESS);
  ASSERT_EQ(table.add(HandleKind::kFunction, of_kernel, {fake(3), kernel, 1}), CUDA_SUCCESS);
  ASSERT_EQ(table.add(HandleKind::kModule, module, {fake(4), library, 1}), CUDA_SUCCESS);
  ASSERT_EQ(table.add(HandleKind::kFunction, of_module, {fake(5), module, 1}), CUDA_SUCCESS);
  EXPECT_EQ(table.context_of(kernel), 0) << "a kernel outlives contexts";
  EXPECT_EQ(table.context_of(of_kernel), 1);
  table.remove(library);
  EXPECT_EQ(table.size(), 0u);
  EXPECT_EQ(std::set<uint64_t>(ended.begin(), ended.end()),
            (std::set<uint64_t>{library, kernel, of_kernel, module, of_module}));
  EXPECT_EQ(ended.size(), 5u);
}

TEST(HandleTable, RefusesAParentThatCannotBeOneOrIsNotThere) {
  HandleTable table;
  const uint64_t library = make_handle(HandleKind::kLibrary, 1),
                 stream = make_handle(HandleKind::kStream, 2);
  ASSERT_EQ(table.add(HandleKind::kLibrary, library, {fake(1), 0, 1}), CUDA_SUCCESS);
  ASSERT_EQ(table.add(HandleKind::kStream, stream, {fake(2), 0, 1}), CUDA_SUCCESS);
  const auto add = [&](HandleKind kind, uint64_t parent) {
    return table.add(kind, make_handle(kind, 9), {fake(9), parent, 1});
  };
  EXPECT_EQ(add(HandleKind::kFunction, library), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(add(HandleKind::kFunction, stream), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(add(HandleKind::kEvent, stream), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(add(HandleKind::kKernel, make_handle(HandleKind::kLibrary, 7)),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(table.size(), 2u);
}

TEST(HandleTable, WhatOutlivesAContextStays) {
  HandleTable table;
  const uint64_t pool = make_handle(HandleKind::kMemPool, 1),
                 event = make_handle(HandleKind::kEvent, 2);
  std::vector<ObjectEnd> ended;
  table.when_ended([&](const ObjectEnd& end) { ended.push_back(end); });
  ASSERT_EQ(table.add(HandleKind::kMemPool, pool, {fake(1), 0, 1}), CUDA_SUCCESS);
  ASSERT_EQ(table.add(HandleKind::kEvent, event, {fake(2), 0, 1}), CUDA_SUCCESS);
  table.remove_context(1);
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].id, event);
  EXPECT_EQ(ended[0].handle, fake(2));
  EXPECT_EQ(ended[0].context, 1);
  EXPECT_NE(table.find(pool), nullptr);
}

TEST(HandleTable, AContextTakesItsObjectsAlong) {
  HandleTable table;
  for (uint64_t i = 1; i <= 4; ++i) {
    const auto context = static_cast<uint16_t>(i % 2 + 1);
    ASSERT_EQ(
        table.add(HandleKind::kStream, make_handle(HandleKind::kStream, i), {fake(i), 0, context}),
        CUDA_SUCCESS);
  }
  ASSERT_EQ(table.add(HandleKind::kEvent, make_handle(HandleKind::kEvent, 1), {fake(9), 0, 1}),
            CUDA_SUCCESS);
  EXPECT_EQ(table.streams(1).size(), 2u);
  table.remove_context(1);
  EXPECT_EQ(table.size(), 2u);
  EXPECT_TRUE(table.streams(1).empty());
  EXPECT_EQ(table.streams(2).size(), 2u);
}

TEST(Ledger, HoldsTheLimitOnEachDevice) {
  Ledger ledger(2, 1000);
  EXPECT_EQ(ledger.charge(0, 600), CUDA_SUCCESS);
  EXPECT_EQ(ledger.charge(0, 401), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(ledger.charge(0, 400), CUDA_SUCCESS);
  EXPECT_EQ(ledger.charge(0, 1), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(ledger.charge(1, 1000), CUDA_SUCCESS);
  EXPECT_EQ(ledger.charge(2, 1), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(ledger.used_everywhere(), 2000u);
  ledger.refund(0, 400);
  EXPECT_EQ(ledger.charge(0, 400), CUDA_SUCCESS);
}

TEST(Ledger, SizesThatOverflowAreOverTheLimit) {
  Ledger limited(1, 1000), unlimited(1, 0);
  ASSERT_EQ(limited.charge(0, 10), CUDA_SUCCESS);
  EXPECT_EQ(limited.charge(0, UINT64_MAX), CUDA_ERROR_OUT_OF_MEMORY);
  ASSERT_EQ(unlimited.charge(0, 10), CUDA_SUCCESS);
  EXPECT_EQ(unlimited.charge(0, UINT64_MAX), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(unlimited.charge(0, uint64_t{1} << 50), CUDA_SUCCESS);
}

TEST(Ledger, RefundsOnceWhatIsForgotten) {
  Ledger ledger(1, 1000);
  ASSERT_EQ(ledger.charge(0, 300), CUDA_SUCCESS);
  ledger.remember(0x1000, 300, 0, 1);
  EXPECT_TRUE(ledger.forget(0x1000));
  EXPECT_FALSE(ledger.forget(0x1000));
  EXPECT_FALSE(ledger.forget(0x1001));
  EXPECT_EQ(ledger.used(0), 0u);
  ledger.refund(0, 5000);
  EXPECT_EQ(ledger.used(0), 0u);
}

TEST(Ledger, AContextsAllocationsGoWithIt) {
  Ledger ledger(1, 1000);
  ASSERT_EQ(ledger.charge(0, 600), CUDA_SUCCESS);
  ledger.remember(0x1000, 100, 0, 1);
  ledger.remember(0x2000, 200, 0, 2);
  ledger.remember(0x3000, 300, 0, 1);
  ledger.forget_context(1);
  EXPECT_EQ(ledger.used(0), 200u);
  EXPECT_EQ(ledger.allocations(), 1u);
}

TEST(Ledger, AnAddressGivenOutAgainIsCountedOnce) {
  Ledger ledger(1, 1000);
  ASSERT_EQ(ledger.charge(0, 100), CUDA_SUCCESS);
  ledger.remember(0x1000, 100, 0, 1);
  ASSERT_EQ(ledger.charge(0, 50), CUDA_SUCCESS);
  ledger.remember(0x1000, 50, 0, 1);
  EXPECT_EQ(ledger.used(0), 50u);
}

// The driver frees on another thread, gives the address out again, and only then do we hear of it.
TEST(Ledger, AFreeThatEndsAfterItsAddressWasGivenOutAgain) {
  Ledger ledger(2, 1000);
  ASSERT_EQ(ledger.charge(1, 300), CUDA_SUCCESS);
  ledger.remember(0x1000, 300, 1, 1);
  const auto free = ledger.begin_free(0x1000);
  ASSERT_NE(free, 0u);
  EXPECT_FALSE(ledger.find(0x1000, 1));
  EXPECT_EQ(ledger.used(1), 300u) << "the driver has it still";
  ASSERT_EQ(ledger.charge(0, 200), CUDA_SUCCESS);
  ledger.remember(0x1000, 200, 0, 2);
  ledger.end_free(free, 0x1000, true);
  EXPECT_EQ(ledger.used(1), 0u);
  EXPECT_EQ(ledger.used(0), 200u);
  const auto found = ledger.find(0x1000, 200);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->context, 2u);
}

TEST(Ledger, AFreeThatFailsChangesNothing) {
  Ledger ledger(1, 1000);
  ASSERT_EQ(ledger.charge(0, 300), CUDA_SUCCESS);
  ledger.remember(0x1000, 300, 0, 1);
  EXPECT_EQ(ledger.begin_free(0x1001), 0u);
  ledger.end_free(ledger.begin_free(0x1000), 0x1000, false);
  EXPECT_TRUE(ledger.find(0x1000, 300));
  EXPECT_EQ(ledger.used(0), 300u);
  EXPECT_TRUE(ledger.forget(0x1000));
  EXPECT_EQ(ledger.used(0), 0u);
}

TEST(Ledger, AContextThatGoesDuringAFreeTakesTheMemoryAlong) {
  for (const bool freed : {false, true}) {
    Ledger ledger(1, 1000);
    ASSERT_EQ(ledger.charge(0, 300), CUDA_SUCCESS);
    ledger.remember(0x1000, 300, 0, 1);
    const auto free = ledger.begin_free(0x1000);
    ledger.forget_context(1);
    EXPECT_EQ(ledger.used(0), 0u);
    ledger.end_free(free, 0x1000, freed);
    EXPECT_EQ(ledger.used(0), 0u);
    EXPECT_EQ(ledger.allocations(), 0u);
  }
}

// Two threads free the same memory: the driver may execute the second one first.
TEST(Ledger, TheFreeThatTheDriverRefusesMayBeTheFirst) {
  Ledger ledger(1, 1000);
  ASSERT_EQ(ledger.charge(0, 300), CUDA_SUCCESS);
  ledger.remember(0x1000, 300, 0, 1);
  const auto first = ledger.begin_free(0x1000), second = ledger.begin_free(0x1000);
  EXPECT_EQ(second, 0u);
  ledger.end_free(second, 0x1000, true);
  EXPECT_EQ(ledger.used(0), 0u);
  ledger.end_free(first, 0x1000, false);
  EXPECT_EQ(ledger.used(0), 0u);
  EXPECT_EQ(ledger.allocations(), 0u);
}

TEST(Ledger, MemoryOfNoContextOutlivesAllOfThem) {
  Ledger ledger(1, 1000);
  ASSERT_EQ(ledger.charge(0, 300), CUDA_SUCCESS);
  ledger.remember(0x1000, 300, 0, 0);
  ledger.forget_context(1);
  ledger.forget_context(0);
  EXPECT_EQ(ledger.used(0), 300u);
}

TEST(Ledger, WhatPoolsKeepIsChargedUntilTheyGiveItBack) {
  Ledger ledger(1, 1000);
  ASSERT_EQ(ledger.charge(0, 300), CUDA_SUCCESS);
  ledger.allocated(0, 300, Ledger::Keeper::kPools);
  ledger.remember(0x1000, 300, 0, 0, Ledger::Keeper::kPools);
  ledger.settle(0, Ledger::Keeper::kPools, 320);  // in pieces of the driver's
  EXPECT_EQ(ledger.used(0), 320u);
  ledger.forget(0x1000);
  EXPECT_EQ(ledger.used(0), 320u);
  EXPECT_EQ(ledger.charge(0, 700), CUDA_ERROR_OUT_OF_MEMORY);
  ledger.settle(0, Ledger::Keeper::kPools, 320);
  EXPECT_EQ(ledger.kept(0), 320u);
  ledger.settle(0, Ledger::Keeper::kPools, 0);
  EXPECT_EQ(ledger.used(0), 0u);
  EXPECT_EQ(ledger.charge(0, 1000), CUDA_SUCCESS);
}

TEST(Ledger, WhatGraphsKeepIsNoPoolsMemory) {
  Ledger ledger(1, 1000);
  ASSERT_EQ(ledger.charge(0, 300), CUDA_SUCCESS);
  ledger.allocated(0, 300, Ledger::Keeper::kGraphs);
  ledger.settle(0, Ledger::Keeper::kPools, 200);
  EXPECT_EQ(ledger.used(0), 500u);
  ledger.given_back(0, 300, Ledger::Keeper::kGraphs);
  ledger.settle(0, Ledger::Keeper::kPools, 0);
  EXPECT_EQ(ledger.used(0), 300u);
  EXPECT_TRUE(ledger.keeps());
  ledger.settle(0, Ledger::Keeper::kGraphs, 0);
  EXPECT_EQ(ledger.used(0), 0u);
  EXPECT_FALSE(ledger.keeps());
}

using Refunds = PhysicalMemory::Refunds;

TEST(PhysicalMemory, GoesWithItsLastHandleOrMappingToItsDevice) {
  PhysicalMemory memory;
  memory.created(7, 1, 4096);
  memory.mapped(0x10000, 4096, 7);
  EXPECT_EQ(memory.released(7), Refunds{});
  EXPECT_EQ(memory.end_unmap(memory.begin_unmap(0x10000, 4096), true), (Refunds{{1, 4096}}));
  memory.created(8, 0, 100);
  EXPECT_EQ(memory.released(8), (Refunds{{0, 100}}));
  EXPECT_EQ(memory.released(8), Refunds{});
}

TEST(PhysicalMemory, AnUnmapThatEndsAfterOthersMappedThere) {
  PhysicalMemory memory;
  memory.created(7, 0, 4096);
  memory.mapped(0x10000, 4096, 7);
  EXPECT_EQ(memory.released(7), Refunds{});
  const auto unmap = memory.begin_unmap(0x10000, 4096);
  memory.created(8, 1, 8192);
  memory.mapped(0x10000, 8192, 8);
  EXPECT_EQ(memory.released(8), Refunds{});
  EXPECT_EQ(memory.end_unmap(unmap, true), (Refunds{{0, 4096}}));
  EXPECT_EQ(memory.end_unmap(memory.begin_unmap(0x10000, 8192), true), (Refunds{{1, 8192}}));
}

TEST(PhysicalMemory, AnUnmapThatFailsChangesNothing) {
  PhysicalMemory memory;
  memory.created(7, 0, 4096);
  memory.mapped(0x10000, 4096, 7);
  EXPECT_EQ(memory.released(7), Refunds{});
  EXPECT_EQ(memory.end_unmap(memory.begin_unmap(0x10000, 4096), false), Refunds{});
  EXPECT_EQ(memory.end_unmap(memory.begin_unmap(0x10000, 4096), true), (Refunds{{0, 4096}}));
}

TEST(PhysicalMemory, AHandleRetainedFromAMappingCounts) {
  PhysicalMemory memory;
  memory.created(7, 0, 4096);
  memory.mapped(0x10000, 4096, 7);
  EXPECT_EQ(memory.released(7), Refunds{});
  const auto unmap = memory.begin_unmap(0x10000, 4096);
  memory.retained(9, 0x10800);   // before the driver unmapped it
  memory.retained(10, 0x11000);  // nothing is there
  EXPECT_EQ(memory.end_unmap(unmap, true), Refunds{});
  EXPECT_EQ(memory.released(10), Refunds{});
  EXPECT_EQ(memory.released(9), (Refunds{{0, 4096}}));
}

TEST(PendingList, PollsAllInOrderAndDropsWhatIsDone) {
  PendingList pending;
  std::vector<int> order;
  int rounds = 0;
  pending.add([&] {
    order.push_back(1);
    return ++rounds == 2;
  });
  pending.add([&] {
    order.push_back(2);
    return true;
  });
  EXPECT_EQ(pending.poll(), 1u);
  EXPECT_EQ(pending.poll(), 1u);
  EXPECT_TRUE(pending.empty());
  EXPECT_EQ(order, (std::vector<int>{1, 2, 1}));
}

// A deferred free may defer something else when its turn comes.
TEST(PendingList, APollMayAddAnother) {
  PendingList pending;
  bool second = false;
  pending.add([&] {
    pending.add([&] { return second = true; });
    return true;
  });
  EXPECT_EQ(pending.poll(), 2u);
  EXPECT_TRUE(second);
  EXPECT_TRUE(pending.empty());
}

TEST(Ledger, FindsTheAllocationThatHoldsARange) {
  Ledger ledger(2, 0);
  ledger.remember(0x1000, 0x100, 0, 1);
  ledger.remember(0x2000, 0x200, 1, 7);
  EXPECT_FALSE(ledger.find(0xfff, 1));
  EXPECT_FALSE(ledger.find(0x1100, 1));
  EXPECT_FALSE(ledger.find(0x1080, 0x81));
  EXPECT_FALSE(ledger.find(0x2000, ~uint64_t{0}));
  const auto found = ledger.find(0x2100, 0x100);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->base, 0x2000u);
  EXPECT_EQ(found->bytes, 0x200u);
  EXPECT_EQ(found->device, 1u);
  EXPECT_EQ(found->context, 7u);
  ledger.forget(0x2000);
  EXPECT_FALSE(ledger.find(0x2100, 1));
}

TEST(PhysicalMemory, IsReachedByWhatWasNotImported) {
  PhysicalMemory memory;
  memory.created(9, 0, 4096);
  const uint64_t shared = memory.share(9);
  for (const uint64_t import : {3, 30}) EXPECT_TRUE(memory.imported_again(import, shared));
  EXPECT_EQ(memory.reach(shared)->handle, 9u);
  memory.mapped(0x10000, 4096, 9);
  EXPECT_EQ(memory.released(9), Refunds{});
  EXPECT_EQ(memory.reach(shared)->handle, 0u);
  EXPECT_EQ(memory.reach(shared)->address, 0x10000u);
  EXPECT_EQ(memory.end_unmap(memory.begin_unmap(0x10000, 4096), true), Refunds{});
  EXPECT_EQ(memory.released(3), Refunds{});
  EXPECT_EQ(memory.released(30), (Refunds{{0, 4096, shared}}));
  EXPECT_FALSE(memory.reach(shared));
}

TEST(PhysicalMemory, TheMakerPaysUntilAnImporterTakesOver) {
  PhysicalMemory maker, importer;
  maker.created(7, 1, 4096);
  const uint64_t shared = maker.share(7);
  EXPECT_EQ(maker.share(7), shared);
  EXPECT_EQ(maker.share(8), 0u);
  maker.mapped(0x10000, 4096, 7);
  EXPECT_EQ(maker.reach(shared)->handle, 7u);
  EXPECT_EQ(maker.released(7), PhysicalMemory::Refunds{});
  EXPECT_EQ(maker.reach(shared)->address, 0x10000u);  // by the mapping alone
  EXPECT_EQ(maker.end_unmap(maker.begin_unmap(0x10000, 4096), true),
            (PhysicalMemory::Refunds{{1, 4096, shared}}));
  EXPECT_FALSE(maker.reach(shared));

  const uint64_t free = importer.imported(3, 1);
  EXPECT_TRUE(importer.imported_again(4, free));
  EXPECT_EQ(importer.released(3), PhysicalMemory::Refunds{});
  EXPECT_TRUE(importer.take_over(free, 4096));
  EXPECT_FALSE(importer.take_over(free, 4096));  // once
  EXPECT_EQ(importer.released(4), (PhysicalMemory::Refunds{{1, 4096, free}}));
  EXPECT_FALSE(importer.imported_again(5, free));
}

}  // namespace
}  // namespace fargpu::server
