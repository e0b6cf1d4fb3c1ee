#include "sim/object/texture.h"

#include <algorithm>

#include "sim/context/context.h"
#include "sim/driver/device.h"
#include "sim/driver/driver.h"
#include "sim/object/array.h"

namespace fargpu::sim {
namespace {

// Also those below CU_TRSF_SEAMLESS_CUBEMAP that have no name; that one is for cubemaps.
constexpr unsigned kKnownFlags = CU_TRSF_SEAMLESS_CUBEMAP - 1;

size_t limit(const Context& context, CUdevice_attribute attribute) {
  return static_cast<size_t>(context.device().attribute(attribute));
}

// Memory at an address, as an image of one level. It may end earlier than the image: what lies
// behind is an illegal address for kernels.
CUresult set_memory(const Context& context, CUdeviceptr address, Image* image) {
  if (address == 0 || address % limit(context, CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT) != 0 ||
      !Driver::get().allocations().covered(address, 1))
    return CUDA_ERROR_INVALID_VALUE;
  image->levels.front().base = address;
  image->by_address = true;
  return CUDA_SUCCESS;
}

CUresult linear_image(const Context& context, const CUDA_RESOURCE_DESC& resource, Image* image) {
  const auto& linear = resource.res.linear;
  if (!to_pixel_format(linear.format, linear.numChannels, &image->format))
    return CUDA_ERROR_INVALID_VALUE;
  const uint64_t elements = linear.sizeInBytes / image->format.element_bytes();
  if (elements == 0 ||
      elements > limit(context, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH))
    return CUDA_ERROR_INVALID_VALUE;
  image->shape = Image::Shape::k1D;
  image->levels = {{.width = static_cast<uint32_t>(elements)}};
  return set_memory(context, linear.devPtr, image);
}

CUresult pitched_image(const Context& context, const CUDA_RESOURCE_DESC& resource, Image* image) {
  const auto& pitched = resource.res.pitch2D;
  if (!to_pixel_format(pitched.format, pitched.numChannels, &image->format))
    return CUDA_ERROR_INVALID_VALUE;
  const uint64_t row = pitched.width * image->format.element_bytes();
  if (pitched.width == 0 || pitched.height == 0 ||
      pitched.width > limit(context, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_WIDTH) ||
      pitched.height > limit(context, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_HEIGHT) ||
      pitched.pitchInBytes > limit(context, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_PITCH) ||
      pitched.pitchInBytes < row ||
      pitched.pitchInBytes % limit(context, CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  image->shape = Image::Shape::k2D;
  image->levels = {{.width = static_cast<uint32_t>(pitched.width),
                    .height = static_cast<uint32_t>(pitched.height),
                    .pitch = pitched.pitchInBytes}};
  return set_memory(context, pitched.devPtr, image);
}

CUresult array_image(CUarray handle, Image* image, unsigned* flags) {
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto array = Driver::get().registry().find<Array>(handle);
  if (!array) return CUDA_ERROR_INVALID_HANDLE;
  if (array->is_planar()) return CUDA_ERROR_INVALID_VALUE;
  *image = array->image();
  *flags = array->descriptor().Flags;
  return CUDA_SUCCESS;
}

CUresult to_image(const Context& context, const CUDA_RESOURCE_DESC& resource, Image* image) {
  if (resource.flags != 0) return CUDA_ERROR_INVALID_VALUE;
  unsigned flags = 0;
  switch (resource.resType) {
    case CU_RESOURCE_TYPE_ARRAY:
      return array_image(resource.res.array.hArray, image, &flags);
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY: {
      if (resource.res.mipmap.hMipmappedArray == nullptr) return CUDA_ERROR_INVALID_VALUE;
      const auto array =
          Driver::get().registry().find<MipmappedArray>(resource.res.mipmap.hMipmappedArray);
      if (!array) return CUDA_ERROR_INVALID_HANDLE;
      *image = array->image();
      return CUDA_SUCCESS;
    }
    case CU_RESOURCE_TYPE_LINEAR:
      return linear_image(context, resource, image);
    case CU_RESOURCE_TYPE_PITCH2D:
      return pitched_image(context, resource, image);
  }
  return CUDA_ERROR_INVALID_VALUE;
}

bool view_format(CUresourceViewFormat view, PixelFormat* format) {
  using Kind = PixelFormat::Kind;
  struct Family {
    CUresourceViewFormat first;  // of one, two and four channels
    Kind kind;
    uint8_t bytes;
  };
  constexpr Family kFamilies[] = {{CU_RES_VIEW_FORMAT_UINT_1X8, Kind::kUnsigned, 1},
                                  {CU_RES_VIEW_FORMAT_SINT_1X8, Kind::kSigned, 1},
                                  {CU_RES_VIEW_FORMAT_UINT_1X16, Kind::kUnsigned, 2},
                                  {CU_RES_VIEW_FORMAT_SINT_1X16, Kind::kSigned, 2},
                                  {CU_RES_VIEW_FORMAT_UINT_1X32, Kind::kUnsigned, 4},
                                  {CU_RES_VIEW_FORMAT_SINT_1X32, Kind::kSigned, 4},
                                  {CU_RES_VIEW_FORMAT_FLOAT_1X16, Kind::kFloat, 2},
                                  {CU_RES_VIEW_FORMAT_FLOAT_1X32, Kind::kFloat, 4}};
  for (const Family& family : kFamilies) {
    const int channels = view - family.first;
    if (channels < 0 || channels > 2) continue;
    *format = {family.kind, static_cast<uint8_t>(1u << channels), family.bytes};
    return true;
  }
  return false;
}

// Levels and layers of an image; nothing else of it may change, unless blocks are unpacked.
CUresult apply_view(const CUDA_RESOURCE_VIEW_DESC& view, Image* image) {
  if (view.format >= CU_RES_VIEW_FORMAT_UNSIGNED_BC1 &&
      view.format <= CU_RES_VIEW_FORMAT_UNSIGNED_BC7)
    return CUDA_ERROR_NOT_SUPPORTED;
  if (view.format != CU_RES_VIEW_FORMAT_NONE) {
    PixelFormat format;
    if (!view_format(view.format, &format) ||
        format.element_bytes() != image->format.element_bytes())
      return CUDA_ERROR_INVALID_VALUE;
    image->format = format;
  }
  const Image::Level& whole = image->levels.front();
  const auto is = [](size_t given, uint32_t own) {
    return given == own || (own == 1 && given == 0);
  };
  if (!is(view.width, whole.width) || !is(view.height, whole.height) ||
      (image->shape == Image::Shape::k3D && !is(view.depth, whole.depth)))
    return CUDA_ERROR_INVALID_VALUE;
  if (view.lastMipmapLevel < view.firstMipmapLevel || view.lastMipmapLevel >= image->levels.size())
    return CUDA_ERROR_INVALID_VALUE;
  image->levels = {image->levels.begin() + view.firstMipmapLevel,
                   image->levels.begin() + view.lastMipmapLevel + 1};
  if (view.firstLayer == 0 && view.lastLayer == 0) return CUDA_SUCCESS;
  if (!image->is_layered() || view.lastLayer < view.firstLayer || view.lastLayer >= whole.depth)
    return CUDA_ERROR_INVALID_VALUE;
  for (Image::Level& level : image->levels) {
    level.base += view.firstLayer * level.slice;
    level.depth = view.lastLayer - view.firstLayer + 1;
  }
  return CUDA_SUCCESS;
}

template <typename Enum>
bool is_at_most(Enum value, Enum last) {
  return static_cast<unsigned>(value) <= static_cast<unsigned>(last);
}

CUresult to_sampler(const CUDA_TEXTURE_DESC& d, bool is_cube, Sampler* sampler) {
  const unsigned known = kKnownFlags | (is_cube ? CU_TRSF_SEAMLESS_CUBEMAP : 0);
  if ((d.flags & ~known) != 0 || !is_at_most(d.filterMode, CU_TR_FILTER_MODE_LINEAR) ||
      !is_at_most(d.mipmapFilterMode, CU_TR_FILTER_MODE_LINEAR))
    return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < 3; ++i) {
    if (!is_at_most(d.addressMode[i], CU_TR_ADDRESS_MODE_BORDER)) return CUDA_ERROR_INVALID_VALUE;
    sampler->address[i] = static_cast<AddressMode>(d.addressMode[i]);
  }
  sampler->linear = d.filterMode == CU_TR_FILTER_MODE_LINEAR;
  sampler->linear_levels = d.mipmapFilterMode == CU_TR_FILTER_MODE_LINEAR;
  sampler->normalized = (d.flags & CU_TRSF_NORMALIZED_COORDINATES) != 0;
  sampler->integers = (d.flags & CU_TRSF_READ_AS_INTEGER) != 0;
  sampler->srgb = (d.flags & CU_TRSF_SRGB) != 0;
  sampler->level_bias = d.mipmapLevelBias;
  sampler->min_level = d.minMipmapLevelClamp;
  sampler->max_level = d.maxMipmapLevelClamp;
  std::copy_n(d.borderColor, 4, sampler->border.begin());
  return CUDA_SUCCESS;
}

// Kept before it is taken out, so that a kernel that looks for it meanwhile finds it.
template <typename Object, typename Member>
bool destroy(uint64_t value, Member Object::*image) {
  Driver& driver = Driver::get();
  const auto object = driver.registry().find<Object>(value);
  if (!object) return false;
  if (const auto context = object->context.lock())
    driver.retired_images().keep(value, (*object).*image, context->outstanding());
  return driver.registry().remove<Object>(value) != nullptr;
}

}  // namespace

CUresult make_texture(Context& context, const CUDA_RESOURCE_DESC& resource,
                      const CUDA_TEXTURE_DESC& description, const CUDA_RESOURCE_VIEW_DESC* view,
                      std::shared_ptr<TextureObject>* object) {
  auto texture = std::make_shared<Texture>();
  if (CUresult result = to_image(context, resource, &texture->image); result != CUDA_SUCCESS)
    return result;
  if (CUresult result = to_sampler(description, texture->image.is_cube(), &texture->sampler);
      result != CUDA_SUCCESS)
    return result;
  if (view != nullptr) {
    // Of memory there are no views.
    if (texture->image.by_address) return CUDA_ERROR_INVALID_VALUE;
    if (CUresult result = apply_view(*view, &texture->image); result != CUDA_SUCCESS) return result;
  }
  auto made = std::make_shared<TextureObject>();
  made->resource = resource;
  made->description = description;
  if (view != nullptr) made->view = *view;
  made->texture = std::move(texture);
  made->context = context.weak_from_this();
  *object = std::move(made);
  return CUDA_SUCCESS;
}

CUresult make_surface(Context& context, const CUDA_RESOURCE_DESC& resource,
                      std::shared_ptr<SurfaceObject>* object) {
  if (resource.resType != CU_RESOURCE_TYPE_ARRAY || resource.flags != 0)
    return CUDA_ERROR_INVALID_VALUE;
  auto surface = std::make_shared<Surface>();
  unsigned flags = 0;
  if (CUresult result = array_image(resource.res.array.hArray, &surface->image, &flags);
      result != CUDA_SUCCESS)
    return result;
  if ((flags & CUDA_ARRAY3D_SURFACE_LDST) == 0) return CUDA_ERROR_INVALID_VALUE;
  auto made = std::make_shared<SurfaceObject>();
  made->resource = resource;
  made->surface = std::move(surface);
  made->context = context.weak_from_this();
  *object = std::move(made);
  return CUDA_SUCCESS;
}

bool destroy_texture(uint64_t value) {
  return destroy<TextureObject>(value, &TextureObject::texture);
}

bool destroy_surface(uint64_t value) {
  return destroy<SurfaceObject>(value, &SurfaceObject::surface);
}

}  // namespace fargpu::sim
