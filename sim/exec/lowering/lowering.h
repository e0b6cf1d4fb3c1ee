// One PTX function to executable instructions. Checks that the parser cannot make: which modifiers
// an instruction takes, how many operands, and that registers have the size of the instruction's
// type. Every instruction is looked at, so that a module that loads contains nothing the engine
// cannot run. Split over lowering*.cc by families of instructions.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "sim/exec/half.h"
#include "sim/exec/mbarrier.h"
#include "sim/exec/program_code.h"
#include "sim/ptx/cfg.h"
#include "sim/ptx/diagnostic.h"
#include "sim/ptx/module.h"

namespace fargpu::sim {

// Constants as lanes of equal values, each once.
class ConstantPool {
 public:
  ConstantPool();
  OperandRef value(uint64_t low, unsigned bytes, uint64_t high = 0);
  OperandRef predicate(bool value);
  bool finish(AlignedBuffer& area) const;

 private:
  std::map<std::tuple<unsigned, uint64_t, uint64_t>, OperandRef> known_;
  std::vector<uint8_t> bytes_;
};

struct Symbol {
  enum class Kind : uint8_t { kMemory, kShared, kDynamicShared, kFunction } kind = Kind::kMemory;
  uint64_t value = 0;  // address, offset in shared memory, or function index
  ptx::Space space = ptx::Space::kGlobal;
};

// The program's data for the lowering of a function.
struct LoweringContext {
  ProgramCode* program = nullptr;
  ConstantPool* constants = nullptr;
  const std::unordered_map<std::string_view, Symbol>* symbols =
      nullptr;               // of the function's module
  uint64_t shared_base = 0;  // where the function's own shared variables begin
};

// The modifiers of one instruction, taken one by one; what is left at the end is an error.
class Modifiers {
 public:
  explicit Modifiers(const std::vector<std::string_view>& words)
      : words_(words), used_(words.size()) {}
  bool take(std::string_view word);
  // The first of the (space separated) words that is there; empty when none is.
  std::string_view take_one(std::string_view words);
  // The instruction's first word that is one of the words.
  std::string_view take_next(std::string_view words);
  ptx::Type take_type();
  // Takes a memory space: "global", "shared", "shared::cta" ...
  std::optional<ptx::Space> take_space();
  std::string_view left() const;  // the first word not taken

 private:
  const std::vector<std::string_view>& words_;
  std::vector<bool> used_;
};

// The bits of a constant operand as a value of `type`; false when it is of another kind.
bool constant_bits_of(const ptx::Operand& operand, ptx::Type type, uint64_t& bits);

// Instructions of units that the simulated GPU does not have: refused by name.
bool is_refused_group(std::string_view opcode, const std::vector<std::string_view>& modifiers);

class Lowering {
 public:
  // `dry`: only forms are looked at; operands are made up (for form_support).
  Lowering(LoweringContext& context, const ptx::Function& function, uint32_t function_index,
           bool dry);
  bool run(ptx::Diagnostic& error);
  // One form without operands: what would become of it.
  bool try_form(const ptx::Instruction& instruction, ptx::Diagnostic& error);

  uint64_t shared_bytes() const { return shared_bytes_; }
  uint64_t shared_align() const { return shared_align_; }

 private:
  using Operand = ptx::Operand;
  using Type = ptx::Type;
  using Space = ptx::Space;
  using Method = void (Lowering::*)(Modifiers&);
  static const std::unordered_map<std::string_view, Method>& methods();

  // Errors are sticky: the first one counts, and lowering of the instruction goes on with harmless
  // values.
  void fail(std::string message);
  void refuse(std::string_view why);
  void unresolved(std::string_view name);
  bool failed() const { return failed_; }

  // Layout.
  bool lay_out_variables();
  void lay_out_parameters();
  OperandRef register_ref(uint32_t index);
  OperandRef allocate(unsigned bytes);
  OperandRef temp(unsigned bytes);
  OperandRef temp_predicate();

  // Operands of the instruction.
  size_t operand_count() const { return dry_ ? dry_operands_ : current_->operands.size(); }
  void expect_operands(size_t least, size_t most);
  const Operand& operand(size_t i) const;
  OperandRef source(const Operand& o, Type type);
  OperandRef source(size_t i, Type type) { return source(operand(i), type); }
  OperandRef source_wide(const Operand& o, Type type);  // the register may be wider
  OperandRef source_predicate(const Operand& o, bool& inverted);
  OperandRef destination(const Operand& o, Type type);
  OperandRef destination(size_t i, Type type) { return destination(operand(i), type); }
  OperandRef destination_predicate(const Operand& o);
  unsigned register_size(const Operand& o) const;  // of a register operand; 0 otherwise
  OperandRef special(std::string_view name, Type type);
  OperandRef address_value(const Operand& o, unsigned bytes);
  OperandRef resize(OperandRef ref, unsigned from, unsigned to, bool is_signed);
  std::optional<uint64_t> constant_of(const Operand& o) const;

  // Instructions.
  Instr& emit(std::string_view op);
  Instr& emit(std::string_view op, OperandRef dst, OperandRef a = kNoOperand,
              OperandRef b = kNoOperand, OperandRef c = kNoOperand);
  bool lower(const ptx::Instruction& instruction);
  void set_predicate_flag(Instr& in, bool inverted, InstrFlags flag) {
    if (inverted) in.flags = static_cast<uint8_t>(in.flags | flag);
  }
  void done(Modifiers& mods);
  uint16_t float_control(std::string_view rounding, bool ftz);
  OperandRef flushed(OperandRef ref, Type type, bool ftz);
  uint32_t add_list(const std::vector<OperandRef>& list);

  // Families.
  void lower_add_sub(Modifiers& mods);
  void lower_mul(Modifiers& mods);
  void lower_mad(Modifiers& mods);
  void lower_fma(Modifiers& mods);
  void lower_carry(Modifiers& mods);
  void lower_div(Modifiers& mods);
  void lower_rem(Modifiers& mods);
  void lower_abs_neg(Modifiers& mods);
  void lower_min_max(Modifiers& mods);
  void lower_sad(Modifiers& mods);
  void lower_mul24(Modifiers& mods);
  void lower_logic(Modifiers& mods);
  void lower_not(Modifiers& mods);
  void lower_shift(Modifiers& mods);
  void lower_shf(Modifiers& mods);
  void lower_lop3(Modifiers& mods);
  void lower_count(Modifiers& mods);
  void lower_bfind(Modifiers& mods);
  void lower_bfe(Modifiers& mods);
  void lower_bfi(Modifiers& mods);
  void lower_bmsk(Modifiers& mods);
  void lower_szext(Modifiers& mods);
  void lower_fns(Modifiers& mods);
  void lower_prmt(Modifiers& mods);
  void lower_dot(Modifiers& mods);
  void lower_setp(Modifiers& mods);
  void lower_set(Modifiers& mods);
  void lower_selp(Modifiers& mods);
  void lower_slct(Modifiers& mods);
  void lower_mov(Modifiers& mods);
  void lower_unary_float(Modifiers& mods);    // rcp sqrt rsqrt
  void lower_approximation(Modifiers& mods);  // sin cos lg2 ex2 tanh
  void lower_testp(Modifiers& mods);
  void lower_copysign(Modifiers& mods);
  void lower_cvt(Modifiers& mods);
  void lower_cvt_pack(Modifiers& mods);
  void lower_video(Modifiers& mods);
  void lower_load(Modifiers& mods);
  void lower_store(Modifiers& mods);
  void lower_cvta(Modifiers& mods);
  void lower_isspacep(Modifiers& mods);
  void lower_atom(Modifiers& mods);
  void lower_cp(Modifiers& mods);
  void lower_hint(Modifiers& mods);  // prefetch, applypriority, discard, griddepcontrol ...
  void lower_createpolicy(Modifiers& mods);
  void lower_fence(Modifiers& mods);
  void lower_bra(Modifiers& mods);
  void lower_brx(Modifiers& mods);
  void lower_call(Modifiers& mods);
  void lower_ret(Modifiers& mods);
  void lower_exit(Modifiers& mods);
  void lower_trap(Modifiers& mods);
  void lower_bar(Modifiers& mods);
  void lower_mbarrier(Modifiers& mods);
  void lower_copy_arrival(Modifiers& mods);
  void lower_bulk(Modifiers& mods);
  void lower_bulk_tensor(Modifiers& mods, bool prefetch);
  void lower_cluster_barrier(Modifiers& mods);
  void lower_cluster_address(Modifiers& mods);  // mapa getctarank
  void lower_setmaxnreg(Modifiers& mods);
  void lower_shfl(Modifiers& mods);
  void lower_vote(Modifiers& mods);
  void lower_match(Modifiers& mods);
  void lower_redux(Modifiers& mods);
  void lower_activemask(Modifiers& mods);
  void lower_elect(Modifiers& mods);
  void lower_nanosleep(Modifiers& mods);
  void lower_mma(Modifiers& mods);
  void lower_wmma(Modifiers& mods);
  void lower_tiles(Modifiers& mods);  // ldmatrix stmatrix movmatrix
  void lower_tex(Modifiers& mods);
  void lower_tld4(Modifiers& mods);
  void lower_image_query(Modifiers& mods);
  void lower_surface(Modifiers& mods);
  void lower_refused(Modifiers& mods);

  // Helpers of families.
  struct Comparison {
    std::string_view comparison, combine;
    bool ftz = false;
    OperandRef c = kNoOperand;  // the predicate to combine with
    bool inverted = false;
  };
  bool take_comparison(Modifiers& mods, Comparison& how);
  void take_combination(Comparison& how);
  void emit_comparison(const Comparison& how, Type type, OperandRef a, OperandRef b, OperandRef p,
                       OperandRef q);
  OperandRef half_of(OperandRef pair, unsigned which);
  void binary_float(std::string_view op, Type type, std::string_view rounding, bool ftz, bool sat);
  void half_op(std::string_view op, Type type, size_t sources, uint64_t flags);
  bool memory_operand(const Operand& o, Space space, unsigned bytes, Instr& in);
  OperandRef whole_address(const Instr& in);
  void take_cache_words(Modifiers& mods, bool& spins);
  OperandRef image_value(const Operand& o);
  std::vector<OperandRef> image_coordinates(const Operand& o, size_t count, Type type);
  bool barrier_address(const Operand& o, Space space, Instr& in);
  void emit_barrier(MemoryBarrierOp op, const Instr& address, OperandRef dst, OperandRef b,
                    uint64_t flags);
  void emit_completion(const Operand& barrier, unsigned bytes);
  struct BulkForm;
  bool take_bulk_form(Modifiers& mods, BulkForm& form);
  void add_bulk_signals(const BulkForm& form, size_t at, BulkOp& op);
  void emit_bulk(const BulkOp& op);
  std::vector<Element> take_elements(Modifiers& mods);
  void add_fragment(const Operand& o, const Fragment& fragment, bool writes,
                    std::vector<OperandRef>& list);
  void emit_product(Product product);
  Instr& emit_matrix(MatrixOp op, const std::vector<OperandRef>& list);
  void add_vector(const Operand& o, size_t count, Type type, std::vector<OperandRef>& list);
  void branch_guard(Instr& in);
  uint32_t join_of_branch() const;
  void add_call_values(const Operand& tuple, bool is_return, std::vector<CallSite::Copy>& copies);

  LoweringContext& context_;
  ProgramCode& program_;
  const ptx::Function& function_;
  const uint32_t function_index_;
  const bool dry_;
  size_t dry_operands_ = 0;

  bool failed_ = false;
  ptx::Diagnostic error_;
  const ptx::Instruction* current_ = nullptr;
  ptx::Instruction stand_in_;  // current_ while no instruction of the text is lowered
  uint32_t current_index_ = 0;
  bool ignore_guard_ = false;  // the instruction evaluates its guard itself
  uint32_t text_index_ = 0;
  std::unordered_map<std::string, uint32_t> texts_;

  ptx::FlowGraph flow_;
  std::vector<uint32_t> block_pc_;
  struct Patch {
    uint32_t instruction;
    uint32_t block;
  };
  std::vector<Patch> target_patches_, join_patches_;
  std::vector<uint32_t> table_patches_;

  std::vector<OperandRef> registers_;
  OperandRef carry_ = kNoOperand;
  uint32_t frame_bytes_ = 0;
  uint32_t predicate_line_ = 0, predicates_left_ = 0;
  std::map<unsigned, std::vector<OperandRef>> temps_;
  std::map<unsigned, size_t> temps_used_;
  struct Place {
    Space space = Space::kLocal;  // kParam: of the kernel
    uint64_t offset = 0;
  };
  std::vector<Place> places_;
  uint64_t local_bytes_ = 0;
  uint64_t shared_bytes_ = 0, shared_align_ = 1;
};

}  // namespace fargpu::sim
