#include "sim/exec/lowering/lowering.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "sim/exec/ops/op_table.h"

namespace fargpu::sim {

ConstantPool::ConstantPool() { bytes_.resize(kLanes * 16); }  // zeros first: a harmless operand

OperandRef ConstantPool::value(uint64_t low, unsigned bytes, uint64_t high) {
  const auto [place, fresh] = known_.try_emplace({bytes, low, high}, 0);
  if (fresh) {
    const size_t offset = (bytes_.size() + 63) / 64 * 64;
    bytes_.resize(offset + size_t{kLanes} * bytes);
    uint64_t both[2] = {low, high};
    for (uint32_t l = 0; l < kLanes; ++l)
      std::memcpy(&bytes_[offset + size_t{l} * bytes], both, bytes);
    place->second = operand_ref(kConstArea, static_cast<uint32_t>(offset));
  }
  return place->second;
}

OperandRef ConstantPool::predicate(bool value) { return this->value(value ? ~uint64_t{0} : 0, 8); }

bool ConstantPool::finish(AlignedBuffer& area) const {
  if (bytes_.size() > (size_t{1} << 31) || !area.reserve(bytes_.size())) return false;
  std::memcpy(area.data(), bytes_.data(), bytes_.size());
  return true;
}

bool Modifiers::take(std::string_view word) {
  for (size_t i = 0; i < words_.size(); ++i) {
    if (!used_[i] && words_[i] == word) {
      used_[i] = true;
      return true;
    }
  }
  return false;
}

std::string_view Modifiers::take_one(std::string_view words) {
  while (!words.empty()) {
    const size_t end = std::min(words.find(' '), words.size());
    const std::string_view word = words.substr(0, end);
    if (take(word)) return word;
    words.remove_prefix(std::min(end + 1, words.size()));
  }
  return {};
}

std::string_view Modifiers::take_next(std::string_view words) {
  for (size_t i = 0; i < words_.size(); ++i) {
    if (used_[i]) continue;
    for (size_t at = 0; at < words.size();) {
      const size_t end = std::min(words.find(' ', at), words.size());
      if (words.substr(at, end - at) == words_[i]) {
        used_[i] = true;
        return words_[i];
      }
      at = end + 1;
    }
  }
  return {};
}

ptx::Type Modifiers::take_type() {
  for (size_t i = 0; i < words_.size(); ++i) {
    if (used_[i]) continue;
    if (const ptx::Type type = ptx::type_from_name(words_[i]); type != ptx::Type::kNone) {
      used_[i] = true;
      return type;
    }
  }
  return ptx::Type::kNone;
}

std::optional<ptx::Space> Modifiers::take_space() {
  using ptx::Space;
  if (take("global")) return Space::kGlobal;
  if (take("shared") || take("shared::cta") || take("shared::cluster")) return Space::kShared;
  if (take("local")) return Space::kLocal;
  if (take("const")) return Space::kConst;
  if (take("param") || take("param::entry") || take("param::func")) return Space::kParam;
  return std::nullopt;
}

std::string_view Modifiers::left() const {
  for (size_t i = 0; i < words_.size(); ++i) {
    if (!used_[i]) return words_[i];
  }
  return {};
}

Lowering::Lowering(LoweringContext& context, const ptx::Function& function, uint32_t function_index,
                   bool dry)
    : context_(context),
      program_(*context.program),
      function_(function),
      function_index_(function_index),
      dry_(dry) {
  registers_.resize(function.registers.size(), kNoOperand);
}

namespace {

std::string instruction_text(const ptx::Instruction& instruction) {
  std::string text(instruction.opcode);
  for (const std::string_view word : instruction.modifiers) (text += '.') += word;
  return text;
}

}  // namespace

void Lowering::fail(std::string message) {
  if (failed_) return;
  failed_ = true;
  error_ = {ptx::Diagnostic::Kind::kInvalid,
            fmt::format("{}: {}", instruction_text(*current_), message), current_->line};
}

void Lowering::refuse(std::string_view why) {
  if (failed_) return;
  failed_ = true;
  error_ = {ptx::Diagnostic::Kind::kUnsupportedInstruction,
            fmt::format("instruction '{}' is not supported: {}", instruction_text(*current_), why),
            current_->line};
}

void Lowering::unresolved(std::string_view name) {
  if (failed_) return;
  failed_ = true;
  error_ = {ptx::Diagnostic::Kind::kUnresolvedSymbol,
            fmt::format("{}: '{}' is not defined", instruction_text(*current_), name),
            current_->line};
}

void Lowering::done(Modifiers& mods) {
  if (const std::string_view word = mods.left(); !word.empty()) {
    refuse(fmt::format("unknown modifier .{}", word));
  }
}

bool Lowering::lower(const ptx::Instruction& instruction) {
  current_ = &instruction;
  failed_ = false;
  ignore_guard_ = false;
  temps_used_.clear();
  const std::string text = instruction_text(instruction);
  const auto [place, fresh] =
      texts_.try_emplace(text, static_cast<uint32_t>(program_.texts.size()));
  if (fresh) program_.texts.push_back(text);
  text_index_ = place->second;
  const size_t first = program_.code.size();
  Modifiers mods(instruction.modifiers);
  const auto method = methods().find(instruction.opcode);
  if (method == methods().end()) {
    refuse("unknown instruction");
  } else {
    (this->*method->second)(mods);
  }
  if (failed_) return false;
  if (instruction.guarded && !ignore_guard_) {
    const OperandRef guard = dry_ ? operand_ref(kConstArea, 0) : register_ref(instruction.guard);
    for (size_t i = first; i < program_.code.size(); ++i) {
      program_.code[i].guard = guard;
      program_.code[i].guard_negated = instruction.guard_negated;
    }
  }
  return true;
}

bool Lowering::try_form(const ptx::Instruction& instruction, ptx::Diagnostic& error) {
  if (lower(instruction)) return true;
  error = error_;
  return false;
}

bool Lowering::run(ptx::Diagnostic& error) {
  lay_out_parameters();
  if (!lay_out_variables()) {
    error = error_;
    return false;
  }
  FunctionCode& code = program_.functions[function_index_];
  flow_ = ptx::build_flow_graph(function_);
  std::vector<bool> is_join(flow_.blocks.size(), false);
  for (const ptx::BasicBlock& block : flow_.blocks) {
    if (block.successors.size() + (block.leaves ? 1 : 0) < 2) continue;
    if (block.post_dominator != ptx::BasicBlock::kNone) is_join[block.post_dominator] = true;
  }
  code.entry = static_cast<uint32_t>(program_.code.size());
  const size_t first_site = program_.call_sites.size();
  block_pc_.resize(flow_.blocks.size());
  for (size_t b = 0; b < flow_.blocks.size(); ++b) {
    const ptx::BasicBlock& block = flow_.blocks[b];
    block_pc_[b] = static_cast<uint32_t>(program_.code.size());
    if (is_join[b]) {
      stand_in_ = {};
      current_ = &stand_in_;
      emit("join");
    }
    for (uint32_t i = block.begin; i < block.end; ++i) {
      current_index_ = i;
      if (!lower(function_.body[i])) {
        error = error_;
        return false;
      }
    }
  }
  // A body without a last ret ends here all the same.
  ptx::Instruction last;
  last.opcode = "ret";
  last.line = function_.body.empty() ? function_.line : function_.body.back().line;
  if (!lower(last)) {
    error = error_;
    return false;
  }
  for (const Patch& patch : target_patches_) {
    program_.code[patch.instruction].target = block_pc_[patch.block];
  }
  for (const Patch& patch : join_patches_) {
    program_.code[patch.instruction].join = block_pc_[patch.block];
  }
  for (const uint32_t table : table_patches_) {
    for (uint32_t& target : program_.branch_tables[table]) target = block_pc_[target];
  }
  if (frame_bytes_ >= (1u << 30) || local_bytes_ >= (1u << 30)) {
    fail("the function is too big");
    error = error_;
    return false;
  }
  code.frame_bytes = (frame_bytes_ + 63) / 64 * 64;
  code.local_bytes = static_cast<uint32_t>((local_bytes_ + 15) / 16 * 16);
  for (size_t i = first_site; i < program_.call_sites.size(); ++i) {
    program_.call_sites[i].frame_bytes = code.frame_bytes;
    program_.call_sites[i].local_bytes = code.local_bytes;
  }
  return true;
}

Instr& Lowering::emit(std::string_view op) {
  Instr in;
  in.run = op_table().find(op);
  if (in.run == nullptr) refuse(fmt::format("no such variant ({})", op));
  in.line = current_->line;
  in.text = text_index_;
  program_.code.push_back(in);
  return program_.code.back();
}

Instr& Lowering::emit(std::string_view op, OperandRef dst, OperandRef a, OperandRef b,
                      OperandRef c) {
  Instr& in = emit(op);
  in.dst = dst;
  in.a = a;
  in.b = b;
  in.c = c;
  return in;
}

uint32_t Lowering::add_list(const std::vector<OperandRef>& list) {
  const auto first = static_cast<uint32_t>(program_.operand_lists.size());
  program_.operand_lists.insert(program_.operand_lists.end(), list.begin(), list.end());
  return first;
}

}  // namespace fargpu::sim
