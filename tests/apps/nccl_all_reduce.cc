// NCCL: a sum over all GPUs of the process. Build:
// nvcc -o nccl_all_reduce nccl_all_reduce.cc -lnccl
#include <nccl.h>

#include <algorithm>
#include <cmath>

#include "library.h"

int main() {
  constexpr size_t kCount = 100000;
  int devices = 0;
  CHECK(cudaGetDeviceCount(&devices));
  std::vector<ncclComm_t> communicators(devices);
  CHECK(ncclCommInitAll(communicators.data(), devices, nullptr));
  std::vector<float*> given(devices), sums(devices);
  std::vector<double> expected(kCount);
  for (int device = 0; device < devices; ++device) {
    CHECK(cudaSetDevice(device));
    const std::vector<float> values = random_values<float>(kCount, device + 1);
    for (size_t i = 0; i < kCount; ++i) expected[i] += values[i];
    given[device] = to_device(values);
    sums[device] = to_device(std::vector<float>(kCount, -1));
  }
  const double seconds = timed([&] {
    CHECK(ncclGroupStart());
    for (int device = 0; device < devices; ++device) {
      CHECK(ncclAllReduce(given[device], sums[device], kCount, ncclFloat, ncclSum,
                          communicators[device], nullptr));
    }
    CHECK(ncclGroupEnd());
  });
  double worst = 0, total = 0;
  for (int device = 0; device < devices; ++device) {
    CHECK(cudaSetDevice(device));
    CHECK(cudaDeviceSynchronize());
    const std::vector<float> found = to_host(sums[device], kCount);
    for (size_t i = 0; i < kCount; ++i) {
      worst = std::max<double>(worst, std::fabs(found[i] - expected[i]));
      total += std::fabs(found[i]);
    }
    CHECK(cudaFree(given[device]));
    CHECK(cudaFree(sums[device]));
    CHECK(ncclCommDestroy(communicators[device]));
  }
  return report(worst < 1e-5, {total}, seconds);
}
