#include <fmt/core.h>

#include "sim/exec/machine.h"
#include "sim/exec/program_code.h"

namespace fargpu::sim {
namespace {

const char* kind_name(Fault::Kind kind) {
  switch (kind) {
    case Fault::Kind::kIllegalAddress:
      return "illegal address";
    case Fault::Kind::kMisalignedAddress:
      return "misaligned address";
    case Fault::Kind::kIllegalInstruction:
      return "illegal instruction";
    case Fault::Kind::kTrap:
      return "trap";
    case Fault::Kind::kAssert:
      return "assertion";
    case Fault::Kind::kStackOverflow:
      return "stack overflow";
    case Fault::Kind::kInvalidProgramCounter:
      return "invalid program counter";
    case Fault::Kind::kDeadlock:
      return "deadlock";
  }
  return "fault";
}

}  // namespace

void raise_fault(Exec& x, const Instr& in, Fault::Kind kind, uint32_t lane, uint64_t address,
                 size_t bytes, std::string_view note) {
  x.event = Event::kFault;
  Grid& grid = *x.grid;
  const std::lock_guard lock(grid.mutex);
  if (grid.fault) return;  // the first one counts
  Fault fault;
  fault.kind = kind;
  fault.kernel = grid.kernel->name;
  fault.block = x.block->index;
  const auto& size = grid.config.block;
  const uint32_t thread = x.warp->index * kLanes + lane;
  fault.thread = {thread % size[0], thread / size[0] % size[1], thread / size[0] / size[1]};
  fault.address = address;
  fault.bytes = bytes;
  fault.ptx_line = in.line;
  fault.text = fmt::format(
      "{} in kernel {}, block ({}, {}, {}), thread ({}, {}, {}), at {} (PTX line {})",
      kind_name(kind), fault.kernel, fault.block[0], fault.block[1], fault.block[2],
      fault.thread[0], fault.thread[1], fault.thread[2],
      in.text < grid.program->texts.size() ? grid.program->texts[in.text] : "?", in.line);
  if (bytes != 0) fault.text += fmt::format(", {} bytes at {:#x}", bytes, address);
  if (!note.empty()) fault.text += fmt::format(": {}", note);
  grid.fault = std::move(fault);
  grid.stop.store(true, std::memory_order_release);
}

}  // namespace fargpu::sim
