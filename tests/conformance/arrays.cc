// Arrays and mipmapped arrays: what there can be, what they are described by, and copies between
// them, the host and linear memory in all shapes.
#include <functional>

#include "tests/conformance/conformance.h"

namespace {

using Bytes = std::vector<unsigned char>;

CUDA_ARRAY3D_DESCRIPTOR describe(size_t width, size_t height, size_t depth, CUarray_format format,
                                 unsigned channels, unsigned flags = 0) {
  CUDA_ARRAY3D_DESCRIPTOR descriptor{};
  descriptor.Width = width;
  descriptor.Height = height;
  descriptor.Depth = depth;
  descriptor.Format = format;
  descriptor.NumChannels = channels;
  descriptor.Flags = flags;
  return descriptor;
}

Bytes pattern(size_t bytes, unsigned seed) {
  Bytes made(bytes);
  for (size_t i = 0; i < bytes; ++i)
    made[i] = static_cast<unsigned char>(i * 31 + (i >> 8) * 7 + seed);
  return made;
}

void show_description(CUarray array) {
  CUDA_ARRAY3D_DESCRIPTOR d{};
  SHOW(cuArray3DGetDescriptor(&d, array));
  std::printf("  %zu x %zu x %zu, format %d, %u channels, flags %u\n", d.Width, d.Height, d.Depth,
              static_cast<int>(d.Format), d.NumChannels, d.Flags);
}

void creation() {
  std::puts("creation");
  CUarray array = nullptr;
  struct Case {
    const char* name;
    CUDA_ARRAY3D_DESCRIPTOR descriptor;
  };
  constexpr auto kByte = CU_AD_FORMAT_UNSIGNED_INT8, kFloat = CU_AD_FORMAT_FLOAT;
  const Case cases[] = {
      {"1D", describe(100, 0, 0, kFloat, 1)},
      {"2D", describe(33, 7, 0, kByte, 4)},
      {"3D", describe(9, 8, 7, CU_AD_FORMAT_HALF, 2)},
      {"1D layered", describe(64, 0, 5, CU_AD_FORMAT_SIGNED_INT16, 1, CUDA_ARRAY3D_LAYERED)},
      {"2D layered", describe(16, 12, 3, CU_AD_FORMAT_UNSIGNED_INT32, 1, CUDA_ARRAY3D_LAYERED)},
      {"cube", describe(8, 8, 6, kFloat, 4, CUDA_ARRAY3D_CUBEMAP)},
      {"layered cube", describe(8, 8, 12, kFloat, 1, CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_LAYERED)},
      {"surface", describe(32, 32, 0, CU_AD_FORMAT_SIGNED_INT32, 4, CUDA_ARRAY3D_SURFACE_LDST)},
      {"gather", describe(32, 32, 0, kFloat, 1, CUDA_ARRAY3D_TEXTURE_GATHER)},
      {"normalized", describe(10, 10, 0, CU_AD_FORMAT_UNORM_INT8X4, 4)},
      {"no width", describe(0, 4, 0, kByte, 1)},
      {"three channels", describe(4, 4, 0, kByte, 3)},
      {"no channels", describe(4, 4, 0, kByte, 0)},
      {"no such format", describe(4, 4, 0, static_cast<CUarray_format>(0x77), 1)},
      {"depth without height", describe(4, 0, 4, kByte, 1)},
      {"no layers", describe(4, 4, 0, kByte, 1, CUDA_ARRAY3D_LAYERED)},
      {"cube that is none", describe(8, 4, 6, kByte, 1, CUDA_ARRAY3D_CUBEMAP)},
      {"cube of seven faces", describe(8, 8, 7, kByte, 1, CUDA_ARRAY3D_CUBEMAP)},
      {"gather of 3D", describe(8, 8, 8, kByte, 1, CUDA_ARRAY3D_TEXTURE_GATHER)},
      {"too wide", describe(size_t{1} << 40, 4, 0, kByte, 1)},
      {"larger than anything", describe(SIZE_MAX, SIZE_MAX, SIZE_MAX, kFloat, 4)},
      {"unknown flags", describe(4, 4, 0, kByte, 1, 0x10000)},
  };
  for (const Case& one : cases) {
    const CUresult result = show(one.name, cuArray3DCreate(&array, &one.descriptor));
    if (result != CUDA_SUCCESS) continue;
    show_description(array);
    CUDA_ARRAY_DESCRIPTOR flat{};
    SHOW(cuArrayGetDescriptor(&flat, array));
    std::printf("  %zu x %zu\n", flat.Width, flat.Height);
    SHOW(cuArrayDestroy(array));
  }
  CUDA_ARRAY_DESCRIPTOR flat{};
  flat.Width = 50;
  flat.Height = 20;
  flat.Format = kFloat;
  flat.NumChannels = 2;
  SHOW(cuArrayCreate(&array, &flat));
  show_description(array);
  SHOW(cuArray3DGetDescriptor(nullptr, array));
  SHOW(cuArrayDestroy(array));
  SHOW(cuArrayDestroy(nullptr));
  SHOW(cuArrayCreate(&array, nullptr));
  SHOW(cuArrayCreate(nullptr, &flat));
  SHOW(cuArray3DCreate(&array, nullptr));
}

void parts() {
  std::puts("parts");
  CUmipmappedArray mipmap = nullptr;
  CUDA_ARRAY3D_DESCRIPTOR d = describe(64, 20, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1);
  NEED(cuMipmappedArrayCreate(&mipmap, &d, 4));
  CUarray level = nullptr, again = nullptr;
  for (unsigned i = 0; i < 5; ++i) {
    std::printf("level %u\n", i);
    if (SHOW(cuMipmappedArrayGetLevel(&level, mipmap, i)) != CUDA_SUCCESS) continue;
    show_description(level);
    SHOW(cuMipmappedArrayGetLevel(&again, mipmap, i));
    VALUE(level == again);
  }
  const Bytes in = pattern(32 * 10, 3);
  Bytes out(in.size());
  NEED(cuMipmappedArrayGetLevel(&level, mipmap, 1));
  CUDA_MEMCPY2D up{};
  up.srcMemoryType = CU_MEMORYTYPE_HOST;
  up.srcHost = in.data();
  up.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  up.dstArray = level;
  up.WidthInBytes = 32;
  up.Height = 10;
  SHOW(cuMemcpy2D(&up));
  SHOW(cuMemcpyAtoH(out.data(), level, 0, 32));
  VALUE(std::memcmp(in.data(), out.data(), 32));
  SHOW(cuMipmappedArrayDestroy(mipmap));
  d = describe(8, 8, 6, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_CUBEMAP);
  SHOW(cuMipmappedArrayCreate(&mipmap, &d, 100));
  SHOW(cuMipmappedArrayGetLevel(&level, mipmap, 3));
  show_description(level);
  SHOW(cuMipmappedArrayGetLevel(&level, mipmap, 4));
  SHOW(cuMipmappedArrayDestroy(mipmap));
  SHOW(cuMipmappedArrayCreate(&mipmap, &d, 0));
  SHOW(cuMipmappedArrayCreate(&mipmap, nullptr, 1));

  CUarray image = nullptr, plane = nullptr;
  d = describe(16, 16, 0, CU_AD_FORMAT_FLOAT, 1);
  NEED(cuArray3DCreate(&image, &d));
  SHOW(cuArrayGetPlane(&plane, image, 0));
  CUDA_ARRAY_SPARSE_PROPERTIES sparse{};
  SHOW(cuArrayGetSparseProperties(&sparse, image));
  CUDA_ARRAY_MEMORY_REQUIREMENTS requirements{};
  SHOW(cuArrayGetMemoryRequirements(&requirements, image, 0));
  SHOW(cuArrayDestroy(image));
}

// Not on the GPU that was asked: it makes no such arrays.
void planes() {
  std::puts("planes");
  CUarray image = nullptr, plane = nullptr;
  const CUDA_ARRAY3D_DESCRIPTOR d = describe(64, 32, 0, CU_AD_FORMAT_NV12, 3);
  SHOW(cuArray3DCreate(&image, &d));
  for (unsigned i = 0; i < 3; ++i) {
    if (SHOW(cuArrayGetPlane(&plane, image, i)) == CUDA_SUCCESS) show_description(plane);
  }
  SHOW(cuArrayDestroy(image));
}

// Host memory of every kind, with its bytes.
struct Memory {
  const char* name;
  unsigned char* bytes;
};

void for_each_memory(size_t bytes, const std::function<void(const Memory&)>& body) {
  Bytes pageable(bytes), registered(bytes + 4096);
  body({"pageable", pageable.data()});
  void* pinned = nullptr;
  NEED(cuMemHostAlloc(&pinned, bytes, 0));
  body({"pinned", static_cast<unsigned char*>(pinned)});
  NEED(cuMemFreeHost(pinned));
  NEED(cuMemHostAlloc(&pinned, bytes, CU_MEMHOSTALLOC_DEVICEMAP));
  body({"mapped", static_cast<unsigned char*>(pinned)});
  NEED(cuMemFreeHost(pinned));
  NEED(cuMemHostRegister(registered.data(), bytes, 0));
  body({"registered", registered.data()});
  NEED(cuMemHostUnregister(registered.data()));
}

// There and back, in one go and through a window, synchronously and in a stream.
void there_and_back(size_t width, size_t height, size_t depth, const CUDA_ARRAY3D_DESCRIPTOR& d) {
  CUarray array = nullptr;
  NEED(cuArray3DCreate(&array, &d));
  CUstream stream = nullptr;
  NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  const size_t bytes = width * height * depth;
  const Bytes source = pattern(bytes, 11);
  for_each_memory(bytes, [&](const Memory& memory) {
    std::printf("%s, %zu bytes\n", memory.name, bytes);
    std::memcpy(memory.bytes, source.data(), bytes);
    CUDA_MEMCPY3D up{};
    up.srcMemoryType = CU_MEMORYTYPE_HOST;
    up.srcHost = memory.bytes;
    up.srcPitch = width;
    up.srcHeight = height;
    up.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    up.dstArray = array;
    up.WidthInBytes = width;
    up.Height = height;
    up.Depth = depth;
    CUDA_MEMCPY3D down{};
    down.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    down.srcArray = array;
    down.dstMemoryType = CU_MEMORYTYPE_HOST;
    down.dstHost = memory.bytes;
    down.dstPitch = width;
    down.dstHeight = height;
    down.WidthInBytes = width;
    down.Height = height;
    down.Depth = depth;
    SHOW(cuMemcpy3D(&up));
    std::memset(memory.bytes, 0, bytes);
    SHOW(cuMemcpy3D(&down));
    VALUE(std::memcmp(memory.bytes, source.data(), bytes));
    for (size_t i = 0; i < bytes; ++i) memory.bytes[i] = static_cast<unsigned char>(~source[i]);
    SHOW(cuMemcpy3DAsync(&up, stream));
    down.dstHost = memory.bytes;
    SHOW(cuMemcpy3DAsync(&down, stream));
    SHOW(cuStreamSynchronize(stream));
    std::printf("  inverted %08x\n", checksum(memory.bytes, bytes));
    if (height < 3) return;
    // A window in the middle.
    Bytes window(width * height * depth, 9);
    down.dstHost = window.data();
    down.srcXInBytes = 16;
    down.srcY = 1;
    down.WidthInBytes = width - 32;
    down.Height = height - 2;
    SHOW(cuMemcpy3D(&down));
    std::printf("  window %08x\n", checksum(window));
  });
  NEED(cuStreamDestroy(stream));
  NEED(cuArrayDestroy(array));
}

void between_arrays() {
  std::puts("between arrays and linear memory");
  const size_t width = 128, height = 16, depth = 4, bytes = width * height * depth;
  const CUDA_ARRAY3D_DESCRIPTOR d =
      describe(width / 4, height, depth, CU_AD_FORMAT_UNSIGNED_INT32, 1);
  CUarray one = nullptr, two = nullptr;
  NEED(cuArray3DCreate(&one, &d));
  NEED(cuArray3DCreate(&two, &d));
  CUdeviceptr linear = 0;
  NEED(cuMemAlloc(&linear, bytes));
  const Bytes in = pattern(bytes, 5);
  Bytes out(bytes);
  NEED(cuMemcpyHtoD(linear, in.data(), bytes));
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = linear;
  copy.srcPitch = width;
  copy.srcHeight = height;
  copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.dstArray = one;
  copy.WidthInBytes = width;
  copy.Height = height;
  copy.Depth = depth;
  SHOW(cuMemcpy3D(&copy));
  copy.dstArray = two;
  SHOW(cuMemcpy3D(&copy));
  CUDA_MEMCPY3D across{};
  across.srcMemoryType = across.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  across.srcArray = one;
  across.dstArray = two;
  across.srcXInBytes = 4;
  across.srcZ = 1;
  across.dstY = 2;
  across.WidthInBytes = width - 8;
  across.Height = height - 3;
  across.Depth = depth - 1;
  SHOW(cuMemcpy3DAsync(&across, nullptr));
  CUDA_MEMCPY3D back{};
  back.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  back.srcArray = two;
  back.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  back.dstDevice = linear;
  back.dstPitch = width;
  back.dstHeight = height;
  back.WidthInBytes = width;
  back.Height = height;
  back.Depth = depth;
  SHOW(cuMemcpy3D(&back));
  SHOW(cuMemcpyDtoH(out.data(), linear, bytes));
  std::printf("  %08x\n", checksum(out));

  SHOW(cuMemcpyDtoA(one, 8, linear + 16, 64));
  SHOW(cuMemcpyAtoA(two, 0, one, 8, 64));
  SHOW(cuMemcpyAtoD(linear, two, 4, 32));
  SHOW(cuMemcpyDtoH(out.data(), linear, bytes));
  std::printf("  %08x\n", checksum(out));
  CUstream stream = nullptr;
  NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  Bytes small = pattern(100, 77);
  SHOW(cuMemcpyHtoAAsync(one, 12, small.data(), 100, stream));
  std::memset(small.data(), 0, small.size());  // pageable memory was taken
  SHOW(cuMemcpyAtoHAsync(out.data(), one, 0, 128, stream));
  SHOW(cuStreamSynchronize(stream));
  std::printf("  %08x\n", checksum(out.data(), 128));
  SHOW(cuMemcpyHtoA(two, 0, in.data(), 128));
  SHOW(cuMemcpyAtoH(out.data(), two, 64, 64));
  VALUE(std::memcmp(out.data(), in.data() + 64, 64));

  std::puts("wrong copies");
  SHOW(cuMemcpyHtoA(two, 0, in.data(), 132));
  SHOW(cuMemcpyHtoA(two, SIZE_MAX - 3, in.data(), 8));
  SHOW(cuMemcpyHtoA(nullptr, 0, in.data(), 8));
  SHOW(cuMemcpyAtoA(one, 0, nullptr, 0, 8));
  SHOW(cuMemcpyAtoH(nullptr, one, 0, 8));
  SHOW(cuMemcpyAtoD(0, one, 0, 8));
  SHOW(cuMemcpyDtoA(one, 0, linear + bytes - 4, 8));
  SHOW(cuMemcpyHtoA(two, 0, in.data(), 0));
  CUDA_MEMCPY3D bad = back;
  bad.srcZ = 1;
  SHOW(cuMemcpy3D(&bad));
  bad = back;
  bad.Height = height + 1;
  bad.dstHeight = 0;
  SHOW(cuMemcpy3D(&bad));
  bad = back;
  bad.srcArray = nullptr;
  SHOW(cuMemcpy3DAsync(&bad, stream));

  std::puts("batches");
  CUDA_MEMCPY3D_BATCH_OP ops[2]{};
  for (auto& op : ops) {
    op.extent = {8, 4, 2};
    op.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    op.dst.type = CU_MEMCPY_OPERAND_TYPE_ARRAY;
    op.dst.op.array.array = two;
  }
  ops[0].src.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
  ops[0].src.op.ptr.ptr = linear;
  ops[0].src.op.ptr.rowLength = 16;
  ops[0].dst.op.array.offset = {3, 2, 1};
  ops[1].src.type = CU_MEMCPY_OPERAND_TYPE_ARRAY;
  ops[1].src.op.array.array = one;
  ops[1].dst.op.array.offset = {20, 8, 0};
  SHOW(cuMemcpy3DBatchAsync(2, ops, 0, stream));
  SHOW(cuStreamSynchronize(stream));
  SHOW(cuMemcpy3D(&back));
  SHOW(cuMemcpyDtoH(out.data(), linear, bytes));
  std::printf("  %08x\n", checksum(out));
  ops[1].dst.op.array.offset = {25, 8, 0};
  SHOW(cuMemcpy3DBatchAsync(2, ops, 0, stream));
  NEED(cuStreamSynchronize(stream));
  NEED(cuStreamDestroy(stream));
  SHOW(cuMemFree(linear));
  SHOW(cuArrayDestroy(one));
  SHOW(cuArrayDestroy(two));
}

// An array takes memory, and gives it back.
void memory() {
  std::puts("memory");
  size_t before = 0, with = 0, after = 0, total = 0;
  NEED(cuMemGetInfo(&before, &total));
  const CUDA_ARRAY3D_DESCRIPTOR d = describe(1024, 1024, 0, CU_AD_FORMAT_FLOAT, 1);
  CUarray array = nullptr;
  NEED(cuArray3DCreate(&array, &d));
  NEED(cuMemGetInfo(&with, &total));
  NEED(cuArrayDestroy(array));
  NEED(cuMemGetInfo(&after, &total));
  VALUE(before - with >= 4u << 20);
  VALUE(before == after);
}

}  // namespace

// With an argument: arrays of several planes.
int main(int argc, char**) {
  CUcontext context = make_context();
  if (argc > 1) {
    planes();
    return 0;
  }
  creation();
  parts();
  there_and_back(512, 1, 1, describe(128, 0, 0, CU_AD_FORMAT_FLOAT, 1));
  there_and_back(300 * 4, 50, 1, describe(300, 50, 0, CU_AD_FORMAT_UNSIGNED_INT8, 4));
  there_and_back(64 * 8, 9, 5, describe(64, 9, 5, CU_AD_FORMAT_HALF, 4));
  there_and_back(96, 1, 7, describe(48, 0, 7, CU_AD_FORMAT_SIGNED_INT16, 1, CUDA_ARRAY3D_LAYERED));
  there_and_back(128, 32, 6, describe(32, 32, 6, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_CUBEMAP));
  // Through staging memory, in several pieces.
  there_and_back(4096 * 4, 700, 1, describe(4096, 700, 0, CU_AD_FORMAT_FLOAT, 1));
  there_and_back(1024 * 16, 64, 5, describe(1024, 64, 5, CU_AD_FORMAT_FLOAT, 4));
  between_arrays();
  memory();
  // What still lives goes with the context.
  CUarray array = nullptr;
  const CUDA_ARRAY3D_DESCRIPTOR d = describe(16, 16, 0, CU_AD_FORMAT_FLOAT, 1);
  NEED(cuArray3DCreate(&array, &d));
  SHOW(cuCtxDestroy(context));
  return 0;
}
