// cuFFT: complex transforms of a power of two and of a prime, each there and back, in a batch.
// Build: nvcc -o cufft_transforms cufft_transforms.cc -lcufft
#include <cufft.h>

#include <algorithm>
#include <cmath>

#include "library.h"

namespace {

// How far the values are from what they were before; *sum gets the magnitudes of the spectrum.
double there_and_back(int length, int batch, double* sum, double* seconds) {
  const std::vector<float> values = random_values<float>(size_t{2} * length * batch);
  float* const memory = to_device(values);
  auto* const data = reinterpret_cast<cufftComplex*>(memory);
  cufftHandle plan;
  CHECK(cufftPlan1d(&plan, length, CUFFT_C2C, batch));
  CHECK(cufftExecC2C(plan, data, data, CUFFT_FORWARD));
  for (const float value : to_host(memory, values.size())) *sum += std::fabs(value);
  *seconds += timed([&] { CHECK(cufftExecC2C(plan, data, data, CUFFT_INVERSE)); });
  const std::vector<float> back = to_host(memory, values.size());
  CHECK(cufftDestroy(plan));
  CHECK(cudaFree(memory));
  double worst = 0;
  for (size_t i = 0; i < values.size(); ++i)
    worst = std::max<double>(worst, std::fabs(back[i] / static_cast<float>(length) - values[i]));
  return worst;
}

}  // namespace

int main() {
  double power = 0, prime = 0, seconds = 0;
  const double worst = std::max(there_and_back(4096, 64, &power, &seconds),
                                there_and_back(1009, 32, &prime, &seconds));
  return report(worst < 1e-5, {power, prime}, seconds);
}
