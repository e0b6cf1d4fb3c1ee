// Which lane holds which element of a matrix. A fragment is a warp's part of one matrix: some
// registers per lane, each with one or more elements. The PTX ISA defines the layouts of mma; it
// leaves those of wmma open, and they use the same parts here.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/matrix/element.h"

namespace fargpu::sim {

enum class Role : uint8_t { kA, kB, kAccumulator };

struct Fragment {
  Element element = Element::kF16;
  Role role = Role::kA;
  unsigned rows = 0, columns = 0;
  unsigned batches = 1;    // independent matrices, one after the other
  unsigned registers = 0;  // per lane
  // Of lane l's element i: its place in the matrices, row by row. 32 times `per_lane` numbers.
  std::vector<uint16_t> places{};

  unsigned register_bits() const { return element == Element::kF64 ? 64 : 32; }
  unsigned per_register() const { return register_bits() / element_bits(element); }
  unsigned per_lane() const { return registers * per_register(); }
};

// Of matrices made of 8x8 accumulators and of operands whose rows (of A) or columns (of B) are
// spread over four lanes each. `registers` of 0: as many as the elements need; more hold copies.
Fragment make_fragment(Role role, Element element, unsigned rows, unsigned columns,
                       unsigned registers = 0);
// Of mma.m8n8k4 with f16: four matrices, each held by eight lanes. `column_major`: of A and B.
Fragment make_quad_fragment(Role role, Element element, bool column_major);

// The registers of a fragment: each a column of 32 lanes, as the engine has them.
using Columns = std::span<uint8_t* const>;

uint64_t read_element(const Fragment& fragment, Columns registers, unsigned lane, unsigned index);
// The element's other bits in its register stay.
void write_element(const Fragment& fragment, Columns registers, unsigned lane, unsigned index,
                   uint64_t bits);

}  // namespace fargpu::sim
