#include <map>

#include "sim/exec/ops/ops.h"

namespace fargpu::sim {

struct OpTable::State {
  std::map<std::string, Handler, std::less<>> handlers;
};

OpTable::OpTable() : state_(new State) {}
OpTable::~OpTable() { delete state_; }

void OpTable::add(std::string name, Handler handler) {
  state_->handlers.insert_or_assign(std::move(name), handler);
}

void OpTable::add(const char* name, Handler handler) { add(std::string(name), handler); }

void OpTable::add(std::initializer_list<const char*> parts, Handler handler) {
  std::string name;
  for (const char* part : parts) name += part;
  add(std::move(name), handler);
}

Handler OpTable::find(std::string_view name) const {
  const auto found = state_->handlers.find(name);
  return found == state_->handlers.end() ? nullptr : found->second;
}

namespace {

struct FullTable : OpTable {
  FullTable() {
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
      isa_avx2::add_integer_ops(*this);
      isa_avx2::add_float_ops(*this);
      isa_avx2::add_compare_ops(*this);
      isa_avx2::add_convert_ops(*this);
      isa_avx2::add_memory_ops(*this);
    } else {
      isa_baseline::add_integer_ops(*this);
      isa_baseline::add_float_ops(*this);
      isa_baseline::add_compare_ops(*this);
      isa_baseline::add_convert_ops(*this);
      isa_baseline::add_memory_ops(*this);
    }
    add_bit_ops(*this);
    add_half_ops(*this);
    add_video_ops(*this);
    add_atomic_ops(*this);
    add_control_ops(*this);
    add_warp_ops(*this);
    add_cluster_ops(*this);
    add_memory_barrier_ops(*this);
    add_bulk_ops(*this);
    add_special_ops(*this);
    add_texture_ops(*this);
    add_surface_ops(*this);
  }
};

}  // namespace

const OpTable& op_table() {
  static const FullTable table;
  return table;
}

}  // namespace fargpu::sim
