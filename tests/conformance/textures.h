// What programs about textures and surfaces share: kernels that use one object, how they are run,
// and the descriptions that most objects are made from.
#pragma once

#include "tests/conformance/conformance.h"

// What a kernel takes and gives for each thread.
struct Word4 {
  float x = 0, y = 0, z = 0, w = 0;
};
struct Int4 {
  int x = 0, y = 0, z = 0, w = 0;
};

// Begins a module of such kernels.
inline constexpr char kImageModule[] = ".version 7.5\n.target sm_75\n.address_size 64\n";

// A kernel that gives each thread four words of `in` as %c1 .. %c4, the object as %x, and takes
// %o1 .. %o4.
inline std::string image_kernel(const std::string& name, const std::string& body) {
  return ".visible .entry " + name + R"ptx((
  .param .u64 object, .param .u64 in, .param .u64 out, .param .u32 n)
{
  .reg .pred %p;
  .reg .b16 %h<5>;
  .reg .b32 %i, %n, %t, %c<5>, %o<5>;
  .reg .b64 %x, %in, %out, %at;
  mov.u32 %i, %ctaid.x;
  mov.u32 %t, %ntid.x;
  mov.u32 %n, %tid.x;
  mad.lo.u32 %i, %i, %t, %n;
  ld.param.u32 %n, [n];
  setp.ge.u32 %p, %i, %n;
  @%p bra DONE;
  ld.param.u64 %x, [object];
  ld.param.u64 %in, [in];
  ld.param.u64 %out, [out];
  mul.wide.u32 %at, %i, 16;
  add.u64 %in, %in, %at;
  add.u64 %out, %out, %at;
  ld.global.v4.u32 {%c1, %c2, %c3, %c4}, [%in];
  mov.u32 %o1, 0;
  mov.u32 %o2, 0;
  mov.u32 %o3, 0;
  mov.u32 %o4, 0;
)ptx" + body +
         R"ptx(
  st.global.v4.u32 [%out], {%o1, %o2, %o3, %o4};
DONE:
  ret;
}
)ptx";
}

// What the kernel makes of each of the inputs: four words for each.
template <typename In>
CUresult run_kernel(CUfunction function, unsigned long long object, const std::vector<In>& in,
                    std::vector<uint32_t>* out) {
  static_assert(sizeof(In) == 16);
  const size_t bytes = in.size() * sizeof(In);
  CUdeviceptr from, to;
  NEED(cuMemAlloc(&from, bytes));
  NEED(cuMemAlloc(&to, bytes));
  NEED(cuMemcpyHtoD(from, in.data(), bytes));
  auto n = static_cast<unsigned>(in.size());
  void* parameters[] = {&object, &from, &to, &n};
  CUresult result =
      cuLaunchKernel(function, (n + 63) / 64, 1, 1, 64, 1, 1, 0, nullptr, parameters, nullptr);
  out->resize(in.size() * 4);
  if (result == CUDA_SUCCESS) result = cuMemcpyDtoH(out->data(), to, bytes);
  if (result != CUDA_SUCCESS) return result;
  NEED(cuMemFree(from));
  NEED(cuMemFree(to));
  return result;
}

// All of an array, from its host image or to it: rows of `row` bytes, one behind the other.
inline CUDA_MEMCPY3D whole_copy(CUarray array, void* host, size_t row, bool to_array) {
  CUDA_ARRAY3D_DESCRIPTOR d{};
  NEED(cuArray3DGetDescriptor(&d, array));
  const size_t rows = d.Height == 0 ? 1 : d.Height;
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = to_array ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_ARRAY;
  copy.dstMemoryType = to_array ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_HOST;
  (to_array ? copy.dstArray : copy.srcArray) = array;
  if (to_array) {
    copy.srcHost = host;
  } else {
    copy.dstHost = host;
  }
  copy.srcPitch = copy.dstPitch = row;
  copy.srcHeight = copy.dstHeight = rows;
  copy.WidthInBytes = row;
  copy.Height = rows;
  copy.Depth = d.Depth == 0 ? 1 : d.Depth;
  return copy;
}

inline CUDA_RESOURCE_DESC of(CUarray array) {
  CUDA_RESOURCE_DESC resource{};
  resource.resType = CU_RESOURCE_TYPE_ARRAY;
  resource.res.array.hArray = array;
  return resource;
}

inline CUDA_TEXTURE_DESC sampler(CUaddress_mode mode, CUfilter_mode filter, unsigned flags) {
  CUDA_TEXTURE_DESC texture{};
  for (auto& each : texture.addressMode) each = mode;
  texture.filterMode = filter;
  texture.flags = flags;
  texture.borderColor[0] = 0.5f;
  texture.borderColor[3] = 2;
  return texture;
}
