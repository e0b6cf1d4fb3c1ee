#include "server/stream/gate_words.h"

#include <cstring>
#include <utility>

#include "common/host/memory_page.h"
#include "generated/server/driver_table.h"
#include "server/stream/stream_holds.h"

namespace fargpu::server {
namespace {

constexpr size_t kWordSpacing = 64;  // each in a cache line of its own
static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));

}  // namespace

CUresult GateWord::add(const DriverTable& driver, CUstream stream) {
  holds_.hold(gpu_);
  // GEQ compares as signed differences, so the count may wrap.
  const CUresult result =
      driver.cuStreamWaitValue32_v2(stream, device_, added_ + 1, CU_STREAM_WAIT_VALUE_GEQ);
  if (result == CUDA_SUCCESS) {
    ++added_;
  } else {
    holds_.release(gpu_);
  }
  return result;
}

void GateWord::open() {
  word_->store(++opened_, std::memory_order_release);
  holds_.release(gpu_);
}

CUresult GateWords::add_page(OfContext& context) {
  void* memory = nullptr;
  if (const CUresult result =
          driver_.cuMemHostAlloc(&memory, kPageBytes, CU_MEMHOSTALLOC_DEVICEMAP);
      result != CUDA_SUCCESS) {
    return result;
  }
  CUdeviceptr device = 0;
  if (const CUresult result = driver_.cuMemHostGetDevicePointer_v2(&device, memory, 0);
      result != CUDA_SUCCESS) {
    driver_.cuMemFreeHost(memory);
    return result;
  }
  CUdevice gpu = StreamHolds::kEveryDevice;
  if (driver_.cuCtxGetDevice != nullptr) driver_.cuCtxGetDevice(&gpu);
  std::memset(memory, 0, kPageBytes);
  context.pages.push_back(memory);
  for (size_t at = 0; at < kPageBytes; at += kWordSpacing) {
    auto* const word = new (static_cast<std::byte*>(memory) + at) std::atomic<uint32_t>(0);
    context.words.push_back(std::make_unique<GateWord>(word, device + at, holds_, gpu));
    context.unused.push_back(context.words.back().get());
  }
  return CUDA_SUCCESS;
}

CUresult GateWords::take(uint16_t context, GateWord** word) {
  if (driver_.cuStreamWaitValue32_v2 == nullptr || driver_.cuMemHostAlloc == nullptr ||
      driver_.cuMemHostGetDevicePointer_v2 == nullptr || driver_.cuMemFreeHost == nullptr) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  OfContext& found = contexts_[context];
  if (found.unused.empty()) {
    if (const CUresult result = add_page(found); result != CUDA_SUCCESS) return result;
  }
  *word = found.unused.back();
  found.unused.pop_back();
  return CUDA_SUCCESS;
}

std::vector<void*> GateWords::take_pages(uint16_t context) {
  const auto found = contexts_.find(context);
  if (found == contexts_.end()) return {};
  std::vector<void*> pages = std::move(found->second.pages);
  contexts_.erase(found);
  return pages;
}

}  // namespace fargpu::server
