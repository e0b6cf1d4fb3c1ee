// Loads and stores. First all addresses are checked and become host addresses (inactive lanes point
// to scratch memory), then the values move without any branch. This file is compiled without thread
// sanitizer: a device program's own races are not ours.
#include <type_traits>

#include "sim/exec/memory.h"
#include "sim/exec/ops/lanes.h"
#include "sim/exec/ops/ops.h"
#include "sim/exec/program_code.h"

namespace fargpu::sim::FARGPU_SIM_ISA {
namespace {

using ptx::Space;

// Slow but exact: lane by lane, with the fault of the first bad lane.
bool resolve_each(Exec& x, const Instr& in, const uint64_t* address, unsigned bytes, bool write,
                  uint8_t** place) {
  for (uint32_t l = 0; l < kLanes; ++l) {
    place[l] = x.scratch;
    if ((x.mask >> l & 1u) == 0) continue;
    place[l] = resolve_lane(x, in, static_cast<Space>(in.space), address[l], bytes, write, l);
    if (place[l] == nullptr) return false;
  }
  return true;
}

// All lanes in [base, base + size) and aligned?
inline bool all_inside(const uint64_t* address, uint64_t base, uint64_t size, unsigned bytes) {
  if (size < bytes) return false;
  const uint64_t last = size - bytes;
  uint64_t bad = 0;
  FARGPU_LANES(l) {
    const uint64_t offset = address[l] - base;
    bad |= (offset > last ? uint64_t{1} : uint64_t{0}) | (address[l] & (bytes - 1));
  }
  return bad == 0;
}

// The host addresses of all lanes; false after a fault.
inline bool resolve(Exec& x, const Instr& in, unsigned bytes, bool write, uint8_t** place) {
  alignas(64) uint64_t address[kLanes];
  uint64_t offset = in.imm;
  if ((in.flags & kFrameRelative) != 0) offset += x.path.local;
  if (in.a == kNoOperand) {
    FARGPU_LANES(l) address[l] = offset;
  } else if ((in.flags & kNarrowAddress) != 0) {
    const uint32_t* a = x.at<uint32_t>(in.a);
    FARGPU_LANES(l) address[l] = static_cast<uint32_t>(a[l] + static_cast<uint32_t>(offset));
  } else {
    const uint64_t* a = x.at<uint64_t>(in.a);
    FARGPU_LANES(l) address[l] = a[l] + offset;
  }
  if (x.mask != kAllLanes) {  // an inactive lane's address must not be looked at
    const uint64_t first = address[__builtin_ctz(x.mask)];
    FARGPU_LANES(l) address[l] = (x.mask >> l & 1u) != 0 ? address[l] : first;
  }
  const auto space = static_cast<Space>(in.space);
  if (space == Space::kShared) {
    if (!all_inside(address, 0, x.grid->shared_bytes, bytes)) {
      return resolve_each(x, in, address, bytes, write, place);
    }
    uint8_t* base = x.block->shared.data();
    FARGPU_LANES(l) place[l] = base + address[l];
  } else if (space == Space::kLocal) {
    if (!all_inside(address, 0, x.grid->local_bytes, bytes)) {
      return resolve_each(x, in, address, bytes, write, place);
    }
    uint8_t* base = local_base(x, 0);
    const uint64_t stride = x.grid->local_bytes;
    FARGPU_LANES(l) place[l] = base + address[l] + stride * l;
  } else if (space == Space::kParam &&
             in.a == kNoOperand) {  // a kernel's parameter: checked at load
    auto* base = reinterpret_cast<uint8_t*>(const_cast<std::byte*>(x.grid->parameters.data()));
    FARGPU_LANES(l) place[l] = base + offset;
  } else if (space == Space::kParam) {
    return resolve_each(x, in, address, bytes, write, place);
  } else {
    if (address[0] >= kSharedWindow) return resolve_each(x, in, address, bytes, write, place);
    const MemoryMap::Range* range = x.ranges.find(address[0], bytes);
    if (range == nullptr || (write && !range->writable) ||
        !all_inside(address, range->base, range->bytes, bytes)) {
      return resolve_each(x, in, address, bytes, write, place);
    }
    FARGPU_LANES(l) place[l] = reinterpret_cast<uint8_t*>(address[l]);
  }
  if (x.mask != kAllLanes) {
    uint8_t* scratch = x.scratch;
    FARGPU_LANES(l) place[l] = (x.mask >> l & 1u) != 0 ? place[l] : scratch;
  }
  return true;
}

inline void note_spin(Exec& x, const Instr& in) {
  if ((in.flags & kSpins) != 0) ++x.spins;
}

// An aligned access of up to 16 bytes is whole, also with several elements: threads of other blocks
// see all of it or nothing. CUB passes a state and its value in one v2.u32.
using Whole = uint64_t __attribute__((vector_size(16), aligned(1), may_alias));

template <typename T>
inline void move_one(void* to, const void* from) {
  *static_cast<volatile T*>(to) = *static_cast<const volatile T*>(from);
}
inline void move_whole(uint8_t* to, const uint8_t* from, unsigned bytes) {
  switch (bytes) {
    case 2:
      return move_one<uint16_t>(to, from);
    case 4:
      return move_one<uint32_t>(to, from);
    case 8:
      return move_one<uint64_t>(to, from);
    default:
      for (unsigned at = 0; at < bytes; at += sizeof(Whole)) move_one<Whole>(to + at, from + at);
  }
}

// Elements of a buffer for one lane's vector (of up to 8), in whole moves.
template <typename M>
constexpr size_t kVectorRoom = sizeof(M) * 8 < sizeof(Whole) ? sizeof(Whole) / sizeof(M) : 8;

// A value at `place`.
template <typename M>
inline M load_one(const uint8_t* place) {
  if constexpr (sizeof(M) == sizeof(Whole)) {
    alignas(Whole) M value;
    move_one<Whole>(&value, place);
    return value;
  } else {
    return *reinterpret_cast<const M*>(place);
  }
}

// M: the type in memory, R: the register.
template <typename M, typename R>
void load(Exec& x, const Instr& in) {
  uint8_t* place[kLanes];
  if (!resolve(x, in, sizeof(M), false, place)) return;
  note_spin(x, in);
  R* d = x.at<R>(in.dst);
  if (x.mask == kAllLanes) {
    for (uint32_t l = 0; l < kLanes; ++l) d[l] = static_cast<R>(load_one<M>(place[l]));
  } else {
    alignas(64) R t[kLanes];
    for (uint32_t l = 0; l < kLanes; ++l) t[l] = static_cast<R>(load_one<M>(place[l]));
    blend(d, t, x.mask);
  }
}

template <typename M, typename R>
void store(Exec& x, const Instr& in) {
  uint8_t* place[kLanes];
  if (!resolve(x, in, sizeof(M), true, place)) return;
  const R* s = x.at<R>(in.b);
  for (uint32_t l = 0; l < kLanes; ++l) {
    if constexpr (sizeof(M) == sizeof(Whole)) {
      alignas(Whole) const M value = static_cast<M>(s[l]);
      move_one<Whole>(place[l], &value);
    } else {
      *reinterpret_cast<M*>(place[l]) = static_cast<M>(s[l]);
    }
  }
}

// Vectors: the elements' registers are in the program's operand list at in.target.
template <typename M, typename R>
void load_vector(Exec& x, const Instr& in) {
  uint8_t* place[kLanes];
  if (!resolve(x, in, sizeof(M) * in.count, false, place)) return;
  note_spin(x, in);
  // All elements are read before any is written: the address register may be one of them, and they
  // belong together.
  alignas(64) R t[8][kLanes];
  const OperandRef* registers = operand_list(x, in);
  alignas(Whole) M value[kVectorRoom<M>] = {};
  for (uint32_t l = 0; l < kLanes; ++l) {
    move_whole(reinterpret_cast<uint8_t*>(value), place[l], sizeof(M) * in.count);
    for (uint32_t e = 0; e < in.count; ++e) t[e][l] = static_cast<R>(value[e]);
  }
  for (uint32_t e = 0; e < in.count; ++e) blend(x.at<R>(registers[e]), t[e], x.mask);
}

template <typename M, typename R>
void store_vector(Exec& x, const Instr& in) {
  uint8_t* place[kLanes];
  if (!resolve(x, in, sizeof(M) * in.count, true, place)) return;
  const OperandRef* registers = operand_list(x, in);
  const R* s[8];
  for (uint32_t e = 0; e < in.count; ++e) s[e] = x.at<R>(registers[e]);
  alignas(Whole) M value[kVectorRoom<M>] = {};
  for (uint32_t l = 0; l < kLanes; ++l) {
    for (uint32_t e = 0; e < in.count; ++e) value[e] = static_cast<M>(s[e][l]);
    move_whole(place[l], reinterpret_cast<const uint8_t*>(value), sizeof(M) * in.count);
  }
}

// Copies of in.count bytes for cp.async: dst [a] in shared memory, src [b] in global memory, in.imm
// bytes copied, the rest zero. in.c, if there: the number of bytes to read per lane.
void copy_async(Exec& x, const Instr& in) {
  const uint64_t* from = x.at<uint64_t>(in.b);
  for (uint32_t l = 0; l < kLanes; ++l) {
    if ((x.mask >> l & 1u) == 0) continue;
    const uint64_t to = (in.flags & kNarrowAddress) != 0
                            ? x.at<uint32_t>(in.a)[l] + static_cast<uint32_t>(in.imm)
                            : x.at<uint64_t>(in.a)[l] + in.imm;
    uint64_t bytes = in.count;
    if (in.c != kNoOperand)
      bytes = x.at<uint32_t>(in.c)[l] < bytes ? x.at<uint32_t>(in.c)[l] : bytes;
    uint8_t* target =
        resolve_lane(x, in, Space::kShared, to & (kWindowBytes - 1), in.count, true, l);
    if (target == nullptr) return;
    const uint8_t* source = nullptr;
    if (bytes != 0) {
      source = resolve_lane(x, in, Space::kGlobal, from[l] + in.target, in.count, false, l);
      if (source == nullptr) return;
    }
    for (uint64_t i = 0; i < in.count; ++i) target[i] = i < bytes ? source[i] : 0;
  }
}

template <typename M, typename R>
void add_pair(OpTable& table, const char* m, const char* r) {
  table.add({"ld.", m, ".", r}, load<M, R>);
  table.add({"ld.v.", m, ".", r}, load_vector<M, R>);
}
template <typename M, typename R>
void add_store(OpTable& table, const char* m, const char* r) {
  table.add({"st.", m, ".", r}, store<M, R>);
  table.add({"st.v.", m, ".", r}, store_vector<M, R>);
}
template <typename M>
void add_narrow(OpTable& table, const char* m) {
  add_pair<M, uint16_t>(table, m, "16");
  add_pair<M, uint32_t>(table, m, "32");
  add_pair<M, uint64_t>(table, m, "64");
}

}  // namespace

void add_memory_ops(OpTable& table) {
  add_narrow<uint8_t>(table, "u8");
  add_narrow<int8_t>(table, "s8");
  add_narrow<uint16_t>(table, "u16");
  add_narrow<int16_t>(table, "s16");
  add_pair<uint32_t, uint32_t>(table, "u32", "32");
  add_pair<uint32_t, uint64_t>(table, "u32", "64");
  add_pair<int32_t, uint32_t>(table, "s32", "32");
  add_pair<int32_t, uint64_t>(table, "s32", "64");
  add_pair<uint64_t, uint64_t>(table, "u64", "64");
  add_pair<unsigned __int128, unsigned __int128>(table, "b128", "128");
  add_store<uint8_t, uint16_t>(table, "8", "16");
  add_store<uint8_t, uint32_t>(table, "8", "32");
  add_store<uint8_t, uint64_t>(table, "8", "64");
  add_store<uint16_t, uint16_t>(table, "16", "16");
  add_store<uint16_t, uint32_t>(table, "16", "32");
  add_store<uint16_t, uint64_t>(table, "16", "64");
  add_store<uint32_t, uint32_t>(table, "32", "32");
  add_store<uint32_t, uint64_t>(table, "32", "64");
  add_store<uint64_t, uint64_t>(table, "64", "64");
  add_store<unsigned __int128, unsigned __int128>(table, "128", "128");
  table.add("cp.async", copy_async);
}

}  // namespace fargpu::sim::FARGPU_SIM_ISA
