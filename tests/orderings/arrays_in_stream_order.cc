// sim: FARGPU_SIM_LOCKED_WAITS=1
// Copies from and to arrays are in the order of their stream, as those of linear memory: behind
// host functions and other copies, in front of them, and before the array goes. What a synchronous
// copy brought to an array is seen by every stream afterwards.
#include <atomic>
#include <thread>

#include "tests/orderings/check.h"

namespace {

constexpr size_t kWidth = 1000, kHeight = 300, kRow = kWidth * sizeof(unsigned);
constexpr size_t kWords = kWidth * kHeight, kBytes = kWords * sizeof(unsigned);

std::atomic<bool> released;
std::atomic<unsigned> failures;
CUstream first, second;

void CUDA_CB wait_for_release(void*) {
  while (!released) usleep(200);
}

bool holds(const unsigned* words, unsigned value) {
  for (size_t i = 0; i < kWords; ++i) {
    if (words[i] != value) return false;
  }
  return true;
}

void fill(unsigned* words, unsigned value) {
  for (size_t i = 0; i < kWords; ++i) words[i] = value;
}

struct Expectation {
  unsigned* words;
  unsigned value;
};
void CUDA_CB expect_words(void* data) {
  const auto* expected = static_cast<const Expectation*>(data);
  if (!holds(expected->words, expected->value)) ++failures;
}
void CUDA_CB fill_words(void* data) {
  const auto* wanted = static_cast<const Expectation*>(data);
  fill(wanted->words, wanted->value);
}

CUarray make_array() {
  CUDA_ARRAY3D_DESCRIPTOR descriptor{};
  descriptor.Width = kWidth;
  descriptor.Height = kHeight;
  descriptor.Format = CU_AD_FORMAT_UNSIGNED_INT32;
  descriptor.NumChannels = 1;
  CUarray array;
  CU(cuArray3DCreate(&array, &descriptor));
  return array;
}

CUDA_MEMCPY2D whole() {
  CUDA_MEMCPY2D copy{};
  copy.srcPitch = copy.dstPitch = kRow;
  copy.WidthInBytes = kRow;
  copy.Height = kHeight;
  return copy;
}
CUDA_MEMCPY2D to_array(CUarray array, const unsigned* host) {
  CUDA_MEMCPY2D copy = whole();
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = host;
  copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.dstArray = array;
  return copy;
}
CUDA_MEMCPY2D to_host(unsigned* host, CUarray array) {
  CUDA_MEMCPY2D copy = whole();
  copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.srcArray = array;
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = host;
  return copy;
}
CUDA_MEMCPY2D across(CUarray dst, CUarray src) {
  CUDA_MEMCPY2D copy = whole();
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.srcArray = src;
  copy.dstArray = dst;
  return copy;
}
void put(const CUDA_MEMCPY2D& copy, CUstream stream) { CU(cuMemcpy2DAsync(&copy, stream)); }

struct Memory {
  unsigned *a, *b;
};

void functions_and_copies(const Memory& m) {
  const CUarray x = make_array(), y = make_array();
  for (unsigned round = 0; round < 5; ++round) {
    const unsigned value = 10 * round;
    step("a copy behind a host function takes what the function wrote");
    fill(m.a, value);
    fill(m.b, value);
    Expectation wanted{m.a, value + 1}, seen{m.b, value + 1};
    CU(cuLaunchHostFunc(first, fill_words, &wanted));
    put(to_array(x, m.a), first);
    put(across(y, x), first);
    put(to_host(m.b, y), first);
    step("a host function behind a copy sees its bytes");
    CU(cuLaunchHostFunc(first, expect_words, &seen));
    CU(cuStreamSynchronize(first));
    HOLDS(failures == 0 && holds(m.b, value + 1));
    step("copies that wait for their stream follow each other");
    released = false;
    CU(cuLaunchHostFunc(first, wait_for_release, nullptr));
    put(to_array(x, m.a), first);
    put(to_host(m.b, y), first);
    put(to_array(y, m.b), first);
    // What the stream has not come to yet is taken later.
    fill(m.a, value + 2);
    released = true;
    put(to_host(m.b, x), first);
    CU(cuStreamSynchronize(first));
    HOLDS(holds(m.b, value + 2));
  }
  CU(cuArrayDestroy(x));
  CU(cuArrayDestroy(y));
}

void synchronous_copies(const Memory& m, unsigned* pageable) {
  const CUarray x = make_array();
  for (unsigned round = 0; round < 20; ++round) {
    unsigned* const source = round % 2 == 0 ? pageable : m.a;
    fill(source, 1000 + round);
    step("a synchronous copy to an array is seen by every stream");
    const CUDA_MEMCPY2D up = to_array(x, source);
    CU(cuMemcpy2D(&up));
    fill(source, 0);
    // Of pageable memory it may return before the array has the bytes.
    if (source == pageable) CU(cuStreamSynchronize(CU_STREAM_LEGACY));
    put(to_host(m.b, x), second);
    CU(cuStreamSynchronize(second));
    HOLDS(holds(m.b, 1000 + round));
    step("a synchronous copy from an array has the bytes when it returns");
    fill(source, 0);
    const CUDA_MEMCPY2D down = to_host(source, x);
    CU(cuMemcpy2D(&down));
    HOLDS(holds(source, 1000 + round));
  }
  CU(cuArrayDestroy(x));
}

void arrays_go(const Memory& m) {
  step("an array goes while copies wait that use it");
  for (unsigned round = 0; round < 5; ++round) {
    const CUarray x = make_array(), y = make_array();
    fill(m.a, 50 + round);
    fill(m.b, 0);
    released = false;
    CU(cuLaunchHostFunc(first, wait_for_release, nullptr));
    put(to_array(x, m.a), first);
    put(across(y, x), first);
    put(to_host(m.b, y), first);
    std::thread helper([] {
      usleep(50'000);
      released = true;
    });
    CU(cuArrayDestroy(x));
    CU(cuArrayDestroy(y));
    helper.join();
    CU(cuStreamSynchronize(first));
    HOLDS(holds(m.b, 50 + round));
  }
}

}  // namespace

int main() {
  begin(120);
  use_primary();
  first = make_stream(), second = make_stream();
  Memory pinned{}, own{};
  CU(cuMemHostAlloc(reinterpret_cast<void**>(&pinned.a), kBytes, 0));
  CU(cuMemHostAlloc(reinterpret_cast<void**>(&pinned.b), kBytes, 0));
  const size_t room = (kBytes + 4095) / 4096 * 4096;
  auto* const bytes = static_cast<unsigned char*>(std::aligned_alloc(4096, 2 * room));
  own.a = reinterpret_cast<unsigned*>(bytes);
  own.b = reinterpret_cast<unsigned*>(bytes + room);
  CU(cuMemHostRegister(bytes, 2 * room, 0));
  auto* const pageable = static_cast<unsigned*>(std::malloc(kBytes));
  for (const Memory& memory : {pinned, own}) {
    functions_and_copies(memory);
    synchronous_copies(memory, pageable);
    arrays_go(memory);
  }
  right();
}
