// Instructions of a warp that work on matrices, in their executable form. Instr::imm is the index
// of one in its program, Instr::target the first of its registers in the operand list: of D, A, B
// and C, or of the fragment. a is the address, b the stride of wmma.
#pragma once

#include "sim/exec/instr.h"
#include "sim/matrix/product.h"

namespace fargpu::sim {

struct MatrixOp {
  enum class Kind : uint8_t {
    kMultiply,
    kLoad,        // wmma.load
    kStore,       // wmma.store
    kLoadTiles,   // ldmatrix
    kStoreTiles,  // stmatrix
    kTranspose,   // movmatrix
  };
  Kind kind = Kind::kMultiply;
  Product product{};
  Fragment fragment{};        // of kLoad and kStore
  bool column_major = false;  // kLoad, kStore: in memory; kLoadTiles, kStoreTiles: transposed
  unsigned tiles = 0;
};

// For all lanes x.mask at once.
void run_matrix(Exec& x, const Instr& in);

}  // namespace fargpu::sim
