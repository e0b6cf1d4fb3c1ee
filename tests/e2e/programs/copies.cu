// Copies with pitches in 2D and 3D, between host and device and device and device, sync and async,
// and copies of one byte.
#include <cstring>
#include <vector>

#include "expect.h"

static void two_dimensions() {
  for (int width : {1, 33, 512, 1000}) {
    const int height = 19, host_pitch = 1024;
    std::vector<unsigned char> in(host_pitch * height), out(in.size(), 3);
    for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<unsigned char>(i * 11 + width);
    unsigned char *a, *b;
    size_t pitch_a, pitch_b;
    CHECK(cudaMallocPitch(&a, &pitch_a, width, height));
    CHECK(cudaMallocPitch(&b, &pitch_b, width + 600, height));
    CHECK(cudaMemset2D(b, pitch_b, 9, width + 600, height));
    CHECK(cudaMemcpy2DAsync(a, pitch_a, in.data(), host_pitch, width, height,
                            cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy2D(b + 5, pitch_b, a, pitch_a, width, height, cudaMemcpyDeviceToDevice));
    CHECK(cudaMemcpy2D(out.data(), host_pitch, b + 4, pitch_b, width + 1, height,
                       cudaMemcpyDeviceToHost));
    for (int y = 0; y < height; ++y) {
      EXPECT(out[y * host_pitch] == 9);
      for (int x = 0; x < width; ++x) EXPECT(out[y * host_pitch + 1 + x] == in[y * host_pitch + x]);
      if (width + 1 < host_pitch) EXPECT(out[y * host_pitch + width + 1] == 3);
    }
    CHECK(cudaFree(a));
    CHECK(cudaFree(b));
  }
}

static void three_dimensions() {
  const int width = 24, height = 10, depth = 6;
  std::vector<float> in(width * height * depth), out(in.size(), -1);
  for (size_t i = 0; i < in.size(); ++i) in[i] = 0.5f * i;
  cudaPitchedPtr volume;
  cudaExtent whole = make_cudaExtent(width * sizeof(float), height, depth);
  CHECK(cudaMalloc3D(&volume, whole));
  CHECK(cudaMemset3D(volume, 0, whole));
  cudaMemcpy3DParms copy{};
  copy.srcPtr = make_cudaPitchedPtr(in.data(), width * sizeof(float), width, height);
  copy.dstPtr = volume;
  copy.extent = whole;
  copy.kind = cudaMemcpyHostToDevice;
  CHECK(cudaMemcpy3DAsync(&copy, 0));
  // A box of it back, to a place inside the host's volume.
  cudaMemcpy3DParms back{};
  back.srcPtr = volume;
  back.srcPos = make_cudaPos(4 * sizeof(float), 2, 1);
  back.dstPtr = make_cudaPitchedPtr(out.data(), width * sizeof(float), width, height);
  back.dstPos = make_cudaPos(1 * sizeof(float), 1, 2);
  back.extent = make_cudaExtent(7 * sizeof(float), 5, 3);
  back.kind = cudaMemcpyDeviceToHost;
  CHECK(cudaMemcpy3D(&back));
  for (int z = 0; z < depth; ++z) {
    for (int y = 0; y < height; ++y) {
      for (int x = 0; x < width; ++x) {
        const bool inside = x >= 1 && x < 8 && y >= 1 && y < 6 && z >= 2 && z < 5;
        const float want = inside ? in[((z - 1) * height + y + 1) * width + x + 3] : -1;
        EXPECT(out[(z * height + y) * width + x] == want);
      }
    }
  }
  CHECK(cudaFree(volume.ptr));
}

static void odd_sizes() {
  char* p;
  CHECK(cudaMalloc(&p, 200));
  char text[100];
  for (int n = 1; n < 60; n += 7) {
    std::memset(text, n, sizeof(text));
    CHECK(cudaMemcpy(p + n, text, n, cudaMemcpyDefault));
    std::memset(text, 0, sizeof(text));
    CHECK(cudaMemcpy(text, p + n, n, cudaMemcpyDefault));
    for (int i = 0; i < 100; ++i) EXPECT(text[i] == (i < n ? n : 0));
  }
  EXPECT_ERROR(cudaMemcpy(nullptr, p, 4, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
  cudaGetLastError();
  CHECK(cudaFree(p));
}

int main() {
  two_dimensions();
  three_dimensions();
  odd_sizes();
  std::printf("copies: right\n");
  return 0;
}
