// 2D and 3D copies: rows with a pitch on the device, a window of a larger picture on the host, a
// box of a volume.
#include <vector>

#include "check.h"

__global__ void invert(unsigned char* pixels, size_t pitch, int width, int height) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
  if (x < width && y < height) pixels[y * pitch + x] = 255 - pixels[y * pitch + x];
}

__global__ void add_depth(cudaPitchedPtr volume, int width, int height) {
  int x = threadIdx.x, y = blockIdx.x, z = blockIdx.y;
  if (x < width && y < height) {
    char* slice = static_cast<char*>(volume.ptr) + z * volume.pitch * volume.ysize;
    reinterpret_cast<int*>(slice + y * volume.pitch)[x] += 1000 * z;
  }
}

int main() {
  long wrong = 0;
  {
    const int width = 301, height = 77, host_pitch = 512;
    std::vector<unsigned char> in(host_pitch * height), out(host_pitch * height, 9);
    for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<unsigned char>(i * 13);
    unsigned char* pixels;
    size_t pitch;
    CHECK(cudaMallocPitch(&pixels, &pitch, width, height));
    CHECK(
        cudaMemcpy2D(pixels, pitch, in.data(), host_pitch, width, height, cudaMemcpyHostToDevice));
    invert<<<dim3((width + 63) / 64, height), 64>>>(pixels, pitch, width, height);
    CHECK(
        cudaMemcpy2D(out.data(), host_pitch, pixels, pitch, width, height, cudaMemcpyDeviceToHost));
    for (int i = 0; i < host_pitch * height; ++i) {
      // bytes beyond the width stay as they were
      unsigned char want = i % host_pitch < width ? 255 - in[i] : 9;
      wrong += out[i] != want;
    }
    CHECK(cudaFree(pixels));
  }
  {
    const int width = 30, height = 11, depth = 5;
    std::vector<int> in(width * height * depth), out(in.size());
    for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<int>(i);
    cudaExtent extent = make_cudaExtent(width * sizeof(int), height, depth);
    cudaPitchedPtr volume;
    CHECK(cudaMalloc3D(&volume, extent));
    cudaMemcpy3DParms up{}, down{};
    up.srcPtr = make_cudaPitchedPtr(in.data(), width * sizeof(int), width, height);
    up.dstPtr = volume;
    up.extent = extent;
    up.kind = cudaMemcpyHostToDevice;
    CHECK(cudaMemcpy3D(&up));
    add_depth<<<dim3(height, depth), 32>>>(volume, width, height);
    down.srcPtr = volume;
    down.dstPtr = make_cudaPitchedPtr(out.data(), width * sizeof(int), width, height);
    down.extent = extent;
    down.kind = cudaMemcpyDeviceToHost;
    CHECK(cudaMemcpy3D(&down));
    for (size_t i = 0; i < in.size(); ++i) {
      wrong += out[i] != in[i] + 1000 * static_cast<int>(i / (width * height));
    }
    CHECK(cudaFree(volume.ptr));
  }
  return report("pitched_copies", wrong);
}
