#include <fmt/core.h>

#include "sim/ptx/parser_impl.h"

namespace fargpu::sim::ptx {
namespace {

bool is_component(std::string_view word) {
  return word == "x" || word == "y" || word == "z" || word == "w";
}

bool takes_labels(std::string_view opcode) { return opcode == "bra" || opcode == "brx"; }

}  // namespace

void Parser::open_scope() { scopes_.emplace_back(); }

// Labels are known when their scope ends; what is not found here may belong to the scope around it.
bool Parser::close_scope() {
  Scope scope = std::move(scopes_.back());
  scopes_.pop_back();
  for (const LabelUse& use : scope.uses) {
    const auto found = scope.labels.find(use.name);
    if (found == scope.labels.end()) {
      if (scopes_.empty()) return fail_at(use.line, fmt::format("unknown label '{}'", use.name));
      scopes_.back().uses.push_back(use);
      continue;
    }
    if (use.in_targets) {
      function_->labels[use.owner].targets[use.position] = found->second;
    } else {
      Operand& operand = function_->body[use.owner].operands[use.position];
      operand.kind = Operand::Kind::kLabel;
      operand.index = found->second;
    }
  }
  return true;
}

bool Parser::declare_variables(size_t first) {
  for (size_t i = first; i < function_->variables.size(); ++i) {
    const Variable& variable = function_->variables[i];
    if (variable.name == "_") continue;
    if (!scopes_.back().variables.try_emplace(variable.name, static_cast<uint32_t>(i)).second) {
      return fail_at(variable.line, fmt::format("'{}' is declared twice", variable.name));
    }
  }
  return true;
}

bool Parser::parse_body(Function& function) {
  function_ = &function;
  scopes_.clear();
  open_scope();
  if (!declare_variables(0)) return false;
  while (scopes_.size() > 1 || !peek().is('}')) {
    if (!parse_statement()) return false;
  }
  take();
  const bool ok = close_scope();
  function_ = nullptr;
  return ok;
}

bool Parser::parse_statement() {
  const Token& token = peek();
  if (accept(';')) return true;
  if (accept('{')) {
    if (scopes_.size() > kMaxNesting) return fail("blocks are nested too deeply");
    open_scope();
    return true;
  }
  if (accept('}')) return close_scope();
  if (token.kind == TokenKind::kDot) return parse_body_directive();
  if (token.kind == TokenKind::kIdentifier && peek(1).is(':')) {
    take();
    take();
    return parse_labelled(token.text, token.line);
  }
  if (token.is('@') && peek(1).is('@')) {
    while (peek().kind != TokenKind::kEnd && peek().line == token.line) take();
    return true;
  }
  return parse_instruction();
}

bool Parser::parse_body_directive() {
  const Token& word = take();
  if (word.text == "reg") return parse_registers();
  if (word.text == "pragma") return skip_to_semicolon();
  if (word.text == "loc") return skip_location();
  if (word.text == "file") return skip_file();
  if (word.text == "section") return skip_block();
  Space space = Space::kGeneric;
  if (word.text == "param") space = Space::kParam;
  if (word.text == "local") space = Space::kLocal;
  if (word.text == "shared") space = Space::kShared;
  if (word.text == "global") space = Space::kGlobal;
  if (word.text == "const") space = Space::kConst;
  if (space == Space::kGeneric) {
    return fail_at(word.line, fmt::format("unknown directive .{} in a function", word.text));
  }
  const size_t first = function_->variables.size();
  return parse_variable(space, Linkage::kLocal, function_->variables, false) &&
         declare_variables(first);
}

// After "name:" : a label, a list of branch targets, or a call prototype.
bool Parser::parse_labelled(std::string_view name, int line) {
  if (peek().kind == TokenKind::kDot && peek().text == "callprototype") {
    take();
    Prototype prototype;
    prototype.name = name;
    if (accept('(') && !parse_parameters(')', prototype.returns, false)) return false;
    std::string_view ignored;
    if (!expect_name(ignored)) return false;
    if (accept('(') && !parse_parameters(')', prototype.params, false)) return false;
    Function directives;
    if (!parse_function_directives(directives)) return false;
    function_->prototypes.push_back(std::move(prototype));
    return expect(';');
  }
  if (peek().kind == TokenKind::kDot && peek().text == "calltargets") return skip_to_semicolon();
  const auto index = static_cast<uint32_t>(function_->labels.size());
  if (!scopes_.back().labels.try_emplace(name, index).second) {
    return fail_at(line, fmt::format("label '{}' is defined twice", name));
  }
  Label label;
  label.name = name;
  label.position = static_cast<uint32_t>(function_->body.size());
  label.defined = true;
  if (peek().kind == TokenKind::kDot && peek().text == "branchtargets") {
    take();
    label.defined = false;
    do {
      LabelUse use{{}, true, index, static_cast<uint32_t>(label.targets.size()), peek().line};
      if (!expect_name(use.name)) return false;
      label.targets.push_back(0);
      scopes_.back().uses.push_back(use);
    } while (accept(','));
    if (!expect(';')) return false;
  }
  function_->labels.push_back(std::move(label));
  return true;
}

bool Parser::find_register(std::string_view name, uint32_t& index) {
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
    if (const auto found = scope->registers.find(name); found != scope->registers.end()) {
      index = found->second;
      return true;
    }
    // "%r12" of ".reg .b32 %r<60>": every split of the digits at the end is tried.
    size_t digits = name.size();
    while (digits > 0 && name[digits - 1] >= '0' && name[digits - 1] <= '9') --digits;
    for (size_t cut = digits; cut < name.size() && cut > 0 && !scope->ranges.empty(); ++cut) {
      const auto range = scope->ranges.find(name.substr(0, cut));
      if (range == scope->ranges.end()) continue;
      const std::string_view number = name.substr(cut);
      if ((number.size() > 1 && number[0] == '0') || number.size() > 9) continue;
      uint64_t value = 0;
      for (const char c : number) value = value * 10 + static_cast<uint64_t>(c - '0');
      if (value >= range->second.count) continue;
      if (function_->registers.size() >= kMaxRegisters) return false;
      index = static_cast<uint32_t>(function_->registers.size());
      function_->registers.push_back({name, range->second.type});
      scope->registers.emplace(name, index);
      return true;
    }
  }
  return false;
}

bool Parser::find_variable(std::string_view name, uint32_t& index) const {
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
    if (const auto found = scope->variables.find(name); found != scope->variables.end()) {
      index = found->second;
      return true;
    }
  }
  return false;
}

bool Parser::parse_guard(Instruction& instruction) {
  if (!accept('@')) return true;
  instruction.guarded = true;
  instruction.guard_negated = accept('!');
  const int line = peek().line;
  std::string_view name;
  if (!expect_name(name)) return false;
  if (!find_register(name, instruction.guard) ||
      function_->registers[instruction.guard].type != Type::kPred) {
    return fail_at(line, fmt::format("'{}' is not a predicate register", name));
  }
  return true;
}

bool Parser::parse_instruction() {
  Instruction instruction;
  if (!parse_guard(instruction)) return false;
  instruction.line = peek().line;
  if (!expect_name(instruction.opcode)) return false;
  while (peek().kind == TokenKind::kDot) instruction.modifiers.push_back(take().text);
  const bool in_call = instruction.opcode == "call";
  if (!peek().is(';')) {
    do {
      Operand operand;
      if (!parse_operand(operand, 0, in_call)) return false;
      instruction.operands.push_back(std::move(operand));
    } while (accept(','));
  }
  if (!expect(';')) return false;
  if (takes_labels(instruction.opcode)) note_labels(instruction);
  function_->body.push_back(std::move(instruction));
  return true;
}

void Parser::note_labels(Instruction& instruction) {
  for (size_t i = 0; i < instruction.operands.size(); ++i) {
    const Operand& operand = instruction.operands[i];
    if (operand.kind != Operand::Kind::kSymbol) continue;
    scopes_.back().uses.push_back({operand.name, false,
                                   static_cast<uint32_t>(function_->body.size()),
                                   static_cast<uint32_t>(i), instruction.line});
  }
}

bool Parser::parse_list(Operand& operand, char close, int depth, bool in_call) {
  if (accept(close)) return true;
  do {
    Operand part;
    if (!parse_operand(part, depth + 1, in_call)) return false;
    operand.parts.push_back(std::move(part));
  } while (accept(','));
  return expect(close);
}

// "+ constant" or "- constant", added to value.
bool Parser::parse_offset(uint64_t& value) {
  Constant constant;
  const int line = peek().line;
  const bool minus = peek().is('-');
  if (!minus && !accept('+')) return fail("expected an offset");
  if (minus) take();
  if (!parse_constant(constant)) return false;
  if (constant.kind != Constant::Kind::kInteger)
    return fail_at(line, "an offset must be an integer");
  value += minus ? 0 - constant.value : constant.value;
  return true;
}

bool Parser::parse_address(Operand& operand, int depth) {
  operand.kind = Operand::Kind::kAddress;
  Operand base;
  if (peek().kind == TokenKind::kIdentifier) {
    if (!parse_name(base)) return false;
    if ((peek().is('+') || peek().is('-')) && !parse_offset(operand.value)) return false;
  } else if (!parse_operand(base, depth + 1, false)) {
    return false;
  }
  // What a variable's own offset said belongs to the address.
  operand.value += base.kind == Operand::Kind::kInteger ? 0 : base.value;
  if (base.kind != Operand::Kind::kInteger) base.value = 0;
  operand.parts.push_back(std::move(base));
  while (accept(',')) {  // coordinates of textures and tensors
    Operand part;
    if (!parse_operand(part, depth + 1, false)) return false;
    operand.parts.push_back(std::move(part));
  }
  return expect(']');
}

bool Parser::parse_name(Operand& operand) {
  const Token& token = take();
  operand.name = token.text;
  if (token.text == "_") {
    operand.kind = Operand::Kind::kSink;
    return true;
  }
  if (token.text == "WARP_SZ") {
    operand.kind = Operand::Kind::kInteger;
    operand.value = 32;
    return true;
  }
  if (find_register(token.text, operand.index)) {
    operand.kind = Operand::Kind::kRegister;
    const Token& part = peek();
    if (part.kind == TokenKind::kDot && part.glued) operand.part = take().text;
    return true;
  }
  if (find_variable(token.text, operand.index)) {
    operand.kind = Operand::Kind::kVariable;
    return true;
  }
  operand.kind = Operand::Kind::kSymbol;
  if (token.text[0] == '%') {
    operand.kind = Operand::Kind::kSpecial;
    const Token& part = peek();
    if (part.kind == TokenKind::kDot && part.glued && is_component(part.text)) {
      take();
      operand.name = std::string_view(token.text.data(), token.text.size() + 1 + part.text.size());
    }
  }
  return true;
}

bool Parser::parse_operand(Operand& operand, int depth, bool in_call) {
  if (depth > kMaxNesting) return fail("operands are nested too deeply");
  if (accept('{')) {
    operand.kind = Operand::Kind::kVector;
    return parse_list(operand, '}', depth, in_call);
  }
  if (accept('[')) return parse_address(operand, depth);
  if (in_call && accept('(')) {
    operand.kind = Operand::Kind::kTuple;
    return parse_list(operand, ')', depth, in_call);
  }
  if (peek().is('!') && peek(1).kind == TokenKind::kIdentifier) {
    take();
    operand.negated = true;
  } else if (peek().is('-') && peek(1).kind == TokenKind::kIdentifier) {
    take();
    operand.negative = true;
  }
  if (peek().kind == TokenKind::kIdentifier) {
    if (!parse_name(operand)) return false;
    const bool addressable =
        operand.kind == Operand::Kind::kVariable || operand.kind == Operand::Kind::kSymbol;
    if (addressable && (peek().is('+') || peek().is('-')) && !parse_offset(operand.value)) {
      return false;
    }
    if (accept('|')) {
      operand.pair = std::make_shared<Operand>();
      return parse_operand(*operand.pair, depth + 1, in_call);
    }
    return true;
  }
  Constant constant;
  if (!parse_constant(constant)) return false;
  operand.value = constant.value;
  operand.is_unsigned = constant.is_unsigned;
  operand.is_single = constant.kind == Constant::Kind::kSingle;
  operand.kind =
      constant.kind == Constant::Kind::kInteger ? Operand::Kind::kInteger : Operand::Kind::kFloat;
  return true;
}

}  // namespace fargpu::sim::ptx
