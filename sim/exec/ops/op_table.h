// The table of micro-operations: the operations that lowering finds by name and programs run.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "sim/exec/instr.h"

namespace fargpu::sim {

// Micro-operations by name ("add.f32", "mul.lo.u64"). One table per instruction set of the host.
class OpTable {
 public:
  OpTable();
  ~OpTable();
  OpTable(const OpTable&) = delete;
  OpTable& operator=(const OpTable&) = delete;
  void add(std::string name, Handler handler);
  // For files compiled for a newer instruction set: no code of std::string is made there, which the
  // linker might choose for everybody. The name is the parts one after the other.
  void add(const char* name, Handler handler);
  void add(std::initializer_list<const char*> parts, Handler handler);
  Handler find(std::string_view name) const;  // null: there is no such operation
 private:
  struct State;
  State* state_;
};

// The table of the best instruction set that this machine has. Built once.
const OpTable& op_table();

}  // namespace fargpu::sim
