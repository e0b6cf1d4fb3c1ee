// Every format of an array through textures: as elements and as shares of the largest value, in
// every shape, by point and linear filtering; and in memory. The values are those of the CUDA
// programming guide ("Texture Fetching") and of PTX ("tex"), computed here. Shares may be off by
// the rounding of a division. Where a value is the mean of others, it is so at weights of 1/2 only.
//
// What the documents leave open is not asked for, but is part of the sums that are printed: what a
// fetch gives for channels that the format lacks, and the sign of zeros.
#include "tests/conformance/image_formats.h"

namespace {

CUmodule module_;

constexpr const char* kResults[] = {"f32", "u32", "s32"};

std::string module_text() {
  // As image_formats.h has them; the fourth word is the layer.
  constexpr std::pair<const char*, const char*> kGeometries[] = {{"1d", "%c1"},
                                                                 {"2d", "%c1, %c2"},
                                                                 {"3d", "%c1, %c2, %c3, %c3"},
                                                                 {"a1d", "%c4, %c1"},
                                                                 {"a2d", "%c4, %c1, %c2, %c2"},
                                                                 {"cube", "%c1, %c2, %c3, %c3"},
                                                                 {"acube", "%c4, %c1, %c2, %c3"}};
  std::string text = kImageModule;
  for (const std::string result : kResults) {
    const std::string four = "." + result + ".", to = " {%o1, %o2, %o3, %o4}, [%x, {";
    for (const auto& [geometry, at] : kGeometries)
      text += image_kernel(result + "_" + geometry,
                           std::string("tex.") + geometry + ".v4" + four + "f32" + to + at + "}];");
    text += image_kernel(result + "_linear", "tex.1d.v4" + four + "s32" + to + "%c1}];");
  }
  return text;
}

// How the elements of a format are read.
struct Reading {
  const char* name;
  unsigned flags;
  bool floats;
};
std::vector<Reading> readings(const Format& format) {
  constexpr Reading kElements = {"elements", CU_TRSF_READ_AS_INTEGER, false};
  if (!format.has_integers()) return {{"values", 0, true}};
  // Those of 32 bits are never shares.
  if (format.bytes == 4) return {kElements, {"elements without the flag", 0, false}};
  return {kElements, {"shares", 0, true}};
}

// A point of an array: where the elements meet that are fetched, as many of them at equal weights.
struct Point {
  Word4 at;
  std::vector<unsigned> elements;
};

// What a texture object is, and what is known of the fetches from it.
struct Case {
  const Format& format;
  const Reading& reading;
  const Shape& shape;
  bool linear;

  std::string name() const {
    return format.name + " " + reading.name + " " + shape.name + (linear ? " linear" : "");
  }
  bool plain() const { return linear && format.has_floats(); }
};

float as_word(unsigned layer) { return std::bit_cast<float>(layer); }

// Towards a place of a face, from -1 to 1 (the guide's table of "Cubemap Textures", backwards).
Word4 direction(unsigned face, float s, float t) {
  switch (face) {
    case 0:
      return {1, -t, -s};
    case 1:
      return {-1, -t, s};
    case 2:
      return {s, 1, t};
    case 3:
      return {s, -1, -t};
    case 4:
      return {s, -t, 1};
    default:
      return {-s, -t, -1};
  }
}

// The middle of an element. Normalised coordinates are powers of two, so that none is rounded.
Word4 middle(const Shape& shape, unsigned element, bool normalized) {
  const Place place = place_of(shape, element);
  const float x = static_cast<float>(place.x) + 0.5f, y = static_cast<float>(place.y) + 0.5f;
  const float z = static_cast<float>(place.z) + 0.5f;
  const auto width = static_cast<float>(shape.width), height = static_cast<float>(shape.rows());
  if (shape.is_cube()) {
    Word4 at = direction(place.z % 6, 2 * x / width - 1, 2 * y / height - 1);
    at.w = as_word(place.z / 6);
    return at;
  }
  const Word4 at = normalized ? Word4{x / width, y / height, z / static_cast<float>(shape.slices())}
                              : Word4{x, y, z};
  return shape.is_layered() ? Word4{at.x, at.y, 0, as_word(place.z)} : at;
}

std::vector<Point> points(const Shape& shape, bool linear) {
  std::vector<Point> made;
  for (unsigned i = 0; i < shape.elements(); ++i) made.push_back({middle(shape, i, linear), {i}});
  if (!linear || std::strcmp(shape.name, "2d") != 0) return made;
  // Between two elements, and between four.
  const auto width = static_cast<float>(shape.width), height = static_cast<float>(shape.height);
  for (unsigned y = 0; y + 1 < shape.height; ++y) {
    for (unsigned x = 0; x + 1 < shape.width; ++x) {
      const unsigned i = y * shape.width + x, below = i + shape.width;
      const auto right = static_cast<float>(x + 1), down = static_cast<float>(y + 1);
      made.push_back({{right / width, (down - 0.5f) / height}, {i, i + 1}});
      made.push_back({{right / width, down / height}, {i, i + 1, below, below + 1}});
    }
  }
  return made;
}

bool is_narrow(const Format& format) { return format.bytes == 1 && format.is_signed(); }

void check(const Case& one, const Point& point, const uint32_t* got) {
  const Format& format = one.format;
  for (unsigned c = 0; c < format.channels; ++c) {
    const std::string where = one.name() + " element " + std::to_string(point.elements.front()) +
                              " of " + std::to_string(point.elements.size()) + " channel " +
                              std::to_string(c);
    if (!one.reading.floats) {
      const uint32_t wanted =
          widened(format, content(format, point.elements.front(), c, one.plain()));
      if (got[c] != wanted) wrong(where, got[c], wanted);
      continue;
    }
    double wanted = 0;
    for (const unsigned element : point.elements)
      wanted += number_of(format, content(format, element, c, one.plain()));
    wanted /= static_cast<double>(point.elements.size());
    const double value = std::bit_cast<float>(got[c]);
    // A filter need not have all bits of a share, and an H100 takes signed ones of 8 bits with 16.
    const double tolerance = format.has_floats()               ? 0
                             : point.elements.size() != 1      ? 0x1p-10
                             : one.linear && is_narrow(format) ? 0x1p-15
                                                               : 0x1p-22;
    if (!(value == wanted || std::fabs(value - wanted) <= tolerance)) wrong(where, value, wanted);
  }
}

CUfunction function_of(const std::string& name) {
  CUfunction function = nullptr;
  NEED(cuModuleGetFunction(&function, module_, name.c_str()));
  return function;
}

const char* result_of(const Case& one) {
  return kResults[one.reading.floats ? 0 : one.format.is_signed() ? 2 : 1];
}

// Fetches at all points; adds what came to `all`.
void fetch(const Case& one, CUtexObject object, std::vector<uint32_t>* all) {
  const std::vector<Point> where = points(one.shape, one.linear);
  std::vector<Word4> in;
  for (const Point& point : where) in.push_back(point.at);
  std::vector<uint32_t> out;
  NEED(run_kernel(function_of(std::string(result_of(one)) + "_" + one.shape.name), object, in,
                  &out));
  for (size_t i = 0; i < where.size(); ++i) check(one, where[i], &out[4 * i]);
  all->insert(all->end(), out.begin(), out.end());
}

CUtexObject texture_of(const Case& one, const CUDA_RESOURCE_DESC& resource) {
  const bool normalized = one.linear || one.shape.is_cube();
  const CUDA_TEXTURE_DESC texture = sampler(
      CU_TR_ADDRESS_MODE_CLAMP, one.linear ? CU_TR_FILTER_MODE_LINEAR : CU_TR_FILTER_MODE_POINT,
      one.reading.flags | (normalized ? CU_TRSF_NORMALIZED_COORDINATES : 0));
  CUtexObject object = 0;
  const CUresult result = cuTexObjectCreate(&object, &resource, &texture, nullptr);
  if (result == CUDA_SUCCESS) return object;
  std::printf("%s: cuTexObjectCreate: %s\n", one.name().c_str(), error_name(result));
  std::exit(3);
}

void fetch_resource(const Case& one, const CUDA_RESOURCE_DESC& resource,
                    std::vector<uint32_t>* all) {
  const CUtexObject object = texture_of(one, resource);
  fetch(one, object, all);
  NEED(cuTexObjectDestroy(object));
}

void arrays(const Format& format) {
  for (const Reading& reading : readings(format)) {
    std::vector<uint32_t> all;
    for (const bool linear : {false, true}) {
      if (linear && !reading.floats) continue;
      for (const Shape& shape : kShapes) {
        const Case one = {format, reading, shape, linear};
        const CUarray array = array_of(format, shape);
        fill(array, format, shape, one.plain());
        fetch_resource(one, of(array), &all);
        NEED(cuArrayDestroy(array));
      }
    }
    std::printf("%s %s: %08x\n", format.name.c_str(), reading.name, checksum(all));
  }
}

// Linear memory: by whole coordinates, always the nearest element.
void fetch_linear(const Case& one, CUdeviceptr memory, std::vector<uint32_t>* all) {
  CUDA_RESOURCE_DESC resource{};
  resource.resType = CU_RESOURCE_TYPE_LINEAR;
  resource.res.linear.devPtr = memory;
  resource.res.linear.format = one.format.format;
  resource.res.linear.numChannels = one.format.channels;
  resource.res.linear.sizeInBytes = size_t{one.shape.elements()} * one.format.element_bytes();
  const CUtexObject object = texture_of(one, resource);
  std::vector<Int4> in;
  for (unsigned i = 0; i < one.shape.elements(); ++i) in.push_back({static_cast<int>(i)});
  std::vector<uint32_t> out;
  NEED(run_kernel(function_of(std::string(result_of(one)) + "_linear"), object, in, &out));
  for (unsigned i = 0; i < in.size(); ++i) check(one, {{}, {i}}, &out[size_t{4} * i]);
  all->insert(all->end(), out.begin(), out.end());
  NEED(cuTexObjectDestroy(object));
}

void fetch_pitched(const Case& one, CUdeviceptr memory, size_t pitch, std::vector<uint32_t>* all) {
  CUDA_RESOURCE_DESC resource{};
  resource.resType = CU_RESOURCE_TYPE_PITCH2D;
  resource.res.pitch2D.devPtr = memory;
  resource.res.pitch2D.format = one.format.format;
  resource.res.pitch2D.numChannels = one.format.channels;
  resource.res.pitch2D.width = one.shape.width;
  resource.res.pitch2D.height = one.shape.height;
  resource.res.pitch2D.pitchInBytes = pitch;
  fetch_resource(one, resource, all);
}

// Rows lie apart from one another for pitched memory only.
void fill_memory(const Case& one, CUdeviceptr memory, size_t pitch) {
  const std::vector<unsigned char> host = contents(one.format, one.shape, one.plain());
  const size_t row = size_t{one.shape.width} * one.format.element_bytes();
  for (unsigned y = 0; y < one.shape.rows(); ++y)
    NEED(cuMemcpyHtoD(memory + y * pitch, &host[y * row], row));
}

void memory(const Format& format) {
  constexpr size_t kPitch = 512;
  const Shape &line = kShapes[0], &plane = kShapes[1];
  CUdeviceptr address = 0;
  NEED(cuMemAlloc(&address, kPitch * plane.height));
  for (const Reading& reading : readings(format)) {
    std::vector<uint32_t> all;
    for (const bool linear : {false, true}) {
      if (linear && !reading.floats) continue;
      const Case pitched = {format, reading, plane, linear};
      fill_memory(pitched, address, kPitch);
      fetch_pitched(pitched, address, kPitch, &all);
    }
    const Case one = {format, reading, line, false};
    fill_memory(one, address, 0);
    fetch_linear(one, address, &all);
    std::printf("%s %s in memory: %08x\n", format.name.c_str(), reading.name, checksum(all));
  }
  NEED(cuMemFree(address));
}

// As pairs of halves. Shares need not be the nearest ones: each is rounded before.
void halves(CUfunction function, const Format& format) {
  const Shape& shape = kShapes[1];
  const Reading reading = {"halves", 0, true};
  const Case one = {format, reading, shape, false};
  const CUarray array = array_of(format, shape);
  fill(array, format, shape, false);
  const CUtexObject object = texture_of(one, of(array));
  std::vector<Word4> in;
  for (const Point& point : points(shape, false)) in.push_back(point.at);
  std::vector<uint32_t> out;
  NEED(run_kernel(function, object, in, &out));
  const Format half = {"f16", CU_AD_FORMAT_HALF, Values::kHalf, 2, 1};
  const double tolerance = format.values == Values::kHalf ? 0 : 0x1p-10;
  for (unsigned i = 0; i < in.size(); ++i) {
    for (unsigned c = 0; c < format.channels; ++c) {
      const double wanted = number_of(format, content(format, i, c, false));
      const double value = number_of(half, out[4 * i + c / 2] >> (16 * (c % 2)) & 0xffff);
      if (!(value == wanted || std::fabs(value - wanted) <= tolerance))
        wrong(one.name(), value, wanted);
    }
  }
  std::printf("%s halves: %08x\n", format.name.c_str(), checksum(out));
  NEED(cuTexObjectDestroy(object));
  NEED(cuArrayDestroy(array));
}

void all_halves() {
  const std::string text =
      kImageModule + image_kernel("halves", "tex.2d.v2.f16x2.f32 {%o1, %o2}, [%x, {%c1, %c2}];");
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  NEED(cuModuleLoadData(&module, text.c_str()));
  NEED(cuModuleGetFunction(&function, module, "halves"));
  for (const Format& format : all_formats())
    if (format.bytes < 4) halves(function, format);
}

// Shares of 8 bits that stand for light. The fourth channel is as it is.
void light() {
  const Format format = {"u8x4", CU_AD_FORMAT_UNSIGNED_INT8, Values::kUnsigned, 1, 4};
  const Reading reading = {"light", CU_TRSF_SRGB, true};
  const Shape& shape = kShapes[1];
  const Case one = {format, reading, shape, false};
  const CUarray array = array_of(format, shape);
  fill(array, format, shape, false);
  const CUtexObject object = texture_of(one, of(array));
  std::vector<Word4> in;
  for (const Point& point : points(shape, false)) in.push_back(point.at);
  std::vector<uint32_t> out;
  NEED(run_kernel(function_of("f32_2d"), object, in, &out));
  for (unsigned i = 0; i < in.size(); ++i) {
    for (unsigned c = 0; c < format.channels; ++c) {
      double wanted = number_of(format, content(format, i, c, false));
      if (c < 3)
        wanted = wanted <= 0.04045 ? wanted / 12.92 : std::pow((wanted + 0.055) / 1.055, 2.4);
      const double value = std::bit_cast<float>(out[4 * i + c]);
      // An H100 gives steps of 1/512.
      if (!(std::fabs(value - wanted) <= 0x1p-9)) wrong(one.name(), value, wanted);
    }
  }
  std::printf("light: %08x\n", checksum(out));
  NEED(cuTexObjectDestroy(object));
  NEED(cuArrayDestroy(array));
}

// The planes of an NV12 array: a texture of one channel, and one of two at a quarter of the size.
void planes() {
  CUDA_ARRAY3D_DESCRIPTOR d{};
  d.Width = 16;
  d.Height = 8;
  d.Format = CU_AD_FORMAT_NV12;
  d.NumChannels = 3;
  CUarray array = nullptr;
  if (SHOW(cuArray3DCreate(&array, &d)) != CUDA_SUCCESS) return;
  const Shape shapes[] = {{"2d", 2, 16, 8, 0, 0}, {"2d", 2, 8, 4, 0, 0}};
  for (unsigned i = 0; i < 2; ++i) {
    const Format format = {"plane " + std::to_string(i), CU_AD_FORMAT_UNSIGNED_INT8,
                           Values::kUnsigned, 1, i + 1};
    CUarray plane = nullptr;
    NEED(cuArrayGetPlane(&plane, array, i));
    fill(plane, format, shapes[i], false);
    for (const Reading& reading : readings(format)) {
      std::vector<uint32_t> all;
      fetch_resource({format, reading, shapes[i], false}, of(plane), &all);
      if (reading.floats) fetch_resource({format, reading, shapes[i], true}, of(plane), &all);
      std::printf("%s %s: %08x\n", format.name.c_str(), reading.name, checksum(all));
    }
  }
  SHOW(cuArrayDestroy(array));
}

}  // namespace

// `planes`: arrays of several planes.
int main(int argc, char**) {
  const CUcontext context = make_context();
  const std::string text = module_text();
  NEED(cuModuleLoadData(&module_, text.c_str()));
  if (argc > 1) {
    planes();
  } else {
    for (const Format& format : all_formats()) {
      arrays(format);
      // Memory is described by the formats that name no number of channels.
      if (format.format < CU_AD_FORMAT_UNORM_INT8X1) memory(format);
    }
    all_halves();
    light();
  }
  VALUE(wrong_values);
  NEED(cuCtxDestroy(context));
  return wrong_values == 0 ? 0 : 1;
}
