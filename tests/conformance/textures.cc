// Texture and surface objects over every kind of resource: their descriptions, and what kernels
// fetch, load and store through them.
#include "tests/conformance/textures.h"

namespace {

std::string module_text() {
  const std::string four = " {%o1, %o2, %o3, %o4}, ";
  std::string text = kImageModule;
  text += image_kernel("linear", "tex.1d.v4.f32.s32" + four + "[%x, {%c1}];");
  text += image_kernel("linear_u", "tex.1d.v4.u32.s32" + four + "[%x, {%c1}];");
  text += image_kernel("one", "tex.1d.v4.f32.f32" + four + "[%x, {%c1}];");
  text += image_kernel("two", "tex.2d.v4.f32.f32" + four + "[%x, {%c1, %c2}];");
  text += image_kernel("two_u", "tex.2d.v4.u32.f32" + four + "[%x, {%c1, %c2}];");
  text += image_kernel("three", "tex.3d.v4.f32.f32" + four + "[%x, {%c1, %c2, %c3, %c4}];");
  text += image_kernel("layers", "tex.a2d.v4.f32.f32" + four + "[%x, {%c4, %c1, %c2, %c2}];");
  text += image_kernel("cube", "tex.cube.v4.f32.f32" + four + "[%x, {%c1, %c2, %c3, %c4}];");
  text += image_kernel("level", "tex.level.2d.v4.f32.f32" + four + "[%x, {%c1, %c2}], %c3;");
  text += image_kernel(
      "steps", "tex.grad.2d.v4.f32.f32" + four + "[%x, {%c1, %c2}], {%c3, %c3}, {%c4, %c4};");
  text += image_kernel("gather", "tld4.r.2d.v4.f32.f32" + four + "[%x, {%c1, %c2}];");
  text += image_kernel("sizes",
                       "txq.width.b32 %o1, [%x]; txq.height.b32 %o2, [%x];\n"
                       "txq.depth.b32 %o3, [%x]; txq.num_mipmap_levels.b32 %o4, [%x];");
  text += image_kernel("load_clamp", "suld.b.2d.v4.b32.clamp" + four + "[%x, {%c1, %c2}];");
  text += image_kernel("load_zero", "suld.b.2d.b32.zero %o1, [%x, {%c1, %c2}];");
  text += image_kernel("load_trap", "suld.b.2d.b32.trap %o1, [%x, {%c1, %c2}];");
  text +=
      image_kernel("load_byte", "suld.b.2d.b8.trap %h1, [%x, {%c1, %c2}]; cvt.u32.u16 %o1, %h1;");
  text += image_kernel("store", "sust.b.2d.b32.zero [%x, {%c1, %c2}], %c3;");
  text +=
      image_kernel("store_byte", "cvt.u16.u32 %h1, %c3; sust.b.2d.b8.zero [%x, {%c1, %c2}], %h1;");
  text += image_kernel("store_layer", "sust.b.a2d.b32.zero [%x, {%c4, %c1, %c2, %c2}], %c3;");
  text += image_kernel("store_deep", "sust.b.3d.b32.zero [%x, {%c1, %c2, %c4, %c4}], %c3;");
  text += image_kernel("add_up", "sured.b.add.2d.u32.zero [%x, {%c1, %c2}], %c3;");
  return text;
}

CUmodule module_;

// Prints what the kernel makes of each of the inputs.
template <typename In>
CUresult run(const char* name, unsigned long long object, const std::vector<In>& in,
             bool print = true) {
  CUfunction function;
  // A driver may leave out a kernel that asks for the sizes of a texture.
  if (const CUresult found = cuModuleGetFunction(&function, module_, name); found != CUDA_SUCCESS) {
    std::printf("%s: no such kernel: %s\n", name, error_name(found));
    return found;
  }
  std::vector<uint32_t> out;
  const CUresult result = run_kernel(function, object, in, &out);
  std::printf("%s: %s\n", name, error_name(result));
  if (result != CUDA_SUCCESS) return result;
  if (print && in.size() <= 64) {
    for (size_t i = 0; i < out.size(); i += 4)
      std::printf("  %08x %08x %08x %08x\n", out[i], out[i + 1], out[i + 2], out[i + 3]);
  } else if (print) {
    std::printf("  %08x\n", checksum(out));
  }
  return result;
}

CUarray make_array(size_t width, size_t height, size_t depth, CUarray_format format,
                   unsigned channels, size_t bytes, unsigned flags = 0) {
  CUDA_ARRAY3D_DESCRIPTOR d{};
  d.Width = width;
  d.Height = height;
  d.Depth = depth;
  d.Format = format;
  d.NumChannels = channels;
  d.Flags = flags;
  CUarray array = nullptr;
  NEED(cuArray3DCreate(&array, &d));
  const size_t row = width * bytes * channels, rows = height == 0 ? 1 : height,
               slices = depth == 0 ? 1 : depth;
  std::vector<unsigned char> host(row * rows * slices);
  for (size_t i = 0; i < host.size(); ++i) host[i] = static_cast<unsigned char>(i * 37 + 5);
  if (format == CU_AD_FORMAT_FLOAT) {
    for (size_t i = 0; i < host.size() / 4; ++i) {
      const float value = static_cast<float>((i * 7) % 61) * 0.25f;
      std::memcpy(&host[4 * i], &value, 4);
    }
  }
  const CUDA_MEMCPY3D copy = whole_copy(array, host.data(), row, true);
  NEED(cuMemcpy3D(&copy));
  return array;
}

std::vector<Word4> coordinates(float scale) {
  std::vector<Word4> made;
  for (const float y : {-0.3f, 0.1f, 0.55f, 1.2f})
    for (const float x : {-1.1f, -0.01f, 0.3f, 0.5f, 0.999f, 1.6f})
      made.push_back({x * scale, y * scale, 0.4f * scale, 0});
  return made;
}

void all_modes() {
  std::puts("modes");
  CUarray floats = make_array(9, 5, 0, CU_AD_FORMAT_FLOAT, 1, 4);
  CUarray bytes = make_array(9, 5, 0, CU_AD_FORMAT_UNSIGNED_INT8, 4, 1);
  CUarray halves = make_array(9, 5, 0, CU_AD_FORMAT_SIGNED_INT16, 2, 2);
  for (CUarray array : {floats, bytes, halves}) {
    const CUDA_RESOURCE_DESC resource = of(array);
    for (int mode = CU_TR_ADDRESS_MODE_WRAP; mode <= CU_TR_ADDRESS_MODE_BORDER; ++mode) {
      for (const auto filter : {CU_TR_FILTER_MODE_POINT, CU_TR_FILTER_MODE_LINEAR}) {
        for (const unsigned flags : {0u, unsigned{CU_TRSF_NORMALIZED_COORDINATES}}) {
          const CUDA_TEXTURE_DESC texture =
              sampler(static_cast<CUaddress_mode>(mode), filter, flags);
          CUtexObject object = 0;
          SHOW(cuTexObjectCreate(&object, &resource, &texture, nullptr));
          run("two", object, coordinates(flags == 0 ? 9 : 1));
          SHOW(cuTexObjectDestroy(object));
        }
      }
    }
  }
  const CUDA_RESOURCE_DESC resource = of(bytes);
  CUtexObject object = 0;
  CUDA_TEXTURE_DESC texture =
      sampler(CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_POINT, CU_TRSF_READ_AS_INTEGER);
  SHOW(cuTexObjectCreate(&object, &resource, &texture, nullptr));
  run("two_u", object, coordinates(9));
  NEED(cuTexObjectDestroy(object));
  texture = sampler(CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_LINEAR, CU_TRSF_SRGB);
  SHOW(cuTexObjectCreate(&object, &resource, &texture, nullptr));
  run("two", object, coordinates(9));
  NEED(cuTexObjectDestroy(object));
  for (CUarray array : {floats, bytes, halves}) NEED(cuArrayDestroy(array));
}

void all_resources() {
  std::puts("resources");
  CUtexObject object = 0;
  const CUDA_TEXTURE_DESC linear = sampler(CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_LINEAR, 0);
  const CUDA_TEXTURE_DESC point = sampler(CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_POINT, 0);
  struct Case {
    const char* kernel;
    CUarray array;
  };
  const Case cases[] = {
      {"one", make_array(40, 0, 0, CU_AD_FORMAT_FLOAT, 2, 4)},
      {"three", make_array(7, 6, 5, CU_AD_FORMAT_FLOAT, 1, 4)},
      {"layers", make_array(8, 8, 3, CU_AD_FORMAT_FLOAT, 4, 4, CUDA_ARRAY3D_LAYERED)},
      {"cube", make_array(8, 8, 6, CU_AD_FORMAT_FLOAT, 1, 4, CUDA_ARRAY3D_CUBEMAP)},
      {"gather", make_array(8, 8, 0, CU_AD_FORMAT_FLOAT, 1, 4, CUDA_ARRAY3D_TEXTURE_GATHER)}};
  for (const Case& one : cases) {
    const CUDA_RESOURCE_DESC resource = of(one.array);
    NEED(cuTexObjectCreate(&object, &resource, &linear, nullptr));
    std::vector<Word4> at = coordinates(6);
    if (std::strcmp(one.kernel, "layers") == 0) {
      // The fourth word is the layer.
      const int layer = 1;
      for (Word4& each : at) std::memcpy(&each.w, &layer, sizeof layer);
    }
    run(one.kernel, object, at);
    run("sizes", object, std::vector<Int4>(1));
    NEED(cuTexObjectDestroy(object));
    SHOW(cuArrayDestroy(one.array));
  }

  CUdeviceptr memory = 0;
  NEED(cuMemAlloc(&memory, 64 * 64 * 4));
  std::vector<float> values(64 * 64);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 97) * 0.5f;
  NEED(cuMemcpyHtoD(memory, values.data(), values.size() * 4));
  CUDA_RESOURCE_DESC resource{};
  resource.resType = CU_RESOURCE_TYPE_LINEAR;
  resource.res.linear.devPtr = memory;
  resource.res.linear.format = CU_AD_FORMAT_FLOAT;
  resource.res.linear.numChannels = 1;
  resource.res.linear.sizeInBytes = 1000 * 4;
  SHOW(cuTexObjectCreate(&object, &resource, &point, nullptr));
  run("linear", object, std::vector<Int4>{{0}, {1}, {999}, {1000}, {-1}, {1 << 30}});
  NEED(cuTexObjectDestroy(object));
  resource.res.linear.format = CU_AD_FORMAT_UNSIGNED_INT8;
  resource.res.linear.numChannels = 4;
  SHOW(cuTexObjectCreate(&object, &resource, &point, nullptr));
  run("linear", object, std::vector<Int4>{{0}, {1}, {999}, {1000}});
  NEED(cuTexObjectDestroy(object));
  resource.resType = CU_RESOURCE_TYPE_PITCH2D;
  resource.res.pitch2D.devPtr = memory;
  resource.res.pitch2D.format = CU_AD_FORMAT_FLOAT;
  resource.res.pitch2D.numChannels = 1;
  resource.res.pitch2D.width = 50;
  resource.res.pitch2D.height = 60;
  resource.res.pitch2D.pitchInBytes = 256;
  SHOW(cuTexObjectCreate(&object, &resource, &linear, nullptr));
  run("two", object, coordinates(50));
  NEED(cuTexObjectDestroy(object));
  NEED(cuMemFree(memory));
}

void levels() {
  std::puts("levels");
  CUDA_ARRAY3D_DESCRIPTOR d{};
  d.Width = d.Height = 16;
  d.Format = CU_AD_FORMAT_FLOAT;
  d.NumChannels = 1;
  CUmipmappedArray mipmap = nullptr;
  NEED(cuMipmappedArrayCreate(&mipmap, &d, 5));
  for (unsigned i = 0; i < 5; ++i) {
    CUarray level = nullptr;
    NEED(cuMipmappedArrayGetLevel(&level, mipmap, i));
    const size_t side = 16u >> i;
    std::vector<float> values(side * side, static_cast<float>(i) * 10);
    CUDA_MEMCPY2D copy{};
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = values.data();
    copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    copy.dstArray = level;
    copy.WidthInBytes = side * 4;
    copy.Height = side;
    NEED(cuMemcpy2D(&copy));
  }
  CUDA_RESOURCE_DESC resource{};
  resource.resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
  resource.res.mipmap.hMipmappedArray = mipmap;
  CUDA_TEXTURE_DESC texture =
      sampler(CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_LINEAR, CU_TRSF_NORMALIZED_COORDINATES);
  texture.maxMipmapLevelClamp = 4;
  std::vector<Word4> at;
  for (const float level : {-1.0f, 0.0f, 0.4f, 0.5f, 1.0f, 2.75f, 4.0f, 9.0f})
    at.push_back({0.5f, 0.5f, level, 0.1f});
  CUtexObject object = 0;
  for (const auto filter : {CU_TR_FILTER_MODE_POINT, CU_TR_FILTER_MODE_LINEAR}) {
    texture.mipmapFilterMode = filter;
    SHOW(cuTexObjectCreate(&object, &resource, &texture, nullptr));
    run("level", object, at);
    run("steps", object, at);
    run("two", object, at);
    run("sizes", object, std::vector<Int4>(1));
    NEED(cuTexObjectDestroy(object));
  }
  texture.mipmapLevelBias = 1;
  CUDA_RESOURCE_VIEW_DESC view{};
  view.width = view.height = 16;
  view.firstMipmapLevel = 1;
  view.lastMipmapLevel = 3;
  SHOW(cuTexObjectCreate(&object, &resource, &texture, &view));
  view.format = CU_RES_VIEW_FORMAT_FLOAT_1X32;
  NEED(cuTexObjectCreate(&object, &resource, &texture, &view));
  run("level", object, at);
  CUDA_RESOURCE_VIEW_DESC read{};
  SHOW(cuTexObjectGetResourceViewDesc(&read, object));
  VALUE(read.format == view.format && read.width == view.width && read.firstMipmapLevel == 1 &&
        read.lastMipmapLevel == 3);
  NEED(cuTexObjectDestroy(object));
  NEED(cuMipmappedArrayDestroy(mipmap));
}

void surfaces() {
  std::puts("surfaces");
  CUarray array =
      make_array(16, 8, 0, CU_AD_FORMAT_UNSIGNED_INT32, 1, 4, CUDA_ARRAY3D_SURFACE_LDST);
  const CUDA_RESOURCE_DESC resource = of(array);
  CUsurfObject surface = 0;
  SHOW(cuSurfObjectCreate(&surface, &resource));
  const std::vector<Int4> inside = {{0, 0, 11}, {4, 1, 22}, {60, 7, 33}, {32, 3, 44}};
  run("load_trap", surface, inside);
  run("store", surface, inside);
  run("load_trap", surface, inside);
  run("load_byte", surface, inside);
  run("store_byte", surface, inside);
  run("load_trap", surface, inside);
  run("add_up", surface, std::vector<Int4>(200, Int4{8, 2, 3, 0}), false);
  run("load_trap", surface, std::vector<Int4>{{8, 2}});
  const std::vector<Int4> outside = {{-4, 0, 1}, {64, 0, 2}, {0, 8, 3}, {0, -1, 4}, {48, 7, 5}};
  run("store", surface, outside);
  run("load_zero", surface, outside);
  // Four words at once, where they are aligned.
  run("load_clamp", surface,
      std::vector<Int4>{{-16, 0, 1}, {64, 0, 2}, {0, 8, 3}, {0, -1, 4}, {48, 7, 5}});
  std::vector<uint32_t> all(16 * 8);
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.srcArray = array;
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = all.data();
  copy.WidthInBytes = 64;
  copy.Height = 8;
  SHOW(cuMemcpy2D(&copy));
  std::printf("  %08x\n", checksum(all));
  CUDA_RESOURCE_DESC read{};
  SHOW(cuSurfObjectGetResourceDesc(&read, surface));
  VALUE(read.resType == CU_RESOURCE_TYPE_ARRAY && read.res.array.hArray == array);
  SHOW(cuSurfObjectDestroy(surface));
  NEED(cuArrayDestroy(array));
  for (const bool deep : {false, true}) {
    array = make_array(4, 4, 3, CU_AD_FORMAT_UNSIGNED_INT32, 1, 4,
                       CUDA_ARRAY3D_SURFACE_LDST | (deep ? 0u : unsigned{CUDA_ARRAY3D_LAYERED}));
    const CUDA_RESOURCE_DESC whole = of(array);
    NEED(cuSurfObjectCreate(&surface, &whole));
    run(deep ? "store_deep" : "store_layer", surface,
        std::vector<Int4>{{0, 0, 1, 2}, {12, 3, 2, 0}, {4, 1, 3, 1}, {4, 1, 3, 3}});
    NEED(cuSurfObjectDestroy(surface));
    std::vector<uint32_t> words(4 * 4 * 3);
    CUDA_MEMCPY3D down{};
    down.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    down.srcArray = array;
    down.dstMemoryType = CU_MEMORYTYPE_HOST;
    down.dstHost = words.data();
    down.WidthInBytes = 16;
    down.Height = 4;
    down.Depth = 3;
    NEED(cuMemcpy3D(&down));
    std::printf("  %08x\n", checksum(words));
    NEED(cuArrayDestroy(array));
  }
}

void wrong() {
  std::puts("wrong");
  CUarray array = make_array(8, 8, 0, CU_AD_FORMAT_FLOAT, 1, 4);
  CUDA_RESOURCE_DESC resource = of(array);
  CUDA_TEXTURE_DESC texture = sampler(CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_POINT, 0);
  CUtexObject object = 0;
  CUsurfObject surface = 0;
  SHOW(cuTexObjectCreate(nullptr, &resource, &texture, nullptr));
  SHOW(cuTexObjectCreate(&object, nullptr, &texture, nullptr));
  SHOW(cuTexObjectCreate(&object, &resource, nullptr, nullptr));
  SHOW(cuSurfObjectCreate(&surface, &resource));  // not made for that
  SHOW(cuSurfObjectCreate(&surface, nullptr));
  CUDA_RESOURCE_DESC bad = resource;
  bad.res.array.hArray = nullptr;
  SHOW(cuTexObjectCreate(&object, &bad, &texture, nullptr));
  bad = resource;
  bad.resType = static_cast<CUresourcetype>(9);
  SHOW(cuTexObjectCreate(&object, &bad, &texture, nullptr));
  bad = resource;
  bad.flags = 1;
  SHOW(cuTexObjectCreate(&object, &bad, &texture, nullptr));
  CUDA_TEXTURE_DESC odd = texture;
  odd.flags = 0x8000;
  SHOW(cuTexObjectCreate(&object, &resource, &odd, nullptr));
  SHOW(cuTexObjectDestroy(0));
  CUDA_RESOURCE_DESC read{};

  SHOW(cuTexObjectCreate(&object, &resource, &texture, nullptr));
  SHOW(cuTexObjectGetResourceDesc(&read, object));
  VALUE(read.res.array.hArray == array);
  CUDA_TEXTURE_DESC described{};
  SHOW(cuTexObjectGetTextureDesc(&described, object));
  VALUE(described.filterMode == texture.filterMode && described.flags == texture.flags);
  VALUE(described.addressMode[2] == texture.addressMode[2]);
  CUDA_RESOURCE_VIEW_DESC view{};
  SHOW(cuTexObjectGetResourceViewDesc(&view, object));
  SHOW(cuTexObjectGetResourceDesc(nullptr, object));
  // A value means something in its context only.
  CUcontext other = nullptr, mine = nullptr;
  NEED(cuCtxGetCurrent(&mine));
  CUdevice device = 0;
  NEED(cuCtxCreate_v2(&other, 0, device));
  NEED(cuCtxDestroy(other));
  NEED(cuCtxSetCurrent(mine));
  SHOW(cuTexObjectDestroy(object));
  SHOW(cuArrayDestroy(array));
  // The last one: it ends the context.
  run("load_trap", 0x1234, std::vector<Int4>(1));
}

void border_colors() {
  const CUarray array = make_array(4, 4, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, 1);
  const CUDA_RESOURCE_DESC resource = of(array);
  for (const auto mode : {CU_TR_ADDRESS_MODE_CLAMP, CU_TR_ADDRESS_MODE_BORDER}) {
    const CUDA_TEXTURE_DESC texture = sampler(mode, CU_TR_FILTER_MODE_POINT, 0);
    CUDA_TEXTURE_DESC described{};
    CUtexObject object = 0;
    NEED(cuTexObjectCreate(&object, &resource, &texture, nullptr));
    SHOW(cuTexObjectGetTextureDesc(&described, object));
    for (const float color : described.borderColor) std::printf("  %g\n", color);
    NEED(cuTexObjectDestroy(object));
  }
  NEED(cuArrayDestroy(array));
}

}  // namespace

// `border`: what a driver answers otherwise.
int main(int argc, char**) {
  CUcontext context = make_context();
  if (argc > 1) {
    border_colors();
    SHOW(cuCtxDestroy(context));
    return 0;
  }
  const std::string text = module_text();
  if (SHOW(cuModuleLoadData(&module_, text.c_str())) != CUDA_SUCCESS) return 1;
  all_modes();
  all_resources();
  levels();
  surfaces();
  wrong();
  SHOW(cuCtxDestroy(context));
  return 0;
}
