// Processes that are stopped and taken off their GPUs by others (cuCheckpointProcess*). The stopped
// process is this program again: it has memory of each kind, and says that it goes on by counting
// in a file that both have.
#include <spawn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>

#include "tests/sim_driver/support.h"

extern char** environ;

namespace fargpu::sim_test {
namespace {

using namespace std::chrono_literals;

constexpr unsigned kWords = 1 << 20;

// Written by the one named, read by the other.
struct Page {
  std::atomic<unsigned> rounds;  // target; 0: it is not ready
  std::atomic<bool> hold;        // test: a kernel is to wait
  std::atomic<bool> held;        // target: it does
  std::atomic<bool> share;       // test: memory is to be exported
  std::atomic<bool> shared;      // target: it is
  std::atomic<bool> end;         // test
};

#define NEED(call)                                              \
  if (const CUresult result = (call); result != CUDA_SUCCESS) { \
    std::fprintf(stderr, "%s: %d\n", #call, result);            \
    return 1;                                                   \
  }

int run_target(Page& page) {
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  CUfunction fill = nullptr, bump = nullptr, spin = nullptr;
  CUdeviceptr plain = 0, mapped = 0, counter = 0;
  CUstream stream = nullptr;
  unsigned* flag = nullptr;
  NEED(cuInit(0));
  NEED(cuCtxCreate(&context, nullptr, 0, 0));
  NEED(cuModuleLoadData(&module, kKernels));
  NEED(cuModuleGetFunction(&fill, module, "fill"));
  NEED(cuModuleGetFunction(&bump, module, "bump"));
  NEED(cuModuleGetFunction(&spin, module, "spin"));
  NEED(cuModuleGetGlobal(&counter, nullptr, module, "counter"));
  NEED(cuMemAlloc(&plain, kWords * sizeof(unsigned)));
  CUmemAllocationProp wanted{};
  wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  const CUmemAccessDesc access{wanted.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUmemGenericAllocationHandle physical = 0;
  constexpr size_t kMapped = size_t{4} << 20;
  NEED(cuMemCreate(&physical, kMapped, &wanted, 0));
  NEED(cuMemAddressReserve(&mapped, kMapped, 0, 0, 0));
  NEED(cuMemMap(mapped, kMapped, 0, physical, 0));
  NEED(cuMemSetAccess(mapped, kMapped, &access, 1));
  NEED(cuMemHostAlloc(reinterpret_cast<void**>(&flag), sizeof *flag, 0));
  NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  unsigned value = 77, count = kWords;
  void* parameters[] = {&plain, &value, &count};
  NEED(cuLaunchKernel(fill, kWords / 256, 1, 1, 256, 1, 1, 0, nullptr, parameters, nullptr));
  NEED(cuMemsetD8(mapped, 0x5a, kMapped));
  for (unsigned round = 1; !page.end.load(); ++round) {
    unsigned seen[2] = {};
    NEED(cuLaunchKernel(bump, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
    NEED(cuMemcpyDtoH(&seen[0], counter, sizeof(unsigned)));
    NEED(cuMemcpyDtoH(&seen[1], plain + (round % kWords) * 4, sizeof(unsigned)));
    if (seen[0] != 40 + round || seen[1] != 77) {
      std::fprintf(stderr, "round %u: %u %u\n", round, seen[0], seen[1]);
      return 2;
    }
    NEED(cuMemcpyDtoH(&seen[0], mapped + (round * 4096) % kMapped, sizeof(unsigned)));
    if (seen[0] != 0x5a5a5a5a) return 3;
    if (page.hold.load() && !page.held.load()) {
      *flag = 0;
      void* where[] = {&flag};
      NEED(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, where, nullptr));
      page.held.store(true);
    } else if (!page.hold.load() && page.held.load()) {
      __atomic_store_n(flag, 1, __ATOMIC_SEQ_CST);
      page.held.store(false);
    }
    if (page.share.load() && !page.shared.load()) {
      CUipcMemHandle handle;
      NEED(cuIpcGetMemHandle(&handle, plain));
      page.shared.store(true);
    }
    page.rounds.store(round);
  }
  return 0;
}

bool comes(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + 30s;
  while (!condition() && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(1ms);
  return condition();
}

class Target {
 public:
  Target() {
    const int file = ::memfd_create("page", 0);
    EXPECT_EQ(::ftruncate(file, sizeof(Page)), 0);
    page_ = static_cast<Page*>(
        ::mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
    std::string name = "/proc/self/exe", number = std::to_string(file);
    char* arguments[] = {name.data(), number.data(), nullptr};
    EXPECT_EQ(::posix_spawn(&pid_, name.c_str(), nullptr, nullptr, arguments, environ), 0);
    ::close(file);
    EXPECT_TRUE(comes([this] { return page_->rounds.load() > 0; }));
  }
  ~Target() {
    page_->end.store(true);
    int status = 0;
    EXPECT_EQ(::waitpid(pid_, &status, 0), pid_);
    EXPECT_EQ(status, 0);
    ::munmap(page_, sizeof(Page));
  }
  Target(const Target&) = delete;
  Target& operator=(const Target&) = delete;

  int pid() const { return pid_; }
  Page& page() const { return *page_; }
  CUprocessState state() const {
    CUprocessState state = CU_PROCESS_STATE_FAILED;
    EXPECT_CU(CUDA_SUCCESS, cuCheckpointProcessGetState(pid_, &state));
    return state;
  }
  bool goes_on() const {
    const unsigned before = page_->rounds.load();
    return comes([&] { return page_->rounds.load() > before + 1; });
  }
  bool stands_still() const {
    const unsigned before = page_->rounds.load();
    std::this_thread::sleep_for(50ms);
    return page_->rounds.load() == before;
  }
  // Bytes of its device memory that the system has to keep.
  size_t memory() const {
    size_t bytes = 0;
    const auto descriptors = "/proc/" + std::to_string(pid_) + "/fd";
    for (const auto& entry : std::filesystem::directory_iterator(descriptors)) {
      std::error_code error;
      const std::string to = std::filesystem::read_symlink(entry, error).string();
      struct stat about {};
      if (to.starts_with("/memfd:fargpu-sim") && ::stat(entry.path().c_str(), &about) == 0)
        bytes += static_cast<size_t>(about.st_blocks) * 512;
    }
    return bytes;
  }

 private:
  pid_t pid_ = 0;
  Page* page_ = nullptr;
};

class CheckpointTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_CU(CUDA_SUCCESS, cuInit(0)); }
};

TEST_F(CheckpointTest, MemoryGoesAndComesBack) {
  const Target target;
  EXPECT_EQ(target.state(), CU_PROCESS_STATE_RUNNING);
  int thread = 0;
  OK(cuCheckpointProcessGetRestoreThreadId(target.pid(), &thread));
  EXPECT_TRUE(std::filesystem::exists("/proc/" + std::to_string(target.pid()) + "/task/" +
                                      std::to_string(thread)));
  for (int round = 0; round < 3; ++round) {
    OK(cuCheckpointProcessLock(target.pid(), nullptr));
    EXPECT_EQ(target.state(), CU_PROCESS_STATE_LOCKED);
    EXPECT_TRUE(target.stands_still());
    EXPECT_GT(target.memory(), size_t{8} << 20);
    OK(cuCheckpointProcessCheckpoint(target.pid(), nullptr));
    EXPECT_EQ(target.state(), CU_PROCESS_STATE_CHECKPOINTED);
    EXPECT_EQ(target.memory(), 0u);
    EXPECT_TRUE(target.stands_still());
    OK(cuCheckpointProcessRestore(target.pid(), nullptr));
    EXPECT_EQ(target.state(), CU_PROCESS_STATE_LOCKED);
    EXPECT_TRUE(target.stands_still());
    OK(cuCheckpointProcessUnlock(target.pid(), nullptr));
    EXPECT_EQ(target.state(), CU_PROCESS_STATE_RUNNING);
    EXPECT_TRUE(target.goes_on());
  }
}

TEST_F(CheckpointTest, EachStepHasItsState) {
  const Target target;
  const int pid = target.pid();
  EXPECT_CU(CUDA_ERROR_ILLEGAL_STATE, cuCheckpointProcessUnlock(pid, nullptr));
  EXPECT_CU(CUDA_ERROR_ILLEGAL_STATE, cuCheckpointProcessCheckpoint(pid, nullptr));
  EXPECT_CU(CUDA_ERROR_ILLEGAL_STATE, cuCheckpointProcessRestore(pid, nullptr));
  OK(cuCheckpointProcessLock(pid, nullptr));
  EXPECT_CU(CUDA_ERROR_ILLEGAL_STATE, cuCheckpointProcessLock(pid, nullptr));
  EXPECT_CU(CUDA_ERROR_ILLEGAL_STATE, cuCheckpointProcessRestore(pid, nullptr));
  OK(cuCheckpointProcessCheckpoint(pid, nullptr));
  EXPECT_CU(CUDA_ERROR_ILLEGAL_STATE, cuCheckpointProcessUnlock(pid, nullptr));
  EXPECT_CU(CUDA_ERROR_ILLEGAL_STATE, cuCheckpointProcessCheckpoint(pid, nullptr));
  OK(cuCheckpointProcessRestore(pid, nullptr));
  OK(cuCheckpointProcessUnlock(pid, nullptr));
  EXPECT_TRUE(target.goes_on());
}

// Work that does not end keeps a process from being locked; then it goes on.
TEST_F(CheckpointTest, LockingTakesTheTimeThatItIsGiven) {
  const Target target;
  target.page().hold.store(true);
  ASSERT_TRUE(comes([&] { return target.page().held.load(); }));
  CUcheckpointLockArgs arguments{};
  arguments.timeoutMs = 50;
  EXPECT_CU(CUDA_ERROR_NOT_READY, cuCheckpointProcessLock(target.pid(), &arguments));
  EXPECT_EQ(target.state(), CU_PROCESS_STATE_RUNNING);
  EXPECT_TRUE(target.goes_on());
  target.page().hold.store(false);
  ASSERT_TRUE(comes([&] { return !target.page().held.load(); }));
  arguments.timeoutMs = 30'000;
  OK(cuCheckpointProcessLock(target.pid(), &arguments));
  OK(cuCheckpointProcessUnlock(target.pid(), nullptr));
}

TEST_F(CheckpointTest, SharedMemoryStays) {
  const Target target;
  target.page().share.store(true);
  ASSERT_TRUE(comes([&] { return target.page().shared.load(); }));
  OK(cuCheckpointProcessLock(target.pid(), nullptr));
  EXPECT_CU(CUDA_ERROR_NOT_SUPPORTED, cuCheckpointProcessCheckpoint(target.pid(), nullptr));
  EXPECT_EQ(target.state(), CU_PROCESS_STATE_LOCKED);
  OK(cuCheckpointProcessUnlock(target.pid(), nullptr));
  EXPECT_TRUE(target.goes_on());
}

TEST_F(CheckpointTest, WrongArguments) {
  const Target target;
  const int pid = target.pid();
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuCheckpointProcessLock(0, nullptr));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuCheckpointProcessLock(1, nullptr));  // uses no CUDA
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuCheckpointProcessGetState(pid, nullptr));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuCheckpointProcessGetRestoreThreadId(pid, nullptr));
  CUcheckpointLockArgs lock{};
  lock.reserved1[3] = 1;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuCheckpointProcessLock(pid, &lock));
  OK(cuCheckpointProcessLock(pid, nullptr));
  CUcheckpointCheckpointArgs checkpoint{};
  checkpoint.reserved[7] = 1;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuCheckpointProcessCheckpoint(pid, &checkpoint));
  OK(cuCheckpointProcessCheckpoint(pid, nullptr));
  // Each GPU stays; it cannot become another one.
  CUcheckpointGpuPair pairs[2];
  for (int i = 0; i < 2; ++i) {
    OK(cuDeviceGetUuid(&pairs[i].oldUuid, i));
    OK(cuDeviceGetUuid(&pairs[i].newUuid, 1 - i));
  }
  CUcheckpointRestoreArgs restore{};
  restore.gpuPairs = pairs;
  restore.gpuPairsCount = 2;
  EXPECT_CU(CUDA_ERROR_NOT_SUPPORTED, cuCheckpointProcessRestore(pid, &restore));
  for (CUcheckpointGpuPair& pair : pairs) pair.newUuid = pair.oldUuid;
  restore.reserved1 = 1;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuCheckpointProcessRestore(pid, &restore));
  restore.reserved1 = 0;
  OK(cuCheckpointProcessRestore(pid, &restore));
  OK(cuCheckpointProcessUnlock(pid, nullptr));
}

// Its own calls of these functions are not kept out.
TEST_F(CheckpointTest, TheProcessItself) {
  CUdeviceptr memory = 0;
  CUcontext context = nullptr;
  OK(cuCtxCreate(&context, nullptr, 0, 0));
  OK(cuMemAlloc(&memory, 4096));
  OK(cuMemsetD8(memory, 9, 4096));
  OK(cuCheckpointProcessLock(::getpid(), nullptr));
  std::atomic<bool> returned{false};
  std::thread other([&] {
    int count = 0;
    EXPECT_CU(CUDA_SUCCESS, cuDeviceGetCount(&count));
    returned.store(true);
  });
  std::this_thread::sleep_for(20ms);
  EXPECT_FALSE(returned.load());
  OK(cuCheckpointProcessCheckpoint(::getpid(), nullptr));
  OK(cuCheckpointProcessRestore(::getpid(), nullptr));
  OK(cuCheckpointProcessUnlock(::getpid(), nullptr));
  other.join();
  unsigned char byte = 0;
  OK(cuMemcpyDtoH(&byte, memory + 4095, 1));
  EXPECT_EQ(byte, 9);
  OK(cuCtxDestroy(context));
}

}  // namespace
}  // namespace fargpu::sim_test

int main(int argc, char** argv) {
  using fargpu::sim_test::Page;
  if (argc == 2 && std::strspn(argv[1], "0123456789") == std::strlen(argv[1])) {
    void* const page =
        ::mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, std::atoi(argv[1]), 0);
    return page == MAP_FAILED ? 9 : fargpu::sim_test::run_target(*static_cast<Page*>(page));
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
