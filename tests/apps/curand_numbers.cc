// cuRAND: uniform and normal numbers of fixed seeds, and their moments. Build:
// nvcc -o curand_numbers curand_numbers.cc -lcurand
#include <curand.h>

#include <cmath>

#include "library.h"

int main() {
  const size_t n = 1 << 20;
  float* const memory = to_device(std::vector<float>(n));
  curandGenerator_t generator;
  CHECK(curandCreateGenerator(&generator, CURAND_RNG_PSEUDO_PHILOX4_32_10));
  CHECK(curandSetPseudoRandomGeneratorSeed(generator, 1234));
  double seconds = timed([&] { CHECK(curandGenerateUniform(generator, memory, n)); });
  double uniform = 0, normal = 0, squares = 0;
  for (const float value : to_host(memory, n)) uniform += value;
  seconds += timed([&] { CHECK(curandGenerateNormal(generator, memory, n, 0, 1)); });
  for (const float value : to_host(memory, n)) {
    normal += value;
    squares += static_cast<double>(value) * value;
  }
  CHECK(curandDestroyGenerator(generator));
  const double count = static_cast<double>(n);
  const bool right = std::fabs(uniform / count - 0.5) < 0.01 && std::fabs(normal / count) < 0.01 &&
                     std::fabs(squares / count - 1) < 0.01;
  return report(right, {uniform, normal, squares}, seconds);
}
