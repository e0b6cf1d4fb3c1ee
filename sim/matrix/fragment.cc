#include "sim/matrix/fragment.h"

namespace fargpu::sim {
namespace {

constexpr unsigned kLanes = 32;

struct ElementIndex {
  unsigned batch = 0, row = 0, column = 0;
};

Fragment with_places(Fragment fragment, auto place) {
  const unsigned count = fragment.per_lane();
  fragment.places.resize(size_t{kLanes} * count);
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    for (unsigned i = 0; i < count; ++i) {
      const ElementIndex at = place(lane, i);
      fragment.places[size_t{lane} * count + i] =
          static_cast<uint16_t>((at.batch * fragment.rows + at.row) * fragment.columns + at.column);
    }
  }
  return fragment;
}

// Four lanes hold one row of A (or one column of B): a register each, side by side.
ElementIndex operand_place(const Fragment& f, unsigned lane, unsigned i) {
  const unsigned per = f.per_register(), width = 4 * per;
  const unsigned length = f.role == Role::kA ? f.columns : f.rows;  // K
  const unsigned others = f.role == Role::kA ? f.rows : f.columns;  // M or N
  const unsigned steps = length / width, groups = others / 8;
  const unsigned part = i / per % (steps * groups);
  // A counts the groups of rows first, B the steps along K.
  const unsigned group = f.role == Role::kA ? part % groups : part / steps;
  const unsigned step = f.role == Role::kA ? part / groups : part % steps;
  const unsigned along = step * width + lane % 4 * per + i % per, across = 8 * group + lane / 4;
  if (f.role == Role::kA) return {0, across, along};
  return {0, along, across};
}

ElementIndex accumulator_place(const Fragment& f, unsigned lane, unsigned i) {
  const unsigned groups = f.rows / 8, part = i / 2;
  return {0, 8 * (part % groups) + lane / 4, 8 * (part / groups) + lane % 4 * 2 + i % 2};
}

}  // namespace

Fragment make_fragment(Role role, Element element, unsigned rows, unsigned columns,
                       unsigned registers) {
  Fragment f{.element = element, .role = role, .rows = rows, .columns = columns};
  f.registers = registers != 0 ? registers : rows * columns / kLanes / f.per_register();
  return with_places(f, [&](unsigned lane, unsigned i) {
    return role == Role::kAccumulator ? accumulator_place(f, lane, i) : operand_place(f, lane, i);
  });
}

Fragment make_quad_fragment(Role role, Element element, bool column_major) {
  Fragment f{.element = element, .role = role, .rows = 8, .columns = 8, .batches = 4};
  if (role == Role::kA) f.columns = 4;
  if (role == Role::kB) f.rows = 4;
  f.registers = role != Role::kAccumulator ? 2 : element == Element::kF16 ? 4 : 8;
  return with_places(f, [&](unsigned lane, unsigned i) -> ElementIndex {
    const unsigned batch = lane % 16 / 4, four = lane % 4, high = lane < 16 ? 0 : 4;
    if (role == Role::kA) {
      return column_major ? ElementIndex{batch, i % 4 + high, four}
                          : ElementIndex{batch, four + high, i};
    }
    if (role == Role::kB) {
      return column_major ? ElementIndex{batch, i, four + high}
                          : ElementIndex{batch, four, i % 4 + high};
    }
    if (element == Element::kF16) return {batch, four + high, i};
    return {batch, (lane & 1) + (i & 2) + high, (i & 4) + (lane & 2) + (i & 1)};
  });
}

uint64_t read_element(const Fragment& f, Columns registers, unsigned lane, unsigned index) {
  if (f.register_bits() == 64) return reinterpret_cast<const uint64_t*>(registers[index])[lane];
  const unsigned per = f.per_register(), bits = element_bits(f.element);
  const uint32_t word = reinterpret_cast<const uint32_t*>(registers[index / per])[lane];
  return bits == 32 ? word : word >> (index % per * bits) & ((1u << bits) - 1);
}

void write_element(const Fragment& f, Columns registers, unsigned lane, unsigned index,
                   uint64_t value) {
  if (f.register_bits() == 64) {
    reinterpret_cast<uint64_t*>(registers[index])[lane] = value;
    return;
  }
  const unsigned per = f.per_register(), bits = element_bits(f.element);
  uint32_t& word = reinterpret_cast<uint32_t*>(registers[index / per])[lane];
  const uint32_t mask = bits == 32 ? ~0u : (1u << bits) - 1;
  const unsigned shift = index % per * bits;
  word = (word & ~(mask << shift)) | (static_cast<uint32_t>(value) & mask) << shift;
}

}  // namespace fargpu::sim
