#include "server/stream/host_words.h"

#include <sys/mman.h>

#include <deque>
#include <mutex>
#include <new>
#include <utility>

#include "generated/server/driver_table.h"

namespace fargpu::server {
namespace {

constexpr size_t kLine = 64, kPair = 2 * kLine, kPages = size_t{64} << 10;
static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));

}  // namespace

HostWordPair::HostWordPair(std::byte* memory, CUdeviceptr device, uint16_t context)
    : reached_(new (memory) std::atomic<uint32_t>(0)),
      go_(new (memory + kLine) std::atomic<uint32_t>(0)),
      device_(device),
      context_(context) {}

std::array<CUstreamBatchMemOpParams, 3> HostWordPair::operations() const {
  std::array<CUstreamBatchMemOpParams, 3> all{};
  all[0].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  all[0].writeValue.address = device_;
  all[0].writeValue.value = 1;
  all[1].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  all[1].waitValue.address = device_ + kLine;
  all[1].waitValue.value = 1;
  all[1].waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
  all[2].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  all[2].writeValue.address = device_ + kLine;
  return all;
}

bool HostWordPair::take_reached() {
  if (reached_->load(std::memory_order_acquire) == 0) return false;
  reached_->store(0, std::memory_order_relaxed);  // before the GPU may write it again, by let_go()
  return true;
}

void HostWordPair::let_go() { go_->store(1, std::memory_order_release); }

bool HostWordPair::is_at_rest() const {
  return reached_->load(std::memory_order_acquire) == 0 &&
         go_->load(std::memory_order_acquire) == 0;
}

// Words of a context that no node has. Pairs may outlive the context and the HostWords.
class HostWords::Free {
 public:
  // nullptr: there is none that is at rest.
  std::unique_ptr<HostWordPair> take() {
    std::lock_guard lock(mutex_);
    for (size_t left = pairs_.size(); left > 0; --left) {
      auto pair = std::move(pairs_.front());
      pairs_.pop_front();
      if (pair->is_at_rest()) return pair;
      pairs_.push_back(std::move(pair));
    }
    return nullptr;
  }

  // The memory is never unmapped: the GPU may write it as long as the process lives.
  CUresult add_pages(const DriverTable& driver, uint16_t context) {
    void* const pages =
        ::mmap(nullptr, kPages, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    CUdeviceptr device = 0;
    CUresult result = driver.cuMemHostRegister_v2(pages, kPages, CU_MEMHOSTREGISTER_DEVICEMAP);
    if (result == CUDA_SUCCESS)
      result = driver.cuMemHostGetDevicePointer_v2(&device, pages, 0);
    else
      ::munmap(pages, kPages);
    if (result != CUDA_SUCCESS) return result;
    std::lock_guard lock(mutex_);
    for (size_t at = 0; at < kPages; at += kPair) {
      pairs_.push_back(std::make_unique<HostWordPair>(static_cast<std::byte*>(pages) + at,
                                                      device + at, context));
    }
    return CUDA_SUCCESS;
  }

  void give_back(std::unique_ptr<HostWordPair> pair) {
    std::lock_guard lock(mutex_);
    pairs_.push_back(std::move(pair));
  }

 private:
  std::mutex mutex_;
  std::deque<std::unique_ptr<HostWordPair>> pairs_;
};

HostWords::HostWords() = default;
HostWords::~HostWords() = default;

CUresult HostWords::take(const DriverTable& driver, uint16_t context,
                         std::shared_ptr<HostWordPair>* pair) {
  if (driver.cuMemHostRegister_v2 == nullptr || driver.cuMemHostGetDevicePointer_v2 == nullptr ||
      driver.cuGraphAddBatchMemOpNode == nullptr)
    return CUDA_ERROR_NOT_SUPPORTED;
  auto& free = contexts_[context];
  if (free == nullptr) free = std::make_shared<Free>();
  auto taken = free->take();
  if (taken == nullptr) {
    if (const CUresult result = free->add_pages(driver, context); result != CUDA_SUCCESS)
      return result;
    taken = free->take();
  }
  *pair = {taken.release(),
           [free](HostWordPair* given) { free->give_back(std::unique_ptr<HostWordPair>(given)); }};
  return CUDA_SUCCESS;
}

void HostWords::context_ended(uint16_t context) { contexts_.erase(context); }

}  // namespace fargpu::server
