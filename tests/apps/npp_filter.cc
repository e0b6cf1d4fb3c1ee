// NPP: a box filter over an image of bytes, and its sum. Build:
// nvcc -o npp_filter npp_filter.cc -lnppif -lnppist -lnppc
#include <nppcore.h>
#include <nppi_filtering_functions.h>
#include <nppi_statistics_functions.h>

#include <algorithm>
#include <cstdlib>

#include "library.h"

int main() {
  const int width = 512, height = 256, mask = 5;
  std::vector<Npp8u> image(size_t{1} * width * height);
  for (size_t i = 0; i < image.size(); ++i) image[i] = static_cast<Npp8u>(i * 7 + i / width);
  Npp8u* const source = to_device(image);
  Npp8u* const target = to_device(std::vector<Npp8u>(image.size()));
  NppStreamContext context{};
  CHECK(cudaGetDevice(&context.nCudaDeviceId));
  cudaDeviceProp properties;
  CHECK(cudaGetDeviceProperties(&properties, context.nCudaDeviceId));
  context.nMultiProcessorCount = properties.multiProcessorCount;
  context.nMaxThreadsPerMultiProcessor = properties.maxThreadsPerMultiProcessor;
  context.nMaxThreadsPerBlock = properties.maxThreadsPerBlock;
  context.nSharedMemPerBlock = properties.sharedMemPerBlock;
  context.nCudaDevAttrComputeCapabilityMajor = properties.major;
  context.nCudaDevAttrComputeCapabilityMinor = properties.minor;
  const NppiSize inside{width - mask + 1, height - mask + 1};
  const size_t first = size_t{mask / 2} * width + mask / 2;
  const double seconds = timed([&] {
    CHECK(nppiFilterBox_8u_C1R_Ctx(source + first, width, target + first, width, inside,
                                   {mask, mask}, {mask / 2, mask / 2}, context));
  });
  const std::vector<Npp8u> got = to_host(target, image.size());
  int worst = 0;
  double sum = 0;
  for (int y = 0; y < inside.height; ++y) {
    for (int x = 0; x < inside.width; ++x) {
      int total = 0;
      for (int j = 0; j < mask; ++j)
        for (int i = 0; i < mask; ++i) total += image[size_t{1} * (y + j) * width + x + i];
      const int value = got[first + size_t{1} * y * width + x];
      worst = std::max(worst, std::abs(value - total / (mask * mask)));
      sum += value;
    }
  }
  return report(worst <= 1, {sum, static_cast<double>(got[first])}, seconds);
}
