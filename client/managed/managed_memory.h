// ManagedMemory: the state of a session's managed memory in this process.
//
// Managed memory is device memory of the worker and memory of this process at the same addresses.
// At each time one of the two has a block: the device, from the moment when work is submitted that
// may use it, until the application touches it. A block is in one of these states:
//   away     the worker has it; the application's access waits
//   same     here, too, readable
//   fresh    zeros in the worker; the application may have written it
//   changed  the application may have written it; the worker's contents are old
// give() sends changed blocks and makes all blocks away; bring() fetches blocks. Blocks are whole
// pages of one allocation, and grow with it, so that the system's limit of mappings is kept.
//
// Any thread. touch() may be called in a signal handler, on a thread that was not in this class.
// The lock is held while give() sends, so that work of another thread is not submitted before its
// data; it is not held while bring() waits. any_here() is a relaxed load.
#pragma once

#include <cuda.h>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "client/link/input.h"
#include "client/memory/dual_gate.h"
#include "client/memory/dual_mapping.h"
#include "client/stream/observers.h"
#include "common/advice/range_advice.h"

namespace fargpu::client {

struct Context;

class ManagedMemory {
 public:
  // `observers`: ManagedMemory owns kManagedMemory of it.
  explicit ManagedMemory(Observers& observers) : observers_(observers) {}

  // The attachment of an allocation. On a GPU with concurrent access all work may use it in any
  // case, so all work takes it from this process. The application may access memory that is
  // attached to the host or to a stream while other work runs.
  enum class Attachment : uint8_t { kGlobal, kHost, kStream };
  struct Extent {
    uint64_t address = 0;
    uint64_t bytes = 0;
    bool operator==(const Extent&) const = default;
  };
  struct Allocation {
    uint64_t address = 0;
    uint64_t bytes = 0;                    // whole pages
    const DualMapping* mapping = nullptr;  // in which it lies, and which stays where it is
    Context* context = nullptr;            // in which it was made
    Attachment attachment = Attachment::kGlobal;
    advice::RangeAdvice advice{};
    // The parts that the worker has and can send; empty: all of it.
    std::vector<Extent> extents{};
  };
  // A part of an allocation, on its way between the ends.
  struct Piece {
    uint64_t address;
    std::byte* local;
    uint64_t bytes;
    Context& context;
    std::vector<Extent> parts{};  // the parts of these bytes that are sent
  };
  // How contents travel; replaced in tests.
  class Wire {
   public:
    virtual ~Wire() = default;
    // All work that is submitted later sees the bytes, which have been taken when this returns.
    virtual CUresult push(const Piece& piece) = 0;
    // Waits until they are there.
    virtual CUresult fetch(const Piece& piece) = 0;
    // Waits until pushed bytes for memory of the context have arrived.
    virtual CUresult finish_pushes(Context& context) = 0;
    // The worker's contents become zeros; waits for that.
    virtual CUresult clear(Context& context, uint64_t address, uint64_t bytes) = 0;
    // Waits for work that runs in the context, if that may not wait for the application.
    virtual void await_idle(Context& context) = 0;
    // So many bytes are fetched at once, at most, when the application goes on sequentially.
    virtual uint64_t most_fetched() = 0;
  };

  // While it lives, this thread submits fargpu's own work, which takes no managed memory from this
  // process.
  class OwnWork {
   public:
    OwnWork();
    ~OwnWork();
    OwnWork(const OwnWork&) = delete;
    OwnWork& operator=(const OwnWork&) = delete;

   private:
    const bool before_;
  };
  static bool is_own_work();

  // Once, before the first allocation. `faults` with kWrites, started: accesses that wait are
  // messages; nullptr: signals. `is_eager`: all memory is fetched at a synchronisation after
  // which no work is left, and may then be used in system calls. Later work gets all of it back.
  // `ask_ahead`, if there is one: another thread is to call bring_ahead(). `ask_show`, if there is
  // one: a thread is to call show_on() until it says false. Both come under the lock.
  using AskAhead = std::function<void(uint64_t address)>;
  using AskShow = std::function<void()>;
  void set_wire(std::unique_ptr<Wire> wire, const UserFaults* faults, bool is_eager = false,
                AskAhead ask_ahead = nullptr, AskShow ask_show = nullptr);
  // Faults are signals.
  bool by_signals() const { return faults_ == nullptr; }

  // Some block is not away, or will not be soon.
  bool any_here() const { return any_here_.load(std::memory_order_relaxed); }

  // Its contents become zeros. With extents the worker's contents stay.
  CUresult add(const Allocation& allocation);
  // Of the allocation with extents that begins at `address`: one more. Blocks in this process are
  // given to the worker first.
  CUresult add_extent(uint64_t address, Extent extent);
  // One less. False: the last one, which it keeps, or there is no such allocation.
  bool remove_extent(uint64_t address, Extent extent);
  // False: none begins there. Afterwards the application's access faults for good.
  bool remove(uint64_t address);
  // The allocation that this address lies in, under the lock. False: none.
  bool with(uint64_t address, const std::function<void(Allocation&)>& use);
  // The first allocation without extents that was made in the context; 0: none.
  uint64_t first_of(const Context& context);

  // Work is about to be submitted. Takes everything from this process. begin_work() comes before,
  // end_work() when it was sent.
  CUresult give();
  // The same for work that was submitted and is held: waits until the worker has all memory.
  CUresult give_and_wait();
  void begin_work() { begun_.fetch_add(1, std::memory_order_acq_rel); }
  void end_work() { sent_.fetch_add(1, std::memory_order_acq_rel); }
  // A mark behind all work sent so far; nullopt while work is being sent.
  std::optional<uint64_t> mark() const;
  // Work is known to be done, with a mark all that was sent before it. Blocks that were fetched
  // while work was running are fetched again.
  void work_is_done(std::optional<uint64_t> mark);

  enum class Touched : uint8_t { kUnknown, kServed, kNeedsService };
  // The application's access to this address waits, or waited when it was reported. `heard` is the
  // value of gives() before the report: if memory was given since, the access may have ended. It is
  // then served as a read, which changes nothing; a thread that still waits is reported again.
  using Heard = std::optional<uint64_t>;
  Touched touch(uint64_t address, bool is_write, Heard heard = std::nullopt);
  // The part of touch() that has to wait. Afterwards the access is repeated; without `heard` it may
  // need touch() again.
  CUresult bring(uint64_t address, bool is_write, Heard heard = std::nullopt);
  // How often memory was given.
  uint64_t gives() const { return gives_.load(std::memory_order_acquire); }
  // Prefetches the blocks after a sequential access, if it still goes on. bring() and this are
  // called by one thread.
  void bring_ahead(uint64_t address);
  // Fetched blocks are mapped in portions, the first one at once: the application reads it while
  // this maps the next one. False: all are mapped.
  bool show_on();
  // It could not be brought. Accesses that wait for it fail; so do later ones, until work is given.
  void fail(uint64_t address);

 private:
  enum class State : uint8_t { kAway, kSame, kFresh, kChanged };
  struct Run {
    size_t first, end;
  };
  struct Blocks {
    Allocation memory;
    std::unique_ptr<DualGate> gate;
    uint64_t block = 0;  // bytes of one
    std::vector<State> states;
    std::unique_ptr<std::byte[]> known;      // with extents: as they came; here alone it counts
    size_t begin = 0, end = 0;               // of blocks that are not away
    bool failed = false;                     // some of it
    Run hidden{0, 0};                        // fetched but not mapped; only a hint
    Run rest{0, 0};                          // still to be mapped; only a hint
    uint64_t given = 0;                      // how often it went away
    bool early = false;                      // work was running when contents were fetched
    size_t next = 0, ahead = 1;              // where sequential fetches go on, and how many blocks
    size_t next_write = 0, write_ahead = 1;  // the same of writes
  };
  using BlockMap = std::map<uint64_t, Blocks>;
  // To memory of a context.
  struct Pushes {
    size_t allocations = 0;   // of the context
    bool unfinished = false;  // there were some since finish_pushes()
  };

  // All of these need mutex_.
  Blocks* find(uint64_t address);
  struct Part {
    size_t offset, bytes;
  };
  static Part part_of(const Blocks& blocks, Run run);
  static bool close(Blocks& blocks, Run run);
  static bool open(Blocks& blocks, Run run, bool writable);
  static void note(Blocks& blocks, Run run, State state);
  bool begin(Blocks& blocks);
  bool let_write(Blocks& blocks, Run run, bool is_shown);
  void note_here(Blocks& blocks, Run run, State state = State::kSame);
  void note_away(Blocks& blocks);
  void note_any_here();
  static Run run_of(const Blocks& blocks, size_t first, State state, size_t most);
  Piece piece_of(const Blocks& blocks, Run run) const;
  static void note_known(Blocks& blocks, const Piece& piece);
  static void leave_out_known(const Blocks& blocks, Piece& piece);
  static void find_written(Blocks& blocks);
  CUresult give_one(Blocks& blocks);
  CUresult give_all();
  void forget_unchanged(Blocks& blocks);
  bool serve(Blocks& blocks, size_t at, bool is_write);
  static Run portion_of(const Blocks& blocks, Run run);
  size_t more_ahead(const Blocks& blocks) const;
  CUresult fetch(std::unique_lock<std::mutex>& lock, Blocks& blocks, Run run, bool waits);
  bool take(Blocks& blocks, Run run);
  bool goes_on(const Blocks& blocks) const;
  void look_ahead(const Blocks& blocks);
  static Run run_to_write(Blocks& blocks, size_t at, size_t end);
  bool idle() const;
  bool is_over(Heard heard) const { return heard && *heard != gives(); }
  void bring_all();
  void revive_failed();

  Observers& observers_;
  std::unique_ptr<Wire> wire_;
  const UserFaults* faults_ = nullptr;
  AskAhead ask_ahead_;
  AskShow ask_show_;
  std::atomic<bool> is_eager_{false};
  std::atomic<bool> any_here_{false};
  std::atomic<uint64_t> begun_{0}, sent_{0}, done_{0}, gives_{0};
  std::mutex mutex_;
  std::condition_variable fetched_;
  BlockMap allocations_;  // by address
  std::map<Context*, Pushes> pushes_;
  std::vector<Blocks*> here_;   // allocations with blocks that are not away
  Blocks* fetching_ = nullptr;  // the wait of bring()
  uint64_t ends_ = 0;           // how often work was known to be done
  size_t failed_ = 0;           // allocations of which some has
  bool any_rest_ = false;       // some may have a rest
};

}  // namespace fargpu::client
