#include "sim/object/array.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "sim/context/context.h"
#include "sim/driver/device.h"

namespace fargpu::sim {
namespace {

constexpr unsigned kFaces = 6;
constexpr uint64_t kRowAlignment = 64;
// Attachments and depth textures are for arrays that graphics has, too.
constexpr unsigned kKnownFlags = CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST |
                                 CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_TEXTURE_GATHER |
                                 CUDA_ARRAY3D_SPARSE;
constexpr unsigned kNotSimulated = CUDA_ARRAY3D_DEFERRED_MAPPING | CUDA_ARRAY3D_VIDEO_ENCODE_DECODE;

// Memory of the device, given back with the last user.
struct Storage {
  Storage(Device& device, uint64_t bytes)
      : device(device), bytes(bytes), address(device.memory().allocate(bytes)) {}
  ~Storage() {
    if (address != 0) device.memory().free(address, bytes);
  }
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;
  Device& device;
  const uint64_t bytes;
  const uint64_t address;
};

struct Extents {
  CUdevice_attribute width, height, depth;
};
constexpr auto kNone = static_cast<CUdevice_attribute>(0);
#define EXTENTS(kind, name, height, depth) \
  { CU_DEVICE_ATTRIBUTE_MAXIMUM_##kind##name##_WIDTH, height, depth }
#define ALL_EXTENTS(kind)                                                                         \
  {                                                                                               \
    EXTENTS(kind, 1D, kNone, kNone),                                                              \
        EXTENTS(kind, 2D, CU_DEVICE_ATTRIBUTE_MAXIMUM_##kind##2D_HEIGHT, kNone),                  \
        EXTENTS(kind, 3D, CU_DEVICE_ATTRIBUTE_MAXIMUM_##kind##3D_HEIGHT,                          \
                CU_DEVICE_ATTRIBUTE_MAXIMUM_##kind##3D_DEPTH),                                    \
        EXTENTS(kind, 1D_LAYERED, kNone, CU_DEVICE_ATTRIBUTE_MAXIMUM_##kind##1D_LAYERED_LAYERS),  \
        EXTENTS(kind, 2D_LAYERED, CU_DEVICE_ATTRIBUTE_MAXIMUM_##kind##2D_LAYERED_HEIGHT,          \
                CU_DEVICE_ATTRIBUTE_MAXIMUM_##kind##2D_LAYERED_LAYERS),                           \
        EXTENTS(kind, CUBEMAP, CU_DEVICE_ATTRIBUTE_MAXIMUM_##kind##CUBEMAP_WIDTH, kNone),         \
        EXTENTS(kind, CUBEMAP_LAYERED, CU_DEVICE_ATTRIBUTE_MAXIMUM_##kind##CUBEMAP_LAYERED_WIDTH, \
                CU_DEVICE_ATTRIBUTE_MAXIMUM_##kind##CUBEMAP_LAYERED_LAYERS)                       \
  }
// By Image::Shape.
constexpr Extents kTextureExtents[] = ALL_EXTENTS(TEXTURE);
constexpr Extents kSurfaceExtents[] = ALL_EXTENTS(SURFACE);
#undef ALL_EXTENTS
#undef EXTENTS

bool fits(const Device& device, const Extents& extents, const CUDA_ARRAY3D_DESCRIPTOR& d) {
  const auto within = [&device](size_t value, CUdevice_attribute limit) {
    return limit == kNone || value <= static_cast<size_t>(device.attribute(limit));
  };
  return within(d.Width, extents.width) && within(d.Height, extents.height) &&
         within(d.Depth, extents.depth);
}

bool fits(const Device& device, Image::Shape shape, const CUDA_ARRAY3D_DESCRIPTOR& d) {
  const auto index = static_cast<size_t>(shape);
  if ((d.Flags & CUDA_ARRAY3D_SURFACE_LDST) != 0 && !fits(device, kSurfaceExtents[index], d))
    return false;
  constexpr Extents kGather = {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_WIDTH,
                               CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_HEIGHT, kNone};
  if ((d.Flags & CUDA_ARRAY3D_TEXTURE_GATHER) != 0 && !fits(device, kGather, d)) return false;
  constexpr Extents kAlternate = {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH_ALTERNATE,
                                  CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT_ALTERNATE,
                                  CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE};
  return fits(device, kTextureExtents[index], d) ||
         (shape == Image::Shape::k3D && fits(device, kAlternate, d));
}

// The kind of array that the extents and flags describe; false: none.
bool shape_of(const CUDA_ARRAY3D_DESCRIPTOR& d, Image::Shape* shape) {
  const bool layered = (d.Flags & CUDA_ARRAY3D_LAYERED) != 0;
  if (d.Width == 0) return false;
  if ((d.Flags & CUDA_ARRAY3D_CUBEMAP) != 0) {
    if (d.Width != d.Height || d.Depth == 0 || d.Depth % kFaces != 0) return false;
    if (!layered && d.Depth != kFaces) return false;
    *shape = layered ? Image::Shape::kCubeLayered : Image::Shape::kCube;
  } else if (layered) {
    if (d.Depth == 0) return false;
    *shape = d.Height == 0 ? Image::Shape::k1DLayered : Image::Shape::k2DLayered;
  } else {
    if (d.Height == 0 && d.Depth != 0) return false;
    *shape = d.Height == 0  ? Image::Shape::k1D
             : d.Depth == 0 ? Image::Shape::k2D
                            : Image::Shape::k3D;
  }
  return (d.Flags & CUDA_ARRAY3D_TEXTURE_GATHER) == 0 || *shape == Image::Shape::k2D;
}

CUresult check(const Device& device, const CUDA_ARRAY3D_DESCRIPTOR& d, Image::Shape* shape) {
  if ((d.Flags & ~(kKnownFlags | kNotSimulated)) != 0) return CUDA_ERROR_INVALID_VALUE;
  if ((d.Flags & kNotSimulated) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  if (!shape_of(d, shape) || !fits(device, *shape, d)) return CUDA_ERROR_INVALID_VALUE;
  constexpr unsigned kNotSparse = CUDA_ARRAY3D_SURFACE_LDST | CUDA_ARRAY3D_CUBEMAP;
  if ((d.Flags & CUDA_ARRAY3D_SPARSE) != 0 && (d.Height == 0 || (d.Flags & kNotSparse) != 0))
    return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

// Formats that exist and are not simulated.
bool is_exotic(CUarray_format format) {
  return (format >= CU_AD_FORMAT_BC1_UNORM && format <= CU_AD_FORMAT_Y410) ||
         (format >= CU_AD_FORMAT_Y416 && format <= CU_AD_FORMAT_YUV444_16bit_SemiPlanar) ||
         format == CU_AD_FORMAT_UNORM_INT_101010_2;
}

}  // namespace

bool to_pixel_format(CUarray_format format, unsigned channels, PixelFormat* pixel) {
  using Kind = PixelFormat::Kind;
  const auto set = [pixel](Kind kind, unsigned bytes, unsigned count) {
    *pixel = {kind, static_cast<uint8_t>(count), static_cast<uint8_t>(bytes)};
    return count == 1 || count == 2 || count == 4;
  };
  // The normalized ones come as families of one, two and four channels.
  const auto first = format >= CU_AD_FORMAT_UNORM_INT8X1 ? (format - CU_AD_FORMAT_UNORM_INT8X1) : 0;
  if (format >= CU_AD_FORMAT_UNORM_INT8X1 && format <= CU_AD_FORMAT_SNORM_INT16X4) {
    const unsigned named = 1u << (first % 3);
    if (channels != named) return false;
    return set(first < 6 ? Kind::kUnorm : Kind::kSnorm, first / 3 % 2 == 0 ? 1 : 2, named);
  }
  switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
      return set(Kind::kUnsigned, 1, channels);
    case CU_AD_FORMAT_UNSIGNED_INT16:
      return set(Kind::kUnsigned, 2, channels);
    case CU_AD_FORMAT_UNSIGNED_INT32:
      return set(Kind::kUnsigned, 4, channels);
    case CU_AD_FORMAT_SIGNED_INT8:
      return set(Kind::kSigned, 1, channels);
    case CU_AD_FORMAT_SIGNED_INT16:
      return set(Kind::kSigned, 2, channels);
    case CU_AD_FORMAT_SIGNED_INT32:
      return set(Kind::kSigned, 4, channels);
    case CU_AD_FORMAT_HALF:
      return set(Kind::kFloat, 2, channels);
    case CU_AD_FORMAT_FLOAT:
      return set(Kind::kFloat, 4, channels);
    default:
      return false;
  }
}

CUresult Array::make(Context& context, const CUDA_ARRAY3D_DESCRIPTOR& descriptor,
                     std::shared_ptr<Array>* array) {
  auto made = std::make_shared<Array>();
  made->descriptor_ = descriptor;
  Image& image = made->image_;
  if (!to_pixel_format(descriptor.Format, descriptor.NumChannels, &image.format))
    return is_exotic(descriptor.Format) ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
  if (CUresult result = check(context.device(), descriptor, &image.shape); result != CUDA_SUCCESS)
    return result;
  Image::Level level;
  level.width = static_cast<uint32_t>(descriptor.Width);
  level.height = static_cast<uint32_t>(std::max<size_t>(descriptor.Height, 1));
  level.depth = static_cast<uint32_t>(std::max<size_t>(descriptor.Depth, 1));
  const bool is_sparse = (descriptor.Flags & CUDA_ARRAY3D_SPARSE) != 0;
  const uint64_t row = uint64_t{level.width} * image.format.element_bytes();
  level.pitch = (row + kRowAlignment - 1) / kRowAlignment * kRowAlignment;
  level.slice = level.pitch * level.height;
  image.levels.push_back(level);
  *array = made;
  if (is_sparse) return CUDA_SUCCESS;
  const auto storage = std::make_shared<Storage>(context.device(), level.slice * level.depth);
  if (storage->address == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  image.levels.front().base = storage->address;
  // The contents of an earlier owner must not be visible.
  std::memset(reinterpret_cast<void*>(storage->address), 0, storage->bytes);
  image.storage = storage;
  return CUDA_SUCCESS;
}

void Array::make_sparse(std::span<const std::shared_ptr<Array>> levels) {
  std::vector<Image::Level*> places;
  for (const auto& level : levels) places.push_back(&level->image_.levels.front());
  const Image& image = levels.front()->image_;
  const auto sparse = std::make_shared<SparseArray>(image.shape, image.format, places);
  for (const auto& level : levels) level->image_.storage = level->sparse_ = sparse;
}

CUresult Array::create(Context& context, const CUDA_ARRAY3D_DESCRIPTOR& descriptor,
                       std::shared_ptr<Array>* array) {
  if (descriptor.Format != CU_AD_FORMAT_NV12) {
    const CUresult result = make(context, descriptor, array);
    if (result == CUDA_SUCCESS && (descriptor.Flags & CUDA_ARRAY3D_SPARSE) != 0)
      make_sparse({array, 1});
    return result;
  }
  Image::Shape shape;
  if (CUresult result = check(context.device(), descriptor, &shape); result != CUDA_SUCCESS)
    return result;
  if (shape != Image::Shape::k2D || descriptor.Width % 2 != 0 || descriptor.Height % 2 != 0 ||
      descriptor.NumChannels != 3)
    return CUDA_ERROR_INVALID_VALUE;
  auto made = std::make_shared<Array>();
  made->descriptor_ = descriptor;
  // The brightness, then the colours of four elements at a time.
  for (const unsigned shrunk : {1u, 2u}) {
    CUDA_ARRAY3D_DESCRIPTOR plane = descriptor;
    plane.Format = CU_AD_FORMAT_UNSIGNED_INT8;
    plane.NumChannels = shrunk;
    plane.Width /= shrunk;
    plane.Height /= shrunk;
    std::shared_ptr<Array> part;
    if (CUresult result = make(context, plane, &part); result != CUDA_SUCCESS) return result;
    part->set_part();
    made->planes_.push_back(std::move(part));
  }
  *array = std::move(made);
  return CUDA_SUCCESS;
}

CUresult MipmappedArray::create(Context& context, const CUDA_ARRAY3D_DESCRIPTOR& descriptor,
                                unsigned levels, std::shared_ptr<MipmappedArray>* array) {
  Image::Shape shape;
  if (CUresult result = check(context.device(), descriptor, &shape); result != CUDA_SUCCESS)
    return result;
  // Layers stay as many as they are.
  const bool shrinks_depth = shape == Image::Shape::k3D;
  const size_t longest =
      std::max({descriptor.Width, descriptor.Height, shrinks_depth ? descriptor.Depth : 0});
  levels = std::clamp(levels, 1u, static_cast<unsigned>(std::bit_width(longest)));
  auto made = std::make_shared<MipmappedArray>();
  CUDA_ARRAY3D_DESCRIPTOR level = descriptor;
  const auto half = [](size_t extent) { return extent > 1 ? extent / 2 : extent; };
  for (unsigned i = 0; i < levels; ++i) {
    std::shared_ptr<Array> part;
    if (CUresult result = Array::make(context, level, &part); result != CUDA_SUCCESS) return result;
    part->set_part();
    made->levels_.push_back(std::move(part));
    level.Width = half(level.Width);
    level.Height = half(level.Height);
    if (shrinks_depth) level.Depth = half(level.Depth);
  }
  if ((descriptor.Flags & CUDA_ARRAY3D_SPARSE) != 0) Array::make_sparse(made->levels_);
  *array = std::move(made);
  return CUDA_SUCCESS;
}

Image MipmappedArray::image() const {
  Image image = levels_.front()->image();
  image.levels.clear();
  for (const auto& level : levels_) image.levels.push_back(level->image().levels.front());
  image.storage = std::make_shared<std::vector<std::shared_ptr<Array>>>(levels_);
  return image;
}

}  // namespace fargpu::sim
