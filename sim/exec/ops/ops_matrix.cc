// Products of matrices that a warp holds together, and their loads and stores.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "sim/exec/matrix_op.h"
#include "sim/exec/memory.h"
#include "sim/exec/program_code.h"

namespace fargpu::sim {
namespace {

constexpr size_t kMostRegisters = 32;
constexpr unsigned kTileRows = 8, kTileRowBytes = 16;

// The registers of one fragment, from the operand list.
class Registers {
 public:
  Registers(const Exec& x, const OperandRef* refs, size_t count) : count_(count) {
    for (size_t i = 0; i < count; ++i) columns_[i] = x.at<uint8_t>(refs[i]);
  }
  Columns columns() const { return {columns_.data(), count_}; }

 private:
  std::array<uint8_t*, kMostRegisters> columns_{};
  size_t count_;
};

void run_multiply(Exec& x, const Instr& in, const Product& p) {
  const OperandRef* refs = operand_list(x, in);
  const Registers d(x, refs, p.d.registers), a(x, refs += p.d.registers, p.a.registers),
      b(x, refs += p.a.registers, p.b.registers), c(x, refs += p.b.registers, p.c.registers);
  multiply(p, a.columns(), b.columns(), c.columns(), d.columns());
}

// Elements of less than a byte are read and written with their neighbours, a register at a time.
void run_fragment(Exec& x, const Instr& in, const MatrixOp& op, bool write) {
  const Fragment& f = op.fragment;
  const Registers registers(x, operand_list(x, in), f.registers);
  const auto lane = static_cast<uint32_t>(std::countr_zero(x.mask));
  const uint64_t base = x.at<uint64_t>(in.a)[lane];
  const uint64_t stride =
      in.b == kNoOperand ? (op.column_major ? f.rows : f.columns) : x.at<uint32_t>(in.b)[lane];
  const unsigned bits = element_bits(f.element), together = bits < 8 ? 32 / bits : 1;
  const unsigned bytes = bits * together / 8;
  for (unsigned l = 0; l < kLanes; ++l) {
    for (unsigned i = 0; i < f.per_lane(); i += together) {
      const unsigned place = f.places[size_t{l} * f.per_lane() + i];
      const unsigned row = place / f.columns, column = place % f.columns;
      const uint64_t index = op.column_major ? column * stride + row : row * stride + column;
      uint8_t* memory = resolve_lane(x, in, static_cast<ptx::Space>(in.space),
                                     base + index * bits / 8, bytes, write, lane);
      if (memory == nullptr) return;
      uint64_t value = 0;
      if (together > 1) {
        auto* word = reinterpret_cast<uint32_t*>(registers.columns()[i / together]) + l;
        if (write)
          std::memcpy(memory, word, bytes);
        else
          std::memcpy(word, memory, bytes);
      } else if (write) {
        value = read_element(f, registers.columns(), l, i);
        std::memcpy(memory, &value, bytes);
      } else {
        std::memcpy(&value, memory, bytes);
        write_element(f, registers.columns(), l, i, value);
      }
    }
  }
}

// 8x8 tiles of 16-bit elements. Lane 8 * t + r brings the address of tile t's row r.
void run_tiles(Exec& x, const Instr& in, const MatrixOp& op, bool write) {
  const Registers registers(x, operand_list(x, in), op.tiles);
  uint8_t* rows[4][kTileRows] = {};
  for (unsigned t = 0; t < op.tiles; ++t) {
    for (unsigned r = 0; r < kTileRows; ++r) {
      const unsigned lane = t * kTileRows + r;
      rows[t][r] = resolve_lane(x, in, static_cast<ptx::Space>(in.space),
                                x.at<uint64_t>(in.a)[lane], kTileRowBytes, write, lane);
      if (rows[t][r] == nullptr) return;
    }
  }
  std::array<uint32_t, kLanes> loaded[4];  // addresses may be in the registers that are loaded
  for (unsigned t = 0; t < op.tiles; ++t) {
    auto* words = reinterpret_cast<uint32_t*>(registers.columns()[t]);
    for (unsigned l = 0; l < kLanes; ++l) {
      uint16_t pair[2] = {static_cast<uint16_t>(words[l]), static_cast<uint16_t>(words[l] >> 16)};
      for (unsigned e = 0; e < 2; ++e) {
        unsigned row = l / 4, column = l % 4 * 2 + e;
        if (op.column_major) std::swap(row, column);
        uint8_t* place = rows[t][row] + size_t{column} * 2;
        if (write)
          std::memcpy(place, &pair[e], 2);
        else
          std::memcpy(&pair[e], place, 2);
      }
      loaded[t][l] = pair[0] | uint32_t{pair[1]} << 16;
    }
  }
  if (write) return;
  for (unsigned t = 0; t < op.tiles; ++t)
    std::copy(loaded[t].begin(), loaded[t].end(),
              reinterpret_cast<uint32_t*>(registers.columns()[t]));
}

void run_transpose(Exec& x, const Instr& in) {
  const Registers registers(x, operand_list(x, in), 2);
  auto* to = reinterpret_cast<uint32_t*>(registers.columns()[0]);
  const auto* from = reinterpret_cast<const uint32_t*>(registers.columns()[1]);
  uint16_t tile[8][8];
  for (unsigned l = 0; l < kLanes; ++l) std::memcpy(&tile[l / 4][l % 4 * 2], from + l, 4);
  for (unsigned l = 0; l < kLanes; ++l)
    to[l] = tile[l % 4 * 2][l / 4] | uint32_t{tile[l % 4 * 2 + 1][l / 4]} << 16;
}

}  // namespace

void run_matrix(Exec& x, const Instr& in) {
  const MatrixOp& op = x.grid->program->matrix_ops[in.imm];
  switch (op.kind) {
    case MatrixOp::Kind::kMultiply:
      return run_multiply(x, in, op.product);
    case MatrixOp::Kind::kLoad:
    case MatrixOp::Kind::kStore:
      return run_fragment(x, in, op, op.kind == MatrixOp::Kind::kStore);
    case MatrixOp::Kind::kLoadTiles:
    case MatrixOp::Kind::kStoreTiles:
      return run_tiles(x, in, op, op.kind == MatrixOp::Kind::kStoreTiles);
    case MatrixOp::Kind::kTranspose:
      return run_transpose(x, in);
  }
}

}  // namespace fargpu::sim
