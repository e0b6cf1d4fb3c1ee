// From PTX texts to ProgramCode: parse, link by name, place variables in memory, lower every
// function.
#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <unordered_set>

#include "sim/exec/run/program.h"
#include "sim/ptx/parser.h"

namespace fargpu::sim {
namespace {

using ptx::Linkage;
using ptx::Space;

// Local memory of a thread whose depth of calls is not known at load.
constexpr uint64_t kRecursionBytes = 64u << 10;

uint64_t align_up(uint64_t value, uint64_t align) { return (value + align - 1) / align * align; }

struct FunctionFacts {
  std::unordered_set<std::string_view> names;  // symbols that occur in operands
  bool indirect = false;
  std::vector<uint32_t> callees;  // functions of the program that occur, called or not
  bool uses_common_shared = false;
};

void collect_names(const ptx::Operand& operand, std::unordered_set<std::string_view>& names) {
  if (operand.kind == ptx::Operand::Kind::kSymbol) names.insert(operand.name);
  for (const ptx::Operand& part : operand.parts) collect_names(part, names);
}

class Loader {
 public:
  Loader(MemoryMap& memory, const EngineOptions& options, ProgramCode& code,
         std::vector<GlobalInfo>& globals, std::vector<uint64_t>& allocations, LoadError& error)
      : memory_(memory),
        options_(options),
        code_(code),
        globals_(globals),
        allocations_(allocations),
        error_(error) {}

  bool run(std::span<const std::string_view> texts) {
    return parse(texts) && add_functions() && add_variables() && place_shared() && initialize() &&
           lower() && finish();
  }

 private:
  struct Unit {
    ptx::Module module;
    std::unordered_map<std::string_view, Symbol> symbols;
    std::vector<uint32_t> function_index;  // of each function of the module
  };

  bool fail(LoadError::Kind kind, std::string message, int line) {
    error_ = {kind, fmt::format("PTX line {}: {}", line, message), line};
    return false;
  }
  bool fail(const ptx::Diagnostic& d) {
    static constexpr LoadError::Kind kKinds[] = {
        LoadError::Kind::kInvalidPtx, LoadError::Kind::kUnsupportedInstruction,
        LoadError::Kind::kUnresolvedSymbol, LoadError::Kind::kUnsupportedTarget};
    return fail(kKinds[static_cast<size_t>(d.kind)], d.message, d.line);
  }

  bool parse(std::span<const std::string_view> texts);
  bool add_functions();
  bool is_placed_apart(const ptx::Variable& variable) const {
    return variable.is_managed && options_.managed != nullptr && variable.space == Space::kGlobal &&
           variable.linkage != Linkage::kExtern;
  }
  bool add_managed_variables();
  bool add_variables();
  bool place_shared();
  bool initialize();
  bool lower();
  bool finish();
  bool define(std::string_view name, Linkage linkage, const Symbol& symbol, int line, bool& fresh);
  void find_facts();
  uint64_t local_need(uint32_t function, std::vector<int>& state, std::vector<uint64_t>& need);

  MemoryMap& memory_;
  const EngineOptions& options_;
  ProgramCode& code_;
  std::vector<GlobalInfo>& globals_;
  std::vector<uint64_t>& allocations_;
  LoadError& error_;

  std::vector<std::unique_ptr<Unit>> units_;
  struct Global {
    Symbol symbol;
    Linkage linkage;
  };
  std::unordered_map<std::string_view, Global> exported_;
  std::vector<const ptx::Function*> bodies_;  // by function index; null for builtins
  std::vector<uint32_t> unit_of_;
  std::vector<FunctionFacts> facts_;
  std::vector<uint64_t> shared_base_;
  uint64_t common_shared_ = 0;
  uint64_t constant_bytes_ = 0;
  std::unordered_set<const ptx::Variable*> initialized_;  // by an earlier load
  ConstantPool constants_;
};

bool Loader::parse(std::span<const std::string_view> texts) {
  for (const std::string_view text : texts) {
    ptx::Diagnostic diagnostic;
    // Drivers hand PTX over with its terminating zero; what follows it is not text.
    std::optional<ptx::Module> module =
        ptx::parse_module(text.substr(0, text.find('\0')), diagnostic);
    if (!module) return fail(diagnostic);
    if (module->target_arch > options_.compute_capability) {
      return fail(LoadError::Kind::kUnsupportedTarget,
                  fmt::format("the PTX is for sm_{}, this GPU is sm_{}", module->target_arch,
                              options_.compute_capability),
                  1);
    }
    units_.push_back(std::make_unique<Unit>());
    units_.back()->module = std::move(*module);
  }
  return true;
}

// A name that other modules can see. fresh: the definition counts; otherwise an earlier one stays.
bool Loader::define(std::string_view name, Linkage linkage, const Symbol& symbol, int line,
                    bool& fresh) {
  const auto [place, added] = exported_.try_emplace(name, Global{symbol, linkage});
  fresh = added;
  if (added) return true;
  const bool weak = linkage == Linkage::kWeak || linkage == Linkage::kCommon;
  const bool known_weak =
      place->second.linkage == Linkage::kWeak || place->second.linkage == Linkage::kCommon;
  if (!weak && !known_weak)
    return fail(LoadError::Kind::kInvalidPtx, fmt::format("'{}' is defined in two modules", name),
                line);
  if (known_weak && !weak) {
    place->second = {symbol, linkage};
    fresh = true;
  }
  return true;
}

bool Loader::add_functions() {
  const auto add = [&](std::string_view name, const ptx::Function& function, uint32_t unit,
                       bool body) {
    FunctionCode code;
    code.name = name;
    code.is_entry = function.is_entry;
    code.defined = body;
    for (const uint32_t i : function.params)
      code.params.push_back({0, static_cast<uint32_t>(function.variables[i].bytes)});
    for (const uint32_t i : function.returns)
      code.returns.push_back({0, static_cast<uint32_t>(function.variables[i].bytes)});
    code_.functions.push_back(std::move(code));
    bodies_.push_back(body ? &function : nullptr);
    unit_of_.push_back(unit);
    return static_cast<uint32_t>(code_.functions.size() - 1);
  };
  for (uint32_t u = 0; u < units_.size(); ++u) {
    Unit& unit = *units_[u];
    for (const auto& function : unit.module.functions) {
      if (!function->has_body) continue;
      Symbol symbol{.kind = Symbol::Kind::kFunction, .value = code_.functions.size()};
      bool fresh = true;
      if (function->linkage != Linkage::kLocal) {
        if (!define(function->name, function->linkage, symbol, function->line, fresh)) return false;
      }
      if (fresh)
        add(function->name, *function, u, true);
      else
        symbol = exported_.at(function->name).symbol;
      unit.symbols.emplace(function->name, symbol);
    }
  }
  for (uint32_t u = 0; u < units_.size(); ++u) {
    Unit& unit = *units_[u];
    for (const auto& function : unit.module.functions) {
      if (function->has_body) {
        // A weak definition may have lost against a strong one that came later.
        if (const auto known = exported_.find(function->name);
            known != exported_.end() && function->linkage != Linkage::kLocal) {
          unit.symbols[function->name] = known->second.symbol;
        }
        continue;
      }
      if (const auto known = exported_.find(function->name); known != exported_.end()) {
        unit.symbols[function->name] = known->second.symbol;
        continue;
      }
      const Builtin builtin = builtin_from_name(function->name);
      if (builtin == Builtin::kNone) continue;  // unresolved: an error where it is used
      const size_t arguments[] = {0, 2, 5, 1, 1, 2, 4, 2, 2, 2};
      if (function->params.size() != arguments[static_cast<size_t>(builtin)]) {
        return fail(LoadError::Kind::kInvalidPtx,
                    fmt::format("'{}' is declared with other parameters than the runtime's",
                                function->name),
                    function->line);
      }
      const uint32_t index = add(function->name, *function, u, false);
      code_.functions[index].builtin = builtin;
      unit.symbols.emplace(function->name, Symbol{.kind = Symbol::Kind::kFunction, .value = index});
    }
    for (const ptx::Alias& alias : unit.module.aliases) {
      const auto target = unit.symbols.find(alias.target);
      if (target == unit.symbols.end() || target->second.kind != Symbol::Kind::kFunction) {
        return fail(LoadError::Kind::kUnresolvedSymbol,
                    fmt::format(".alias of '{}', which is not a function", alias.target),
                    alias.line);
      }
      unit.symbols.insert_or_assign(alias.name, target->second);
    }
  }
  return true;
}

bool Loader::add_managed_variables() {
  for (size_t u = 0; u < units_.size(); ++u) {
    for (const ptx::Variable& v : units_[u]->module.variables) {
      if (!is_placed_apart(v)) continue;
      const bool is_local = v.linkage == Linkage::kLocal;
      const auto place = options_.managed->place(
          is_local ? fmt::format("{}#{}", v.name, u) : std::string(v.name), v.bytes, v.align);
      if (place.address == 0)
        return fail(LoadError::Kind::kInvalidPtx, fmt::format("no managed memory for '{}'", v.name),
                    v.line);
      Symbol symbol{.kind = Symbol::Kind::kMemory, .value = place.address, .space = Space::kGlobal};
      bool fresh = true;
      if (!is_local && !define(v.name, v.linkage, symbol, v.line, fresh)) return false;
      units_[u]->symbols[v.name] = symbol;
      if (!place.is_new) initialized_.insert(&v);
      if (fresh) globals_.push_back({std::string(v.name), place.address, v.bytes, false, true});
    }
  }
  return true;
}

bool Loader::add_variables() {
  if (!add_managed_variables()) return false;
  // Definitions first: all .global variables in one allocation, all .const ones in another.
  for (const Space space : {Space::kGlobal, Space::kConst}) {
    struct Placed {
      Unit* unit;
      const ptx::Variable* variable;
      uint64_t offset;
    };
    std::vector<Placed> placed;
    uint64_t bytes = 0;
    for (auto& unit : units_) {
      for (const ptx::Variable& v : unit->module.variables) {
        if (v.space != space || v.linkage == Linkage::kExtern || is_placed_apart(v)) continue;
        bytes = align_up(bytes, v.align);
        placed.push_back({unit.get(), &v, bytes});
        bytes += v.bytes;
        if (bytes > uint64_t{1} << 40)
          return fail(LoadError::Kind::kInvalidPtx, fmt::format("'{}': too many variables", v.name),
                      v.line);
      }
    }
    if (placed.empty()) continue;
    const uint64_t base = memory_.allocate(std::max<uint64_t>(bytes, 1));
    if (base == 0)
      return fail(LoadError::Kind::kNoMemory,
                  fmt::format("no device memory for {} bytes of variables", bytes),
                  placed[0].variable->line);
    allocations_.push_back(base);
    if (space == Space::kConst) constant_bytes_ = bytes;
    for (const Placed& p : placed) {
      const ptx::Variable& v = *p.variable;
      Symbol symbol{.kind = Symbol::Kind::kMemory, .value = base + p.offset, .space = space};
      bool fresh = true;
      if (v.linkage != Linkage::kLocal) {
        if (!define(v.name, v.linkage, symbol, v.line, fresh)) return false;
        if (!fresh) symbol = exported_.at(v.name).symbol;
      }
      p.unit->symbols[v.name] = symbol;
      if (fresh)
        globals_.push_back({std::string(v.name), symbol.value, v.bytes, space == Space::kConst});
    }
  }
  for (auto& unit : units_) {
    for (const ptx::Variable& v : unit->module.variables) {
      if (v.space != Space::kGlobal && v.space != Space::kConst) continue;
      if (v.linkage == Linkage::kLocal) continue;
      if (const auto known = exported_.find(v.name); known != exported_.end())
        unit->symbols[v.name] = known->second.symbol;
    }
  }
  return true;
}

void Loader::find_facts() {
  facts_.resize(code_.functions.size());
  for (size_t f = 0; f < bodies_.size(); ++f) {
    if (bodies_[f] == nullptr) continue;
    FunctionFacts& facts = facts_[f];
    const Unit& unit = *units_[unit_of_[f]];
    for (const ptx::Instruction& instruction : bodies_[f]->body) {
      for (const ptx::Operand& operand : instruction.operands) collect_names(operand, facts.names);
      if (instruction.opcode != "call") continue;
      for (const ptx::Operand& operand : instruction.operands)
        facts.indirect |= operand.kind == ptx::Operand::Kind::kRegister;
    }
    for (const std::string_view name : facts.names) {
      const auto symbol = unit.symbols.find(name);
      if (symbol == unit.symbols.end()) continue;
      if (symbol->second.kind == Symbol::Kind::kFunction)
        facts.callees.push_back(static_cast<uint32_t>(symbol->second.value));
      if (symbol->second.kind == Symbol::Kind::kShared) facts.uses_common_shared = true;
    }
  }
}

// Shared memory: first what several kernels may use (module scope and device functions), then each
// kernel's own.
bool Loader::place_shared() {
  for (auto& unit : units_) {
    for (const ptx::Variable& v : unit->module.variables) {
      if (v.space == Space::kLocal)
        return fail(LoadError::Kind::kInvalidPtx,
                    fmt::format("'{}': .local variables belong into functions", v.name), v.line);
      if (v.space != Space::kShared) continue;
      // An array without a size lies behind all others. A size counts, also that of an .extern one.
      if (v.unsized) {
        unit->symbols[v.name] = {.kind = Symbol::Kind::kDynamicShared, .space = Space::kShared};
        continue;
      }
      common_shared_ = align_up(common_shared_, v.align);
      unit->symbols[v.name] = {
          .kind = Symbol::Kind::kShared, .value = common_shared_, .space = Space::kShared};
      common_shared_ += v.bytes;
    }
  }
  shared_base_.resize(code_.functions.size());
  find_facts();
  for (size_t f = 0; f < bodies_.size(); ++f) {
    if (bodies_[f] == nullptr || bodies_[f]->is_entry) continue;
    common_shared_ = align_up(common_shared_, 128);
    shared_base_[f] = common_shared_;
    uint64_t bytes = 0;
    for (const ptx::Variable& v : bodies_[f]->variables) {
      if (v.space == Space::kShared) bytes = align_up(bytes, v.align) + v.bytes;
    }
    facts_[f].uses_common_shared |= bytes != 0;
    common_shared_ += bytes;
  }
  if (common_shared_ > 1u << 30)
    return fail(LoadError::Kind::kInvalidPtx, "too much shared memory", 1);
  // A caller of a user is a user, too; calls through pointers may call any of them.
  bool any = false;
  for (size_t f = 0; f < facts_.size(); ++f)
    any |= facts_[f].uses_common_shared && bodies_[f] != nullptr && !bodies_[f]->is_entry;
  for (FunctionFacts& facts : facts_) facts.uses_common_shared |= facts.indirect && any;
  for (bool changed = true; changed;) {
    changed = false;
    for (FunctionFacts& facts : facts_) {
      for (const uint32_t callee : facts.callees) {
        if (!facts.uses_common_shared && facts_[callee].uses_common_shared)
          facts.uses_common_shared = changed = true;
      }
    }
  }
  for (size_t f = 0; f < bodies_.size(); ++f) {
    if (bodies_[f] != nullptr && bodies_[f]->is_entry)
      shared_base_[f] = facts_[f].uses_common_shared ? align_up(common_shared_, 128) : 0;
  }
  return true;
}

bool Loader::initialize() {
  for (auto& unit : units_) {
    for (const ptx::Variable& v : unit->module.variables) {
      if (v.initial.empty() || initialized_.contains(&v)) continue;
      auto* base = reinterpret_cast<uint8_t*>(unit->symbols.at(v.name).value);
      for (const ptx::InitialValue& initial : v.initial) {
        uint64_t value = initial.value;
        if (!initial.symbol.empty()) {
          const auto symbol = unit->symbols.find(initial.symbol);
          if (symbol == unit->symbols.end()) {
            return fail(LoadError::Kind::kUnresolvedSymbol,
                        fmt::format("'{}' in the initial value of '{}' is not defined",
                                    initial.symbol, v.name),
                        initial.line);
          }
          switch (symbol->second.kind) {
            case Symbol::Kind::kFunction:
              value += kFunctionWindow + 16 * symbol->second.value;
              break;
            case Symbol::Kind::kShared:
              value += symbol->second.value + (initial.generic ? kSharedWindow : 0);
              break;
            case Symbol::Kind::kDynamicShared:
              return fail(LoadError::Kind::kInvalidPtx,
                          fmt::format("the address of '{}' is not a constant", initial.symbol),
                          initial.line);
            case Symbol::Kind::kMemory:
              value += symbol->second.value;
              break;
          }
          value >>= initial.shift;
        }
        std::memcpy(base + initial.offset, &value, std::min<size_t>(initial.bytes, sizeof value));
      }
    }
  }
  return true;
}

bool Loader::lower() {
  for (uint32_t f = 0; f < bodies_.size(); ++f) {
    if (bodies_[f] == nullptr) continue;
    const ptx::Function& body = *bodies_[f];
    const Unit& unit = *units_[unit_of_[f]];
    LoweringContext context{.program = &code_,
                            .constants = &constants_,
                            .symbols = &unit.symbols,
                            .shared_base = shared_base_[f]};
    Lowering lowering(context, body, f, false);
    ptx::Diagnostic diagnostic;
    if (!lowering.run(diagnostic)) return fail(diagnostic);
    if (!body.is_entry) continue;
    FunctionCode& code = code_.functions[f];
    KernelInfo& info = code.info;
    info.name = code.name;
    info.static_shared_bytes = lowering.shared_bytes() != 0
                                   ? shared_base_[f] + lowering.shared_bytes()
                                   : std::min(shared_base_[f], common_shared_);
    info.constant_bytes = constant_bytes_;
    info.ptx_version = unit.module.version;
    info.target_arch = unit.module.target_arch;
    // Virtual registers say little about real ones; 64 is what 1024 threads can have.
    info.registers =
        static_cast<int>(std::clamp<uint32_t>(code.frame_bytes / kValueBytes / 3, 16, 64));
    info.required_cluster = body.required_cluster;
    info.explicit_cluster = body.explicit_cluster;
    if (body.required_threads[0] != 0) {
      info.required_block = body.required_threads;
      info.max_threads_per_block = static_cast<int>(
          std::min<uint64_t>(1024, uint64_t{body.required_threads[0]} * body.required_threads[1] *
                                       body.required_threads[2]));
    } else if (body.max_threads[0] != 0) {
      info.max_threads_per_block = static_cast<int>(std::min<uint64_t>(
          1024, uint64_t{body.max_threads[0]} * body.max_threads[1] * body.max_threads[2]));
    }
  }
  return true;
}

// Bytes a thread needs from this function on. state: 0 new, 1 being looked at, 2 known.
uint64_t Loader::local_need(uint32_t function, std::vector<int>& state,
                            std::vector<uint64_t>& need) {
  if (state[function] == 2) return need[function];
  if (state[function] == 1) return kRecursionBytes;
  state[function] = 1;
  uint64_t deepest = facts_[function].indirect ? kRecursionBytes : 0;
  for (const uint32_t callee : facts_[function].callees)
    deepest = std::max(deepest, local_need(callee, state, need));
  state[function] = 2;
  need[function] = code_.functions[function].local_bytes + deepest;
  return need[function];
}

bool Loader::finish() {
  std::vector<int> state(code_.functions.size(), 0);
  std::vector<uint64_t> need(code_.functions.size(), 0);
  for (uint32_t f = 0; f < code_.functions.size(); ++f) {
    FunctionCode& code = code_.functions[f];
    if (!code.is_entry || !code.defined) continue;
    code.local_need =
        std::min<uint64_t>(align_up(local_need(f, state, need), 16), uint64_t{1} << 30);
    code.info.local_bytes = code.local_bytes;
  }
  if (!constants_.finish(code_.constants))
    return fail(LoadError::Kind::kInvalidPtx, "too many constants", 1);
  return true;
}

}  // namespace

bool load_program(std::span<const std::string_view> texts, MemoryMap& memory,
                  const EngineOptions& options, ProgramCode& code, std::vector<GlobalInfo>& globals,
                  std::vector<uint64_t>& allocations, LoadError& error) {
  return Loader(memory, options, code, globals, allocations, error).run(texts);
}

}  // namespace fargpu::sim
