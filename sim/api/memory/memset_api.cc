// Fills.
#include "sim/object/api.h"
#include "sim/work/copy.h"

using namespace fargpu::sim;

namespace {

CUresult fill(CUstream stream, const Fill& what, bool synchronous) {
  return with_stream(stream, [&](Context& context, const std::shared_ptr<Stream>& target) {
    return submit_fill(context, target, what, synchronous);
  });
}

}  // namespace

CUresult CUDAAPI cuMemsetD8_v2(CUdeviceptr dstDevice, unsigned char uc, size_t N) {
  return fill(nullptr, {dstDevice, 0, N, 1, uc, 1}, true);
}
CUresult CUDAAPI cuMemsetD16_v2(CUdeviceptr dstDevice, unsigned short us, size_t N) {
  return fill(nullptr, {dstDevice, 0, N, 1, us, 2}, true);
}
CUresult CUDAAPI cuMemsetD32_v2(CUdeviceptr dstDevice, unsigned int ui, size_t N) {
  return fill(nullptr, {dstDevice, 0, N, 1, ui, 4}, true);
}
CUresult CUDAAPI cuMemsetD2D8_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc,
                                 size_t Width, size_t Height) {
  return fill(nullptr, {dstDevice, dstPitch, Width, Height, uc, 1}, true);
}
CUresult CUDAAPI cuMemsetD2D16_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us,
                                  size_t Width, size_t Height) {
  return fill(nullptr, {dstDevice, dstPitch, Width, Height, us, 2}, true);
}
CUresult CUDAAPI cuMemsetD2D32_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui,
                                  size_t Width, size_t Height) {
  return fill(nullptr, {dstDevice, dstPitch, Width, Height, ui, 4}, true);
}

CUresult CUDAAPI cuMemsetD8Async(CUdeviceptr dstDevice, unsigned char uc, size_t N,
                                 CUstream hStream) {
  return fill(hStream, {dstDevice, 0, N, 1, uc, 1}, false);
}
CUresult CUDAAPI cuMemsetD16Async(CUdeviceptr dstDevice, unsigned short us, size_t N,
                                  CUstream hStream) {
  return fill(hStream, {dstDevice, 0, N, 1, us, 2}, false);
}
CUresult CUDAAPI cuMemsetD32Async(CUdeviceptr dstDevice, unsigned int ui, size_t N,
                                  CUstream hStream) {
  return fill(hStream, {dstDevice, 0, N, 1, ui, 4}, false);
}
CUresult CUDAAPI cuMemsetD2D8Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc,
                                   size_t Width, size_t Height, CUstream hStream) {
  return fill(hStream, {dstDevice, dstPitch, Width, Height, uc, 1}, false);
}
CUresult CUDAAPI cuMemsetD2D16Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us,
                                    size_t Width, size_t Height, CUstream hStream) {
  return fill(hStream, {dstDevice, dstPitch, Width, Height, us, 2}, false);
}
CUresult CUDAAPI cuMemsetD2D32Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui,
                                    size_t Width, size_t Height, CUstream hStream) {
  return fill(hStream, {dstDevice, dstPitch, Width, Height, ui, 4}, false);
}
