#include <fmt/core.h>

#include <bit>

#include "sim/ptx/parser_impl.h"

namespace fargpu::sim::ptx {

bool constant_bits(const Constant& constant, Type type, uint64_t& bits) {
  using Kind = Constant::Kind;
  const uint64_t v = constant.value;
  if (type == Type::kF64) {
    if (constant.kind == Kind::kSingle)
      return bits = std::bit_cast<uint64_t>(
                 static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(v)))),
             true;
    bits = constant.kind == Kind::kFloat
               ? v
               : std::bit_cast<uint64_t>(static_cast<double>(static_cast<int64_t>(v)));
    return true;
  }
  if (type == Type::kF32) {
    if (constant.kind == Kind::kSingle) return bits = v, true;
    const double d = constant.kind == Kind::kFloat ? std::bit_cast<double>(v)
                                                   : static_cast<double>(static_cast<int64_t>(v));
    bits = std::bit_cast<uint32_t>(static_cast<float>(d));
    return true;
  }
  // Untyped and integer values take integers and the bits of floats of their own size.
  const unsigned size = type_bytes(type);
  if (constant.kind == Kind::kFloat && size != 8) return false;
  if (constant.kind == Kind::kSingle && size != 4) return false;
  bits = size >= 8 ? v : v & ((uint64_t{1} << 8 * size) - 1);
  return true;
}

bool Parser::parse_dimensions(Variable& variable, unsigned vector) {
  uint64_t count = vector;
  bool first = true;
  while (accept('[')) {
    if (accept(']')) {
      if (!first) return fail("only the first dimension may be empty");
      variable.unsized = true;
    } else {
      Constant size;
      const int line = peek().line;
      if (!parse_constant(size)) return false;
      if (size.kind != Constant::Kind::kInteger || size.value > kMaxVariableBytes) {
        return fail_at(line, fmt::format("array size of '{}' is out of range", variable.name));
      }
      count *= size.value;
      if (count > kMaxVariableBytes) {
        return fail_at(line, fmt::format("'{}' is too big", variable.name));
      }
      if (!expect(']')) return false;
    }
    first = false;
  }
  variable.bytes = count * type_bytes(variable.type);
  return true;
}

// After the space directive: qualifiers, type, names. A parameter has one name and no semicolon.
bool Parser::parse_variable(Space space, Linkage linkage, std::vector<Variable>& out,
                            bool parameter) {
  Variable model;
  model.space = space;
  model.linkage = linkage;
  model.type = Type::kNone;
  unsigned vector = 1;
  uint64_t align = 0;
  bool pointer = false;  // after .ptr an .align speaks of what the parameter points to
  while (peek().kind == TokenKind::kDot) {
    const Token& word = take();
    if (word.text == "align") {
      uint64_t value = 0;
      if (!expect_integer(value)) return false;
      if (!std::has_single_bit(value) || value > 65536) {
        return fail_at(word.line, fmt::format(".align {} is not a power of two", value));
      }
      if (!pointer) align = value;
    } else if (word.text == "v2" || word.text == "v4") {
      vector = word.text == "v2" ? 2 : 4;
    } else if (word.text == "ptr") {
      pointer = true;
    } else if (pointer && (word.text == "global" || word.text == "const" || word.text == "shared" ||
                           word.text == "local")) {
      continue;
    } else if (word.text == "attribute") {
      if (!expect('(')) return false;
      while (!accept(')')) {
        if (peek().kind == TokenKind::kEnd) return fail("expected ')'");
        model.is_managed |= peek().text == "managed";
        take();
      }
    } else if (const Type type = type_from_name(word.text); type != Type::kNone) {
      if (type == Type::kPred) return fail_at(word.line, "a predicate cannot be in memory");
      model.type = type;
    } else {
      return fail_at(word.line, fmt::format("unknown word .{} in a declaration", word.text));
    }
  }
  if (model.type == Type::kNone) return fail("expected a type");
  model.align = std::max<uint64_t>(align, align == 0 ? type_bytes(model.type) * vector : 1);
  do {
    Variable variable = model;
    variable.line = peek().line;
    if (!expect_name(variable.name) || !parse_dimensions(variable, vector)) return false;
    if (!parameter) {
      if (peek().is('=')) {
        if (space != Space::kGlobal && space != Space::kConst) {
          return fail("only .global and .const variables have initial values");
        }
        take();
        if (!parse_initializer(variable, type_bytes(variable.type))) return false;
      }
      if (&out == &module_->variables) {
        if (function_names_.contains(variable.name)) {
          return fail_at(variable.line, fmt::format("'{}' is already a function", variable.name));
        }
        const auto [place, fresh] = variable_names_.try_emplace(variable.name, out.size());
        if (!fresh) {
          Variable& known = out[place->second];
          // A declaration may be repeated; a definition replaces it.
          if (known.linkage != Linkage::kExtern && linkage != Linkage::kExtern) {
            return fail_at(variable.line, fmt::format("'{}' is defined twice", variable.name));
          }
          if (known.linkage == Linkage::kExtern) known = std::move(variable);
          continue;
        }
      }
    }
    out.push_back(std::move(variable));
    if (parameter) return true;
  } while (accept(','));
  return expect(';');
}

bool Parser::parse_initializer(Variable& variable, uint64_t element_bytes) {
  const auto element = static_cast<unsigned>(element_bytes);
  uint64_t offset = 0;
  const int line = peek().line;
  if (peek().is('{')) {
    take();
    if (!parse_initial_values(variable, element, offset, 0)) return false;
  } else {
    if (!parse_initial_value(variable, element, 0)) return false;
    offset = element;
  }
  if (variable.unsized) {
    variable.bytes = offset;
    variable.unsized = false;
  }
  if (offset > variable.bytes) {
    return fail_at(line, fmt::format("too many initial values for '{}'", variable.name));
  }
  return true;
}

// Values of one { } list. Nested lists continue at the next value: PTX writers give every element
// of inner dimensions.
bool Parser::parse_initial_values(Variable& variable, unsigned element, uint64_t& offset,
                                  int depth) {
  if (depth > kMaxNesting) return fail("initial values are nested too deeply");
  if (accept('}')) return true;
  do {
    if (accept('{')) {
      if (!parse_initial_values(variable, element, offset, depth + 1)) return false;
      continue;
    }
    if (!parse_initial_value(variable, element, offset)) return false;
    offset += element;
  } while (accept(','));
  return expect('}');
}

bool Parser::parse_initial_value(Variable& variable, unsigned element, uint64_t offset) {
  InitialValue value;
  value.offset = offset;
  value.bytes = element;
  value.line = peek().line;
  const bool masked = peek().kind == TokenKind::kInteger && peek(1).is('(');
  bool close = false;
  if (masked) {  // 0xFF00(symbol): one byte of an address
    const uint64_t mask = take().value;
    take();
    value.shift = static_cast<unsigned>(std::countr_zero(mask));
    if (mask == 0 || value.shift % 8 != 0 || mask >> value.shift != 0xff) {
      return fail_at(value.line, "expected a mask of one byte before '('");
    }
    close = true;
  }
  if (peek().kind == TokenKind::kIdentifier) {
    bool generic = peek().text == "generic" && peek(1).is('(');
    if (generic) {
      take();
      take();
    }
    value.generic = generic;
    if (!expect_name(value.symbol)) return false;
    if (generic && !expect(')')) return false;
    if (peek().is('+') || peek().is('-')) {
      if (!parse_offset(value.value)) return false;
    }
    if (!masked && element < 4) {
      return fail_at(value.line,
                     fmt::format("address of '{}' in a {}-byte element", value.symbol, element));
    }
  } else if (masked) {
    return fail("expected a name");
  } else {
    Constant constant;
    if (!parse_constant(constant)) return false;
    if (!constant_bits(constant, variable.type, value.value)) {
      return fail_at(value.line, fmt::format("an initial value of '{}' does not fit .{}",
                                             variable.name, type_name(variable.type)));
    }
  }
  if (close && !expect(')')) return false;
  variable.initial.push_back(value);
  return true;
}

// After .reg.
bool Parser::parse_registers() {
  Type type = Type::kNone;
  unsigned vector = 1;
  while (peek().kind == TokenKind::kDot) {
    const Token& word = take();
    if (word.text == "v2" || word.text == "v4") {
      vector = word.text == "v2" ? 2 : 4;
    } else if (word.text == "align") {
      uint64_t ignored = 0;
      if (!expect_integer(ignored)) return false;
    } else {
      type = type_from_name(word.text);
      if (type == Type::kNone || type == Type::kOpaque) {
        return fail_at(word.line, fmt::format("unknown register type .{}", word.text));
      }
    }
  }
  if (type == Type::kNone) return fail("expected a register type");
  if (vector != 1) return fail("vector registers are not supported");
  Scope& scope = scopes_.back();
  do {
    const Token& token = peek();
    std::string_view name;
    if (!expect_name(name)) return false;
    bool fresh = false;
    if (accept('<')) {
      uint64_t count = 0;
      if (!expect_integer(count) || !expect('>')) return false;
      fresh = scope.ranges.try_emplace(name, RegisterRange{type, count}).second;
    } else {
      fresh = scope.registers.try_emplace(name, function_->registers.size()).second;
      function_->registers.push_back({name, type});
      if (function_->registers.size() > kMaxRegisters)
        return fail_at(token.line, "too many registers");
    }
    if (!fresh) return fail_at(token.line, fmt::format("register '{}' is declared twice", name));
  } while (accept(','));
  return expect(';');
}

}  // namespace fargpu::sim::ptx
