// What the worker accepts as memory of the client's, and that it lets go of it completely.
#include "server/memory/shared_host.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <map>

#include "common/transport/descriptor_passing.h"
#include "generated/server/driver_table.h"

namespace fargpu::server {
namespace {

constexpr size_t kPage = 4096;
constexpr uint16_t kContext = 1, kOtherContext = 300;

std::map<void*, size_t>& registered() {
  static std::map<void*, size_t> memory;
  return memory;
}

// What has arrived at this end.
class Arrived final : public transport::DescriptorPassing {
 public:
  Status send(uint64_t, int) override { return {StatusCode::kUnsupported, "not here"}; }
  Result<Fd> take(uint64_t number) override {
    const auto found = waiting.find(number);
    if (found == waiting.end()) return Status(StatusCode::kNotFound, "no such descriptor");
    Fd descriptor = std::move(found->second);
    waiting.erase(found);
    return descriptor;
  }
  std::map<uint64_t, Fd> waiting;
};

class SharedHostTest : public ::testing::Test {
 protected:
  void SetUp() override {
    registered().clear();
    driver_.cuMemHostRegister_v2 = [](void* memory, size_t bytes, unsigned) {
      if (refuse_registration) return CUDA_ERROR_OUT_OF_MEMORY;
      return registered().emplace(memory, bytes).second ? CUDA_SUCCESS
                                                        : CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    };
    driver_.cuMemHostUnregister = [](void* memory) {
      return registered().erase(memory) != 0 ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    };
    driver_.cuMemHostGetDevicePointer_v2 = [](CUdeviceptr* device, void* host, unsigned) {
      *device = reinterpret_cast<CUdeviceptr>(host);
      return CUDA_SUCCESS;
    };
    refuse_registration = false;
    // A hole in the address space that the tests use one after the other.
    void* hole = ::mmap(nullptr, 64 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ::munmap(hole, 64 * kPage);
    address_ = reinterpret_cast<uint64_t>(hole);
  }

  // A memory file under `number`.
  void arrive(uint64_t number, size_t bytes, int seals = F_SEAL_SHRINK) {
    Fd file(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    ASSERT_TRUE(file.valid());
    ASSERT_EQ(::ftruncate(file.get(), static_cast<off_t>(bytes)), 0);
    if (seals != 0) {
      ASSERT_EQ(::fcntl(file.get(), F_ADD_SEALS, seals), 0);
    }
    client_side_.reset(::dup(file.get()));
    arrived_.waiting.insert_or_assign(number, std::move(file));
  }
  CUresult share(SharedHost& shared, uint64_t number, uint64_t address, size_t bytes,
                 uint16_t context = kContext) {
    SharedHost::MappingPointer mapping;
    CUresult result = shared.map(&arrived_, number, address, bytes, context, &mapping);
    if (result == CUDA_SUCCESS) result = shared.enroll(*mapping, &device_pointer_);
    if (result == CUDA_SUCCESS) shared.add(mapping);
    return result;
  }
  CUresult unshare(SharedHost& shared, uint64_t address) {
    const SharedHost::MappingPointer mapping = shared.remove(address);
    return mapping == nullptr ? CUDA_ERROR_NOT_MAPPED : shared.withdraw(*mapping);
  }

  static inline bool refuse_registration = false;
  DriverTable driver_;
  Arrived arrived_;
  Fd client_side_;
  uint64_t address_ = 0;
  CUdeviceptr device_pointer_ = 0;
};

TEST_F(SharedHostTest, IsTheClientsMemoryAtTheClientsAddress) {
  SharedHost shared(driver_);
  arrive(7, 3 * kPage);
  ASSERT_EQ(share(shared, 7, address_, 2 * kPage), CUDA_SUCCESS);
  EXPECT_EQ(device_pointer_, address_);
  EXPECT_EQ(registered()[reinterpret_cast<void*>(address_)], 2 * kPage);
  std::strcpy(reinterpret_cast<char*>(address_ + kPage), "from the worker");
  char seen[16] = {};
  ASSERT_EQ(::pread(client_side_.get(), seen, sizeof seen, kPage), 16);
  EXPECT_STREQ(seen, "from the worker");
  ASSERT_EQ(::pwrite(client_side_.get(), "and back", 9, 0), 9);
  EXPECT_STREQ(reinterpret_cast<char*>(address_), "and back");
  EXPECT_TRUE(arrived_.waiting.empty());
}

TEST_F(SharedHostTest, RefusesWhatItCannotTrust) {
  const auto budget = std::make_shared<HostBudget>();
  SharedHost shared(driver_, budget);
  SharedHost::MappingPointer mapping;
  EXPECT_EQ(shared.map(nullptr, 1, address_, kPage, kContext, &mapping), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(share(shared, 1, address_, kPage), CUDA_ERROR_INVALID_HANDLE);

  for (const int seals : {0, F_SEAL_GROW, F_SEAL_GROW | F_SEAL_SEAL}) {
    arrive(2, kPage, seals);
    EXPECT_EQ(share(shared, 2, address_, kPage), CUDA_ERROR_INVALID_VALUE) << seals;
  }
  arrive(3, kPage);
  EXPECT_EQ(share(shared, 3, address_, 2 * kPage), CUDA_ERROR_INVALID_VALUE) << "shorter than said";
  arrive(3, 2 * kPage, F_SEAL_SHRINK | F_SEAL_WRITE);
  EXPECT_EQ(share(shared, 3, address_, 2 * kPage), CUDA_ERROR_INVALID_VALUE) << "not writable";

  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  Fd write_end(ends[1]);
  arrived_.waiting.emplace(4, Fd(ends[0]));
  EXPECT_EQ(share(shared, 4, address_, kPage), CUDA_ERROR_INVALID_VALUE) << "a pipe";
  arrived_.waiting.emplace(5, Fd(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC)));
  EXPECT_EQ(share(shared, 5, address_, kPage), CUDA_ERROR_INVALID_VALUE) << "a file of a disk";

  for (const auto& [address, bytes] : std::initializer_list<std::pair<uint64_t, size_t>>{
           {0, kPage},
           {address_ + 8, kPage},
           {address_, 0},
           {address_, kPage + 1},
           {uint64_t{1} << 47, kPage},
           {~uint64_t{kPage - 1}, kPage},
           {(uint64_t{1} << 47) - kPage, 2 * kPage}}) {
    arrive(6, 2 * kPage);
    EXPECT_EQ(share(shared, 6, address, bytes), CUDA_ERROR_INVALID_VALUE)
        << address << " " << bytes;
    EXPECT_TRUE(arrived_.waiting.empty()) << "a refused descriptor is gone";
  }
  EXPECT_TRUE(registered().empty());
  EXPECT_EQ(budget->used(), 0u);
}

TEST_F(SharedHostTest, NeverMapsOverWhatIsThere) {
  SharedHost shared(driver_);
  arrive(1, 2 * kPage);
  ASSERT_EQ(share(shared, 1, address_ + kPage, 2 * kPage), CUDA_SUCCESS);
  for (const uint64_t address : {address_, address_ + kPage, address_ + 2 * kPage}) {
    arrive(2, 2 * kPage);
    EXPECT_EQ(share(shared, 2, address, 2 * kPage), CUDA_ERROR_ALREADY_MAPPED);
  }
  arrive(3, kPage);
  const uint64_t own = reinterpret_cast<uint64_t>(&shared) / kPage * kPage;
  EXPECT_EQ(share(shared, 3, own, kPage), CUDA_ERROR_ALREADY_MAPPED);
  EXPECT_EQ(registered().size(), 1u);
}

TEST_F(SharedHostTest, KeepsToItsLimitAndGetsRoomBack) {
  SharedHost shared(driver_, std::make_shared<HostBudget>(3 * kPage));
  arrive(1, 8 * kPage);
  EXPECT_EQ(share(shared, 1, address_, 4 * kPage), CUDA_ERROR_OUT_OF_MEMORY);
  arrive(2, 2 * kPage);
  ASSERT_EQ(share(shared, 2, address_, 2 * kPage), CUDA_SUCCESS);
  arrive(3, 2 * kPage);
  EXPECT_EQ(share(shared, 3, address_ + 4 * kPage, 2 * kPage), CUDA_ERROR_OUT_OF_MEMORY);
  ASSERT_EQ(unshare(shared, address_), CUDA_SUCCESS);
  EXPECT_EQ(unshare(shared, address_), CUDA_ERROR_NOT_MAPPED);
  EXPECT_TRUE(registered().empty());
  arrive(4, 3 * kPage);
  EXPECT_EQ(share(shared, 4, address_, 3 * kPage), CUDA_SUCCESS);
}

TEST_F(SharedHostTest, ARefusedRegistrationLeavesNothingBehind) {
  const auto budget = std::make_shared<HostBudget>();
  SharedHost shared(driver_, budget);
  refuse_registration = true;
  arrive(1, kPage);
  EXPECT_EQ(share(shared, 1, address_, kPage), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(budget->used(), 0u);
  refuse_registration = false;
  arrive(2, kPage);
  EXPECT_EQ(share(shared, 2, address_, kPage), CUDA_SUCCESS);
}

TEST_F(SharedHostTest, FindsOnlyWhatLiesInsideOneMapping) {
  SharedHost shared(driver_);
  arrive(1, 2 * kPage);
  arrive(2, kPage);
  ASSERT_EQ(share(shared, 1, address_, 2 * kPage), CUDA_SUCCESS);
  ASSERT_EQ(share(shared, 2, address_ + 2 * kPage, kPage), CUDA_SUCCESS);
  EXPECT_NE(shared.find(address_, 2 * kPage), nullptr);
  EXPECT_NE(shared.find(address_ + 5, kPage), nullptr);
  EXPECT_NE(shared.find(address_ + 3 * kPage - 1, 1), nullptr);
  EXPECT_EQ(shared.find(address_ + 1, 2 * kPage), nullptr) << "into the neighbour";
  EXPECT_EQ(shared.find(address_ - 1, 2), nullptr);
  EXPECT_EQ(shared.find(address_ + 3 * kPage, 1), nullptr);
  EXPECT_EQ(shared.find(address_ + 1, ~uint64_t{0}), nullptr);
  EXPECT_EQ(shared.find(0, 1), nullptr);
}

TEST_F(SharedHostTest, GoesWithItsContextButNotFromUnderWhoeverHoldsIt) {
  SharedHost shared(driver_);
  arrive(1, kPage);
  arrive(2, kPage);
  ASSERT_EQ(share(shared, 1, address_, kPage, kContext), CUDA_SUCCESS);
  ASSERT_EQ(share(shared, 2, address_ + 8 * kPage, kPage, kOtherContext), CUDA_SUCCESS);
  auto held = shared.find(address_, kPage);
  for (const SharedHost::MappingPointer& mapping : shared.take_context(kContext))
    shared.withdraw(*mapping);
  EXPECT_EQ(shared.find(address_, 1), nullptr);
  EXPECT_NE(shared.find(address_ + 8 * kPage, 1), nullptr);
  EXPECT_EQ(registered().size(), 1u);
  *reinterpret_cast<volatile char*>(address_) = 'x';  // still there
  held.reset();
  arrive(3, kPage);
  EXPECT_EQ(share(shared, 3, address_, kPage), CUDA_SUCCESS) << "the address is free again";
}

}  // namespace
}  // namespace fargpu::server
