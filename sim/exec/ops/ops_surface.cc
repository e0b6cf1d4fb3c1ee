// Surface loads, stores and reductions, lane by lane. The first coordinate counts bytes, but for
// formatted stores. Kernels may race with themselves: not instrumented, as all accesses of device
// programs.
#include <algorithm>
#include <cstring>

#include "sim/exec/image_op.h"
#include "sim/exec/machine.h"
#include "sim/exec/ops/ops.h"
#include "sim/exec/program_code.h"
#include "sim/image/texel.h"

namespace fargpu::sim {
namespace {

// Null after a fault: the value names no surface object.
const Surface* find(Exec& x, const Instr& in, uint64_t value, uint32_t lane) {
  if (x.surface.object == nullptr || x.surface.value != value)
    x.surface = {value, x.grid->memory->surface(value)};
  if (x.surface.object == nullptr)
    raise_fault(x, in, Fault::Kind::kIllegalAddress, lane, value, 0, "no such surface object");
  return x.surface.object.get();
}

struct Position {
  int64_t x = 0, y = 0, z = 0;
};

Position read_position(const Exec& x, const SurfaceOp& op, const OperandRef* list, uint32_t lane) {
  const auto next = [&] { return static_cast<int32_t>(x.at<uint32_t>(*list++)[lane]); };
  Position position;
  // Of a layer or a slice there is one only.
  if (is_layered(op.geometry)) position.z = next();
  position.x = next();
  if (dimensions(op.geometry) > 1) position.y = next();
  if (op.geometry == Geometry::k3D) position.z = next();
  return position;
}

// Where an access of `bytes` bytes goes. Nothing: outside, where there is nothing to do; or after a
// fault.
uint8_t* find_element(Exec& x, const Instr& in, const SurfaceOp& op, const Image& image,
                      Position position, unsigned bytes, uint32_t lane) {
  const Image::Level& level = image.levels.front();
  const unsigned step = op.action == SurfaceAction::kStoreFormatted ? bytes : 1;
  const int64_t width = int64_t{level.width} * image.format.element_bytes();
  position.x *= step;
  const int64_t limits[] = {width - bytes, int64_t{level.height} - 1, int64_t{level.depth} - 1};
  int64_t* const at[] = {&position.x, &position.y, &position.z};
  for (unsigned i = 0; i < 3; ++i) {
    if (*at[i] >= 0 && *at[i] <= limits[i]) continue;
    if (op.outside == Outside::kZero || limits[i] < 0) return nullptr;
    if (op.outside == Outside::kTrap) {
      raise_fault(x, in, Fault::Kind::kIllegalAddress, lane, static_cast<uint64_t>(*at[i]), bytes,
                  "outside of the surface");
      return nullptr;
    }
    *at[i] = std::clamp<int64_t>(*at[i], 0, limits[i]);
  }
  if (position.x % bytes != 0) {
    raise_fault(x, in, Fault::Kind::kMisalignedAddress, lane, static_cast<uint64_t>(position.x),
                bytes, "in a surface");
    return nullptr;
  }
  return reinterpret_cast<uint8_t*>(level.base + static_cast<uint64_t>(position.z) * level.slice +
                                    static_cast<uint64_t>(position.y) * level.pitch +
                                    static_cast<uint64_t>(position.x));
}

uint64_t read_register(const Exec& x, OperandRef ref, unsigned bytes, uint32_t lane) {
  return bytes == 2   ? x.at<uint16_t>(ref)[lane]
         : bytes == 4 ? x.at<uint32_t>(ref)[lane]
                      : x.at<uint64_t>(ref)[lane];
}

void write_register(const Exec& x, OperandRef ref, unsigned bytes, uint32_t lane, uint64_t value) {
  if (bytes == 2) {
    x.at<uint16_t>(ref)[lane] = static_cast<uint16_t>(value);
  } else if (bytes == 4) {
    x.at<uint32_t>(ref)[lane] = static_cast<uint32_t>(value);
  } else {
    x.at<uint64_t>(ref)[lane] = value;
  }
}

template <typename T>
void reduce(uint8_t* place, Reduction how, T value) {
  auto* const word = reinterpret_cast<T*>(place);
  T old = __atomic_load_n(word, __ATOMIC_RELAXED), made = 0;
  do {
    switch (how) {
      case Reduction::kAdd:
        made = static_cast<T>(old + value);
        break;
      case Reduction::kMin:
        made = std::min(old, value);
        break;
      case Reduction::kMax:
        made = std::max(old, value);
        break;
      case Reduction::kAnd:
        made = old & value;
        break;
      case Reduction::kOr:
        made = old | value;
        break;
    }
  } while (
      !__atomic_compare_exchange_n(word, &old, made, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
}

void reduce(uint8_t* place, const SurfaceOp& op, unsigned bytes, uint64_t value) {
  const bool compares = op.reduction == Reduction::kMin || op.reduction == Reduction::kMax;
  if (bytes == 4) {
    const auto word = static_cast<uint32_t>(value);
    if (compares && op.is_signed) return reduce(place, op.reduction, static_cast<int32_t>(word));
    return reduce(place, op.reduction, word);
  }
  if (compares && op.is_signed) return reduce(place, op.reduction, static_cast<int64_t>(value));
  reduce(place, op.reduction, value);
}

void store_formatted(const Exec& x, const Instr& in, const OperandRef* list, uint32_t lane,
                     const PixelFormat& format, uint8_t* element) {
  std::array<uint32_t, 4> bits{};
  for (unsigned i = 0; i < in.count; ++i) bits[i] = x.at<uint32_t>(list[i])[lane];
  write_channels(format, bits, element);
}

// One lane. False: a fault.
bool access(Exec& x, const Instr& in, const SurfaceOp& op, uint32_t lane) {
  const OperandRef* const list = operand_list(x, in);
  const Surface* const surface = find(x, in, x.at<uint64_t>(in.a)[lane], lane);
  if (surface == nullptr) return false;
  const PixelFormat& format = surface->image.format;
  const unsigned bytes = op.action == SurfaceAction::kStoreFormatted ? format.element_bytes()
                                                                     : unsigned{in.size} * in.count;
  uint8_t* const element = find_element(x, in, op, surface->image,
                                        read_position(x, op, list + in.count, lane), bytes, lane);
  if (x.event == Event::kFault) return false;
  if (op.action == SurfaceAction::kLoad) {
    for (unsigned i = 0; i < in.count; ++i) {
      uint64_t value = 0;
      if (element != nullptr) std::memcpy(&value, element + i * in.size, in.size);
      write_register(x, list[i], op.register_bytes, lane, value);
    }
    return true;
  }
  if (element == nullptr) return true;
  if (op.action == SurfaceAction::kStoreFormatted) {
    store_formatted(x, in, list, lane, format, element);
    return true;
  }
  for (unsigned i = 0; i < in.count; ++i) {
    const uint64_t value = read_register(x, list[i], op.register_bytes, lane);
    if (op.action == SurfaceAction::kReduce) {
      reduce(element, op, in.size, value);
    } else {
      std::memcpy(element + i * in.size, &value, in.size);
    }
  }
  return true;
}

void access_surface(Exec& x, const Instr& in) {
  const auto op = unpacked<SurfaceOp>(in.imm);
  for (uint32_t l = 0; l < kLanes; ++l)
    if ((x.mask >> l & 1u) != 0 && !access(x, in, op, l)) return;
}

}  // namespace

void add_surface_ops(OpTable& table) { table.add("surface", access_surface); }

}  // namespace fargpu::sim
