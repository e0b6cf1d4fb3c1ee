// The parsed form of one PTX module: variables, functions, instructions with resolved registers and
// labels. Names and texts are views into the PTX text, which must outlive the module. Plain data;
// built by parse_module only.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "sim/ptx/types.h"

namespace fargpu::sim::ptx {

enum class Linkage : uint8_t { kLocal, kVisible, kWeak, kExtern, kCommon };

// One element of an initialiser: `bytes` bytes of `value`, or of the address of `symbol` plus
// value.
struct InitialValue {
  uint64_t offset = 0;
  unsigned bytes = 0;
  uint64_t value = 0;
  std::string_view symbol;  // empty: a number
  bool generic = false;     // generic(symbol)
  unsigned shift = 0;       // for 0xFF00(symbol): the byte of the address to take
  int line = 0;
};

struct Variable {
  std::string_view name;
  Space space = Space::kGlobal;
  Type type = Type::kB8;
  Linkage linkage = Linkage::kLocal;
  uint64_t align = 1;
  uint64_t bytes = 0;
  bool unsized = false;  // name[]: extern shared memory, or sized by the initialiser
  bool is_managed = false;
  std::vector<InitialValue> initial;
  int line = 0;
};

struct Register {
  std::string_view name;
  Type type = Type::kNone;
};

struct Operand {
  enum class Kind : uint8_t {
    kNone,
    kRegister,  // index
    kVariable,  // index into Function::variables
    kSymbol,    // name of a module variable or function
    kSpecial,   // name of a special register with its part ("%tid.x")
    kLabel,     // index into Function::labels
    kInteger,   // value
    kFloat,     // value: bits of a double, or of a float when is_single
    kVector,    // {a, b}: parts
    kTuple,     // (a, b): parts
    kAddress,   // [base + offset]: parts[0] is the base (kRegister, kVariable, kSymbol, kInteger),
                // value the offset
    kSink,      // _
  };
  Kind kind = Kind::kNone;
  bool negated = false;   // !p
  bool negative = false;  // -%r (only in some instructions)
  bool is_single = false;
  bool is_unsigned = false;
  uint32_t index = 0;
  uint64_t value = 0;  // also the offset of kVariable and kSymbol
  std::string_view name;
  std::string_view part;  // of video instructions: b0, h1, b3210 after the register's name
  std::vector<Operand> parts;
  std::shared_ptr<Operand> pair;  // the q of p|q
};

struct Instruction {
  std::string_view opcode;                  // "ld"
  std::vector<std::string_view> modifiers;  // "global", "v4", "u32"
  bool guarded = false;
  bool guard_negated = false;
  uint32_t guard = 0;  // register
  std::vector<Operand> operands;
  int line = 0;
};

struct Label {
  std::string_view name;
  uint32_t position = 0;  // index of the instruction that follows
  bool defined = false;
  std::vector<uint32_t> targets;  // for .branchtargets: labels
};

// .callprototype, or the face of a function.
struct Prototype {
  std::string_view name;
  std::vector<Variable> returns, params;
};

struct Function {
  std::string_view name;
  bool is_entry = false;
  bool has_body = false;
  bool no_return = false;
  Linkage linkage = Linkage::kLocal;
  std::vector<uint32_t> returns, params;  // indices into variables
  std::vector<Variable> variables;        // .param, .local, .shared (and .global) of all scopes
  std::vector<Register> registers;        // the used ones
  std::vector<Label> labels;
  std::vector<Prototype> prototypes;
  std::vector<Instruction> body;
  std::array<uint32_t, 3> max_threads{}, required_threads{}, required_cluster{};
  bool explicit_cluster = false;
  int line = 0;
};

struct Alias {
  std::string_view name, target;
  int line = 0;
};

struct Module {
  int version = 0;      // 90 for 9.0
  int target_arch = 0;  // 75 for sm_75
  int address_size = 64;
  std::vector<Variable> variables;
  std::vector<std::unique_ptr<Function>> functions;  // declarations and definitions, one per name
  std::vector<Alias> aliases;
};

}  // namespace fargpu::sim::ptx
