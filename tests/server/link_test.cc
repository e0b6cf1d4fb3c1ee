// Links on a driver that only notes what it is asked.
#include "server/image/link.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "generated/server/driver_table.h"
#include "server/image/mapped_image.h"

namespace fargpu::server {
namespace {

// The driver's side of the one link that a test makes.
struct FakeState {
  int alive = 0;
  unsigned inputs = 0;
  char* errors = nullptr;
  std::map<int, uint64_t> options;    // of the link and of its inputs
  std::set<std::thread::id> threads;  // that have called, and their contexts
  std::set<CUcontext> contexts;
} fake;

thread_local CUcontext current = nullptr;

void note_caller() {
  fake.threads.insert(std::this_thread::get_id());
  fake.contexts.insert(current);
}

void note(unsigned count, const CUjit_option* options, void* const* values) {
  for (unsigned i = 0; i < count; ++i)
    fake.options[options[i]] = reinterpret_cast<uint64_t>(values[i]);
}

DriverTable fake_driver() {
  DriverTable driver;
  driver.cuCtxGetCurrent = [](CUcontext* context) {
    *context = current;
    return CUDA_SUCCESS;
  };
  driver.cuCtxSetCurrent = [](CUcontext context) {
    current = context;
    return CUDA_SUCCESS;
  };
  driver.cuLinkCreate_v2 = [](unsigned count, CUjit_option* options, void** values,
                              CUlinkState* state) {
    for (unsigned i = 0; i < count; ++i) {
      if (options[i] == CU_JIT_ERROR_LOG_BUFFER) fake.errors = static_cast<char*>(values[i]);
    }
    note_caller();
    note(count, options, values);
    ++fake.alive;
    *state = reinterpret_cast<CUlinkState>(&fake);
    return CUDA_SUCCESS;
  };
  driver.cuLinkAddData_v2 = [](CUlinkState, CUjitInputType, void* data, size_t size,
                               const char* name, unsigned count, CUjit_option* options,
                               void** values) {
    ++fake.inputs;
    note_caller();
    note(count, options, values);
    if (size != 3 || std::memcmp(data, "bad", 3) != 0) return CUDA_SUCCESS;
    std::strcpy(fake.errors, name);
    return CUDA_ERROR_INVALID_PTX;
  };
  driver.cuLinkComplete = [](CUlinkState, void** image, size_t* bytes) {
    note_caller();
    static char linked[] = "linked";
    *image = linked;
    *bytes = 6;
    return CUDA_SUCCESS;
  };
  driver.cuLinkDestroy = [](CUlinkState) {
    note_caller();
    --fake.alive;
    return CUDA_SUCCESS;
  };
  return driver;
}

Image image_of(const char* text) {
  const size_t bytes = std::strlen(text);
  const auto file = std::make_shared<Fd>(::memfd_create("image", MFD_CLOEXEC));
  EXPECT_EQ(::write(file->get(), text, bytes), static_cast<ssize_t>(bytes));
  auto image = Image::map(file, bytes);
  EXPECT_TRUE(image.ok());
  return std::move(*image);
}

class LinkTest : public ::testing::Test {
 protected:
  void SetUp() override { fake = {}; }
  std::shared_ptr<Link> link(uint16_t context = 1) {
    auto made = std::make_shared<Link>(driver_, context, JitOptions(), 0, 100);
    EXPECT_EQ(made->create(), CUDA_SUCCESS);
    return made;
  }
  const DriverTable driver_ = fake_driver();
};

TEST_F(LinkTest, ErrorsAndLogsComeWithTheInputThatIsWrong) {
  const auto made = link();
  const LinkOutcome bad = made->add(CU_JIT_INPUT_PTX, image_of("bad"), "the input", JitOptions());
  EXPECT_EQ(bad.result, CUDA_ERROR_INVALID_PTX);
  EXPECT_EQ(bad.errors, "the input");
  EXPECT_EQ(bad.info, "");
  EXPECT_EQ(made->add(CU_JIT_INPUT_PTX, image_of("good"), "", JitOptions()).result, CUDA_SUCCESS);
  const LinkOutcome done = made->complete();
  EXPECT_EQ(done.result, CUDA_SUCCESS);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(done.image.data()), done.image.size()),
            "linked");
}

// Those of link-time optimisation decide about results, too.
TEST_F(LinkTest, EveryOptionThatIsANumberReachesTheDriver) {
  std::vector<int> ids;
  std::vector<unsigned long long> values;
  for (int id = 0; id < CU_JIT_NUM_OPTIONS; ++id) {
    ids.push_back(id);
    values.push_back(100 + static_cast<unsigned>(id));
  }
  std::map<int, uint64_t> expected;
  for (const int id : ids) expected[id] = values[static_cast<size_t>(id)];
  for (const int other :
       {CU_JIT_WALL_TIME, CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
        CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, CU_JIT_GLOBAL_SYMBOL_NAMES,
        CU_JIT_GLOBAL_SYMBOL_ADDRESSES, CU_JIT_GLOBAL_SYMBOL_COUNT, CU_JIT_REFERENCED_KERNEL_NAMES,
        CU_JIT_REFERENCED_KERNEL_COUNT, CU_JIT_REFERENCED_VARIABLE_NAMES,
        CU_JIT_REFERENCED_VARIABLE_COUNT})
    expected.erase(other);
  JitOptions options;
  ASSERT_TRUE(options.read(ids, values));
  Link of_link(driver_, 1, options, 0, 0);
  ASSERT_EQ(of_link.create(), CUDA_SUCCESS);
  EXPECT_EQ(fake.options, expected);
  fake.options.clear();
  (void)link()->add(CU_JIT_INPUT_PTX, image_of("good"), "", options);
  fake.options.erase(CU_JIT_ERROR_LOG_BUFFER);
  fake.options.erase(CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES);
  EXPECT_EQ(fake.options, expected);
}

TEST_F(LinkTest, TheStateGoesWithTheLinkUnlessItsContextHas) {
  auto first = link(), second = link();
  EXPECT_EQ(fake.alive, 2);
  first.reset();
  EXPECT_EQ(fake.alive, 1);
  second->context_has_gone();
  second.reset();
  EXPECT_EQ(fake.alive, 1) << "the driver has ended it";
}

// Drivers crash where one thread makes a link and another one completes it.
TEST_F(LinkTest, OneThreadMakesTheDriversCallsWhoeverAsks) {
  const auto context = reinterpret_cast<CUcontext>(0x77);
  std::shared_ptr<Link> made;
  const auto elsewhere = [context](auto&& work) {
    std::thread([&] {
      current = context;
      work();
    }).join();
  };
  elsewhere([&] { made = link(); });
  elsewhere([&] { (void)made->add(CU_JIT_INPUT_PTX, image_of("one"), "", JitOptions()); });
  for (int i = 0; i < 2; ++i) elsewhere([&] { (void)made->complete(); });
  EXPECT_EQ(fake.threads.size(), 1u);
  EXPECT_EQ(fake.contexts, std::set{context});
  made.reset();
  EXPECT_EQ(fake.alive, 0);
  fake = {};
  elsewhere([&] { made = link(); });
  elsewhere([&] { made.reset(); });
  EXPECT_EQ(fake.threads.size(), 1u) << "a link that is never completed";
}

TEST_F(LinkTest, InputsHaveALimit) {
  const auto made = link();
  const Image input = image_of("good");
  for (unsigned i = 0; i < Link::kMaxInputs; ++i)
    ASSERT_EQ(made->add(CU_JIT_INPUT_PTX, input, "", JitOptions()).result, CUDA_SUCCESS);
  EXPECT_EQ(made->add(CU_JIT_INPUT_PTX, input, "", JitOptions()).result, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(fake.inputs, Link::kMaxInputs);
}

}  // namespace
}  // namespace fargpu::server
