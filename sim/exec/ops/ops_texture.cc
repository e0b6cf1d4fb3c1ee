// Texture fetches and queries, lane by lane: what is fetched is found out here, how is a matter of
// sim/image.
#include <bit>

#include "sim/exec/image_op.h"
#include "sim/exec/machine.h"
#include "sim/exec/ops/ops.h"
#include "sim/exec/program_code.h"
#include "sim/image/half_math.h"
#include "sim/image/sampling.h"

namespace fargpu::sim {
namespace {

class LaneMemory final : public MemoryCheck {
 public:
  LaneMemory(Exec& x, const Instr& in) : x_(x), in_(in) {}
  void of_lane(uint32_t lane) { lane_ = lane; }
  bool readable(uint64_t address, unsigned bytes) override {
    if (x_.ranges.find(address, bytes) != nullptr) return true;
    raise_fault(x_, in_, Fault::Kind::kIllegalAddress, lane_, address, bytes, "texture memory");
    return false;
  }

 private:
  Exec& x_;
  const Instr& in_;
  uint32_t lane_ = 0;
};

// Null after a fault: the value names no texture object.
const Texture* find(Exec& x, const Instr& in, uint64_t value, uint32_t lane) {
  if (x.texture.object == nullptr || x.texture.value != value)
    x.texture = {value, x.grid->memory->texture(value)};
  if (x.texture.object == nullptr)
    raise_fault(x, in, Fault::Kind::kIllegalAddress, lane, value, 0, "no such texture object");
  return x.texture.object.get();
}

// The values of a list's operands, one after the other.
class Reader {
 public:
  Reader(const Exec& x, const OperandRef* list, uint32_t lane) : x_(x), list_(list), lane_(lane) {}
  uint32_t next() { return x_.at<uint32_t>(*list_++)[lane_]; }
  int32_t next_integer() { return static_cast<int32_t>(next()); }
  float next_float() { return std::bit_cast<float>(next()); }

 private:
  const Exec& x_;
  const OperandRef* list_;
  const uint32_t lane_;
};

Fetch read_fetch(const TextureOp& op, const Texture& texture, Reader& reader) {
  const unsigned count = dimensions(op.geometry);
  Fetch fetch;
  fetch.whole = op.whole;
  if (is_layered(op.geometry)) fetch.layer = reader.next();
  for (unsigned i = 0; i < count; ++i) {
    if (op.whole) {
      fetch.index[i] = reader.next_integer();
    } else {
      fetch.at[i] = reader.next_float();
    }
  }
  if (op.level_by == LevelBy::kLevel)
    fetch.level = op.whole ? static_cast<float>(reader.next_integer()) : reader.next_float();
  if (op.level_by == LevelBy::kSteps) {
    std::array<std::array<float, 3>, 2> steps{};
    for (auto& step : steps)
      for (unsigned i = 0; i < count; ++i) step[i] = reader.next_float();
    fetch.level = level_of_steps(texture, steps[0], steps[1], count);
  }
  for (unsigned i = 0; i < count && op.offsets; ++i) fetch.offset[i] = reader.next_integer();
  return fetch;
}

// Two values as f16, the first one below.
uint32_t pair_of_halves(uint32_t low, uint32_t high) {
  const auto half = [](uint32_t bits) -> uint32_t {
    return double_to_half<F16>(std::bit_cast<float>(bits), HalfRounding::kNearest);
  };
  return half(low) | half(high) << 16;
}

void fetch_texture(Exec& x, const Instr& in) {
  const auto op = unpacked<TextureOp>(in.imm);
  const OperandRef* const list = operand_list(x, in);
  LaneMemory memory(x, in);
  alignas(64) uint32_t results[4][kLanes] = {};
  for (uint32_t l = 0; l < kLanes; ++l) {
    if ((x.mask >> l & 1u) == 0) continue;
    const Texture* const texture = find(x, in, x.at<uint64_t>(in.a)[l], l);
    if (texture == nullptr) return;
    Reader reader(x, list + op.destinations(), l);
    const Fetch fetch = read_fetch(op, *texture, reader);
    memory.of_lane(l);
    Texel texel{};
    const bool done = op.gathers ? gather(*texture, fetch, op.channel, memory, &texel)
                                 : sample(*texture, fetch, memory, &texel);
    if (!done) return;
    if (op.halves) texel = {pair_of_halves(texel[0], texel[1]), pair_of_halves(texel[2], texel[3])};
    for (unsigned c = 0; c < op.destinations(); ++c) results[c][l] = texel[c];
  }
  for (unsigned c = 0; c < op.destinations(); ++c) {
    uint32_t* const d = x.at<uint32_t>(list[c]);
    for (uint32_t l = 0; l < kLanes; ++l)
      if ((x.mask >> l & 1u) != 0) d[l] = results[c][l];
  }
}

uint32_t answer(const Image& image, bool normalized, ImageQuery query, size_t level) {
  // There is nothing at a level that does not exist.
  if (level >= image.levels.size()) return 0;
  const Image::Level& at = image.levels[level];
  switch (query) {
    case ImageQuery::kWidth:
      return at.width;
    case ImageQuery::kHeight:
      return at.height;
    case ImageQuery::kDepth:
      return image.shape == Image::Shape::k3D ? at.depth : 1;
    case ImageQuery::kLayers:
      return image.is_layered() ? at.depth / (image.is_cube() ? 6 : 1) : 1;
    case ImageQuery::kLevels:
      return static_cast<uint32_t>(image.levels.size());
    case ImageQuery::kNormalized:
      return normalized ? 1 : 0;
  }
  return 0;
}

void query_texture(Exec& x, const Instr& in) {
  for (uint32_t l = 0; l < kLanes; ++l) {
    if ((x.mask >> l & 1u) == 0) continue;
    const Texture* const texture = find(x, in, x.at<uint64_t>(in.a)[l], l);
    if (texture == nullptr) return;
    const size_t level = in.b == kNoOperand ? 0 : x.at<uint32_t>(in.b)[l];
    x.at<uint32_t>(in.dst)[l] =
        answer(texture->image, texture->sampler.normalized, static_cast<ImageQuery>(in.sub), level);
  }
}

void query_surface(Exec& x, const Instr& in) {
  for (uint32_t l = 0; l < kLanes; ++l) {
    if ((x.mask >> l & 1u) == 0) continue;
    const uint64_t value = x.at<uint64_t>(in.a)[l];
    const auto surface = x.grid->memory->surface(value);
    if (surface == nullptr)
      return raise_fault(x, in, Fault::Kind::kIllegalAddress, l, value, 0,
                         "no such surface object");
    x.at<uint32_t>(in.dst)[l] = answer(surface->image, false, static_cast<ImageQuery>(in.sub), 0);
  }
}

}  // namespace

void add_texture_ops(OpTable& table) {
  table.add("tex", fetch_texture);
  table.add("txq", query_texture);
  table.add("suq", query_surface);
}

}  // namespace fargpu::sim
