#include "sim/image/sampling.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "sim/image/cube.h"
#include "sim/image/texel.h"
#include "sim/image/tiles.h"

namespace fargpu::sim {
namespace {

using Values = std::array<float, 4>;

constexpr unsigned kFaces = 6;
// What is read where a sparse array has no memory.
constexpr uint8_t kNothing[16] = {};
constexpr int64_t kOutside = -1;
// Of a weight: 8 bits behind the point, so that 1 has a weight of its own.
constexpr float kWeights = 256.0f;

// One of the (up to) three axes of a level along which elements are filtered.
struct Axis {
  int64_t size = 1;
  AddressMode mode = AddressMode::kClamp;
};

// The element that stands for one at index i, which may lie outside; kOutside: the border.
int64_t wrapped(const Axis& axis, int64_t i) {
  if (i >= 0 && i < axis.size) return i;
  switch (axis.mode) {
    case AddressMode::kWrap: {
      const int64_t rest = i % axis.size;
      return rest < 0 ? rest + axis.size : rest;
    }
    case AddressMode::kMirror: {
      const int64_t period = 2 * axis.size;
      const int64_t rest = ((i % period) + period) % period;
      return rest < axis.size ? rest : period - 1 - rest;
    }
    case AddressMode::kClamp:
      return std::clamp<int64_t>(i, 0, axis.size - 1);
    case AddressMode::kBorder:
      break;
  }
  return kOutside;
}

int64_t floor_of(float value) {
  constexpr float kFar = 0x1p40f;
  if (std::isnan(value)) return 0;
  return static_cast<int64_t>(std::floor(std::clamp(value, -kFar, kFar)));
}

// Where a coordinate lies among the axis' elements.
float position(const Axis& axis, float coordinate, bool normalized) {
  if (!normalized) return coordinate;
  const auto size = static_cast<float>(axis.size);
  const float cell = std::floor(coordinate);
  if (axis.mode == AddressMode::kWrap) return (coordinate - cell) * size;
  if (axis.mode == AddressMode::kMirror) {
    const float part = coordinate - cell;
    return (std::fmod(cell, 2.0f) != 0 ? 1 - part : part) * size;
  }
  return coordinate * size;
}

// The one or two elements along an axis that make up a value.
struct Pair {
  int64_t first = 0, second = 0;
  float weight = 0;  // of the second one
};

class Sampling {
 public:
  Sampling(const Texture& texture, const Fetch& fetch, MemoryCheck& check)
      : image_(texture.image), sampler_(texture.sampler), fetch_(fetch), check_(check) {
    normalized_ = sampler_.normalized && !fetch.whole;
    at_ = fetch.at;
    if (image_.is_cube()) {
      const CubePoint point = cube_point(fetch.at);
      at_ = {point.s, point.t, 0};
      face_ = point.face;
      normalized_ = true;
    }
  }

  bool failed() const { return failed_; }

  // Integers: of the nearest element.
  Texel integers(unsigned level) {
    enter(level);
    std::array<int64_t, 3> index{};
    for (unsigned a = 0; a < kAxes; ++a) index[a] = nearest(a);
    if (const uint8_t* const element = element_at(index))
      return read_channels(image_.format, element);
    Texel border{};
    for (unsigned c = 0; c < border.size(); ++c)
      border[c] = is_buffer() ? 0 : static_cast<uint32_t>(static_cast<int64_t>(sampler_.border[c]));
    return border;
  }

  Values values(unsigned level, bool linear) {
    enter(level);
    std::array<Pair, kAxes> pairs{};
    for (unsigned a = 0; a < kAxes; ++a) pairs[a] = linear ? neighbours(a) : Pair{nearest(a)};
    Values sum{};
    for (unsigned corner = 0; corner < 1u << kAxes; ++corner) {
      float weight = 1;
      std::array<int64_t, 3> index{};
      for (unsigned a = 0; a < kAxes; ++a) {
        const bool second = (corner >> a & 1u) != 0;
        weight *= second ? pairs[a].weight : 1 - pairs[a].weight;
        index[a] = second ? pairs[a].second : pairs[a].first;
      }
      if (weight == 0) continue;
      const Values one = values_at(index);
      for (unsigned c = 0; c < sum.size(); ++c) sum[c] += weight * one[c];
    }
    return sum;
  }

  Texel gathered(unsigned channel, bool floats) {
    enter(0);
    const Pair x = neighbours(0), y = neighbours(1);
    const std::array<std::array<int64_t, 3>, 4> corners = {{{x.first, y.second, 0},
                                                            {x.second, y.second, 0},
                                                            {x.second, y.first, 0},
                                                            {x.first, y.first, 0}}};
    Texel texel{};
    for (unsigned i = 0; i < corners.size(); ++i) {
      if (floats) {
        texel[i] = std::bit_cast<uint32_t>(values_at(corners[i])[channel]);
      } else if (const uint8_t* const element = element_at(corners[i])) {
        texel[i] = read_channels(image_.format, element)[channel];
      }
    }
    return texel;
  }

 private:
  static constexpr unsigned kAxes = 3;

  // Linear memory: what is not there is 0, whatever the address mode.
  bool is_buffer() const { return image_.by_address && image_.shape == Image::Shape::k1D; }

  void enter(unsigned level) {
    level_ = &image_.levels[level];
    axes_ = {};
    const auto set = [&](unsigned a, uint32_t size) {
      AddressMode mode = sampler_.address[a];
      // These two are for normalized coordinates.
      if (!normalized_ && (mode == AddressMode::kWrap || mode == AddressMode::kMirror))
        mode = AddressMode::kClamp;
      if (image_.is_cube()) mode = AddressMode::kClamp;
      axes_[a] = {size, is_buffer() ? AddressMode::kBorder : mode};
    };
    const bool flat = image_.shape == Image::Shape::k1D || image_.shape == Image::Shape::k1DLayered;
    set(0, level_->width);
    if (!flat) set(1, level_->height);
    if (image_.shape == Image::Shape::k3D) set(2, level_->depth);
    slice_ = 0;
    const uint32_t step = image_.is_cube() ? kFaces : 1;
    if (image_.is_layered()) slice_ = std::min(fetch_.layer, level_->depth / step - 1) * step;
    slice_ += face_;
    dimensions_ = flat ? 1 : image_.shape == Image::Shape::k3D ? 3 : 2;
  }

  int64_t nearest(unsigned a) const {
    if (a >= dimensions_) return 0;
    if (fetch_.whole) return wrapped(axes_[a], int64_t{fetch_.index[a]} + fetch_.offset[a]);
    return wrapped(axes_[a], floor_of(position(axes_[a], at_[a], normalized_)) + fetch_.offset[a]);
  }

  Pair neighbours(unsigned a) const {
    if (a >= dimensions_) return {};
    if (fetch_.whole) return {nearest(a), nearest(a), 0};
    const float middle = position(axes_[a], at_[a], normalized_) - 0.5f;
    const int64_t first = floor_of(middle);
    const float part = std::isnan(middle) ? 0 : middle - std::floor(middle);
    const float weight = std::floor(part * kWeights + 0.5f) / kWeights;
    const int64_t moved = first + fetch_.offset[a];
    return {wrapped(axes_[a], moved), wrapped(axes_[a], moved + 1), weight};
  }

  // Null: the border, or memory that may not be read.
  const uint8_t* element_at(const std::array<int64_t, 3>& index) {
    if (index[0] == kOutside || index[1] == kOutside || index[2] == kOutside) return nullptr;
    const uint64_t z = image_.shape == Image::Shape::k3D ? static_cast<uint64_t>(index[2]) : slice_;
    const uint64_t address = level_->base + z * level_->slice +
                             static_cast<uint64_t>(index[1]) * level_->pitch +
                             static_cast<uint64_t>(index[0]) * image_.format.element_bytes();
    if (level_->tiles != nullptr) {
      const uint8_t* const element = level_->tiles->at(address);
      return element != nullptr ? element : kNothing;
    }
    if (image_.by_address && !check_.readable(address, image_.format.element_bytes())) {
      failed_ = true;
      return nullptr;
    }
    return reinterpret_cast<const uint8_t*>(address);
  }

  Values values_at(const std::array<int64_t, 3>& index) {
    const uint8_t* const element = element_at(index);
    if (element == nullptr) return is_buffer() ? Values{} : sampler_.border;
    const std::array<uint32_t, 4> bits = read_channels(image_.format, element);
    Values values{0, 0, 0, 1};
    for (unsigned c = 0; c < image_.format.channels; ++c)
      values[c] = channel_value(image_.format, bits[c], sampler_.srgb && c < 3);
    return values;
  }

  const Image& image_;
  const Sampler& sampler_;
  const Fetch& fetch_;
  MemoryCheck& check_;
  bool normalized_ = false;
  std::array<float, 3> at_{};
  uint32_t face_ = 0;
  const Image::Level* level_ = nullptr;
  std::array<Axis, kAxes> axes_{};
  unsigned dimensions_ = 2;
  uint64_t slice_ = 0;
  bool failed_ = false;
};

// The level that is asked for, as the sampler allows.
float level_of(const Texture& texture, const Fetch& fetch) {
  const Sampler& sampler = texture.sampler;
  const auto last = static_cast<float>(texture.image.levels.size() - 1);
  if (last == 0 || std::isnan(fetch.level)) return 0;
  const float biased = fetch.level + sampler.level_bias;
  // A clamp of 0 to 0 leaves only the first level, as it says.
  const float clamped = std::min(std::max(biased, sampler.min_level), sampler.max_level);
  return std::clamp(clamped, 0.0f, last);
}

Texel bits_of(const Values& values) {
  Texel texel{};
  for (unsigned c = 0; c < texel.size(); ++c) texel[c] = std::bit_cast<uint32_t>(values[c]);
  return texel;
}

}  // namespace

bool gives_floats(const Texture& texture) {
  const PixelFormat& format = texture.image.format;
  return !format.is_integer() || (format.bytes < 4 && !texture.sampler.integers);
}

bool sample(const Texture& texture, const Fetch& fetch, MemoryCheck& check, Texel* texel) {
  Sampling sampling(texture, fetch, check);
  const float level = level_of(texture, fetch);
  const auto nearest = static_cast<unsigned>(std::floor(level + 0.5f));
  if (!gives_floats(texture)) {
    *texel = sampling.integers(nearest);
    if (texture.image.format.channels < 4) (*texel)[3] = 1;
    return !sampling.failed();
  }
  const bool linear = texture.sampler.linear && !fetch.whole;
  if (!texture.sampler.linear_levels) {
    *texel = bits_of(sampling.values(nearest, linear));
    return !sampling.failed();
  }
  const auto first = static_cast<unsigned>(level);
  const float weight = std::floor((level - static_cast<float>(first)) * kWeights + 0.5f) / kWeights;
  Values values = sampling.values(first, linear);
  if (weight != 0) {
    const Values next = sampling.values(first + 1, linear);
    for (unsigned c = 0; c < values.size(); ++c)
      values[c] = (1 - weight) * values[c] + weight * next[c];
  }
  *texel = bits_of(values);
  return !sampling.failed();
}

bool gather(const Texture& texture, const Fetch& fetch, unsigned channel, MemoryCheck& check,
            Texel* texel) {
  Sampling sampling(texture, fetch, check);
  *texel = sampling.gathered(channel, gives_floats(texture));
  return !sampling.failed();
}

float level_of_steps(const Texture& texture, const std::array<float, 3>& dx,
                     const std::array<float, 3>& dy, unsigned dimensions) {
  const Image::Level& level = texture.image.levels.front();
  const std::array<float, 3> size{static_cast<float>(level.width), static_cast<float>(level.height),
                                  static_cast<float>(level.depth)};
  float x = 0, y = 0;
  for (unsigned a = 0; a < dimensions; ++a) {
    const float scale = texture.sampler.normalized ? size[a] : 1;
    x += dx[a] * scale * dx[a] * scale;
    y += dy[a] * scale * dy[a] * scale;
  }
  const float longest = std::sqrt(std::max(x, y));
  return longest > 0 ? std::log2(longest) : 0;
}

}  // namespace fargpu::sim
