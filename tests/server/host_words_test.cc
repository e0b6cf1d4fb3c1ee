// Words are given to one node at a time, and again only when no launch comes to them any more.
#include "server/stream/host_words.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "generated/server/driver_table.h"

namespace fargpu::server {
namespace {

constexpr uint16_t kContext = 3;

int registrations = 0;

CUresult register_memory(void*, size_t, unsigned) {
  ++registrations;
  return CUDA_SUCCESS;
}
CUresult refuse_memory(void*, size_t, unsigned) { return CUDA_ERROR_OUT_OF_MEMORY; }
CUresult device_pointer(CUdeviceptr* device, void* memory, unsigned) {
  *device = reinterpret_cast<CUdeviceptr>(memory);
  return CUDA_SUCCESS;
}
CUresult add_node(CUgraphNode*, CUgraph, const CUgraphNode*, size_t,
                  const CUDA_BATCH_MEM_OP_NODE_PARAMS*) {
  return CUDA_SUCCESS;
}

class HostWordsTest : public ::testing::Test {
 protected:
  HostWordsTest() {
    registrations = 0;
    driver_.cuMemHostRegister_v2 = register_memory;
    driver_.cuMemHostGetDevicePointer_v2 = device_pointer;
    driver_.cuGraphAddBatchMemOpNode = add_node;
  }
  std::shared_ptr<HostWordPair> take(uint16_t context = kContext) {
    std::shared_ptr<HostWordPair> pair;
    EXPECT_EQ(words_.take(driver_, context, &pair), CUDA_SUCCESS);
    return pair;
  }
  // As the GPU does it.
  static void write(const CUstreamBatchMemOpParams& operation) {
    word(operation) = operation.writeValue.value;
  }
  static uint32_t& word(const CUstreamBatchMemOpParams& operation) {
    return *reinterpret_cast<uint32_t*>(operation.writeValue.address);
  }

  DriverTable driver_{};
  HostWords words_;
};

TEST_F(HostWordsTest, ANodeIsReachedOnceALaunchAndWaitsUntilItIsLetGo) {
  const auto pair = take();
  const auto [reached, waits, takes_back] = pair->operations();
  for (int launch = 0; launch < 2; ++launch) {
    EXPECT_FALSE(pair->take_reached());
    write(reached);
    EXPECT_TRUE(pair->take_reached());
    EXPECT_FALSE(pair->take_reached());
    EXPECT_NE(word(waits), waits.waitValue.value);
    pair->let_go();
    EXPECT_EQ(word(waits), waits.waitValue.value);
    write(takes_back);
    EXPECT_NE(word(waits), waits.waitValue.value);
  }
}

TEST_F(HostWordsTest, WordsAreOfOneNodeAtATime) {
  std::vector<std::shared_ptr<HostWordPair>> pairs;
  std::vector<CUdeviceptr> addresses;
  for (int i = 0; i < 600; ++i) {
    pairs.push_back(take());
    const auto operations = pairs.back()->operations();
    for (const auto& operation : operations) addresses.push_back(operation.writeValue.address);
  }
  std::sort(addresses.begin(), addresses.end());
  addresses.erase(std::unique(addresses.begin(), addresses.end()), addresses.end());
  EXPECT_EQ(addresses.size(), 1200u);
  const int before = registrations;
  pairs.clear();
  for (int i = 0; i < 600; ++i) pairs.push_back(take());
  EXPECT_EQ(registrations, before);
}

TEST_F(HostWordsTest, WordsThatALaunchStillTakesBackAreNotGivenOut) {
  auto pair = take();
  const auto [reached, waits, takes_back] = pair->operations();
  write(reached);
  EXPECT_TRUE(pair->take_reached());
  pair->let_go();
  const CUdeviceptr address = reached.writeValue.address;
  pair.reset();
  std::vector<std::shared_ptr<HostWordPair>> others;
  for (int i = 0; i < 600; ++i) {
    others.push_back(take());
    EXPECT_NE(others.back()->operations()[0].writeValue.address, address);
  }
  write(takes_back);
  bool again = false;
  for (int i = 0; i < 600 && !again; ++i) {
    others.push_back(take());
    again = others.back()->operations()[0].writeValue.address == address;
  }
  EXPECT_TRUE(again);
}

TEST_F(HostWordsTest, WordsOfAnEndedContextAreNotGivenToItsSuccessor) {
  const auto pair = take();
  auto back_late = take();
  words_.context_ended(kContext);
  back_late.reset();
  const auto other = take();
  EXPECT_EQ(registrations, 2);
  pair->let_go();  // harmless
}

TEST_F(HostWordsTest, ADriverThatRefusesIsNotAskedForMore) {
  std::shared_ptr<HostWordPair> pair;
  driver_.cuMemHostRegister_v2 = refuse_memory;
  EXPECT_EQ(words_.take(driver_, kContext, &pair), CUDA_ERROR_OUT_OF_MEMORY);
  driver_.cuGraphAddBatchMemOpNode = nullptr;
  EXPECT_EQ(words_.take(driver_, kContext, &pair), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(pair, nullptr);
}

}  // namespace
}  // namespace fargpu::server
