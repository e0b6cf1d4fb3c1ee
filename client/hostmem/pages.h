// Pages: host memory of the application that has a mirror in the worker for device code. Bytes that
// the application changed are pushed before work is sent. Bytes that device code changed are pulled
// after synchronisations.
//
// Both ends keep an Agreement (common/pages) for each region. So only changed words travel, and a
// byte that one end did not change is never written at the other. Where both ends changed a byte
// without an order between them, the client's value stays.
//
// A region with a gate (page_gate.h) is fetched on access: a pull only closes its blocks, and
// bring() fetches the blocks that the application then accesses; regions of one block that were
// open come with the pull. Only blocks that were open a short while ago are compared. While work
// may be running, open blocks are closed again after a millisecond or more, so that a polling host
// sees a kernel's writes, until all work is known to be done (await_settling()). When a fetch
// brings something new meanwhile, everything else is closed before that is shown: so a write is
// never seen before earlier writes.
//
// A region without a gate is read and written by the system (foreign_memory.h): the application may
// have unmapped it, or a part of it, unnoticed. Such pages leave the region for good, as pinned
// pages do: memory mapped there later is other memory, and the mirror keeps its contents. So are
// open blocks of a gate that moves pages. Those that cannot be closed come with every pull. Of a
// file that was registered for reading only nothing is read while nobody can have changed it.
//
// Any thread. Pushes are sent in the order in which they were collected. One thread at a time
// pulls; others wait for it, and are done once a pull that began after they came has ended. No lock
// is held across the wait of a pull, except the lock that admits a single puller. No lock is held
// while memory of a gate is touched by its own address.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "client/hostmem/block_states.h"
#include "client/memory/memory_snapshot.h"
#include "client/memory/page_gate.h"
#include "client/stream/observers.h"
#include "common/host/unchanged_file.h"
#include "common/pages/agreement.h"

namespace fargpu::client {

class AmendableCopies;
class Link;
class UserFaults;

class Pages {
 public:
  using Clock = std::chrono::steady_clock;

  // The system may read files into memory behind the application's mapping (O_DIRECT). For
  // `longest_read` at least, blocks that were closed meanwhile are compared, too, unless
  // no descriptor says that it may; without `asks_descriptors` each may. `piece_bytes`:
  // the most that travels in one message. `faults`: woken when look() is to be called.
  // `observers`: Pages owns kMirrors of it.
  Pages(Link& link, Observers& observers, uint64_t piece_bytes, UserFaults& faults,
        Clock::duration longest_read = std::chrono::seconds(1), bool asks_descriptors = true)
      : link_(link),
        observers_(observers),
        limit_(std::min(piece_bytes, kMostBytes)),
        faults_(faults),
        longest_read_(longest_read),
        asks_descriptors_(asks_descriptors) {}
  // The copies whose sources are compared whenever a push is about to send what it has found, also
  // when that is nothing. Once, before the first region.
  void amend_before_sending(AmendableCopies& copies) { copies_ = &copies; }
  // Gives the region [address, address + bytes) a mirror. `map` asks the worker for it; device code
  // then sees the region at *device_pointer. Its contents are sent with the next push. Regions do
  // not overlap. Does nothing if the region has a mirror. `context`: the id of the context in which
  // the mirror is made, and with which it ends. `ended`: whether that has happened meanwhile; then
  // there is no mirror, CUDA_ERROR_CONTEXT_IS_DESTROYED. `gate`: called when it is mapped, for a
  // watched gate, if the region is to be fetched on access. `read_only`: what device
  // code writes is not fetched.
  CUresult add(
      uint64_t address, size_t bytes, uint16_t context,
      const std::function<CUresult(CUdeviceptr* device_pointer)>& map,
      const std::function<bool()>& ended = [] { return false; },
      const std::function<std::shared_ptr<PageGate>()>& gate = [] { return nullptr; },
      bool read_only = false);
  // To be called before the worker is asked to end the mirror. False: there is none.
  bool remove(uint64_t address);
  // The context was destroyed. Returns the addresses of the regions whose mirrors ended with it.
  std::vector<uint64_t> forget_context(uint16_t context);
  // Where device code sees the region that begins at `address`; nullopt: it has no mirror.
  std::optional<uint64_t> device_pointer(uint64_t address) const;
  // Whether device code may write any of these bytes.
  bool touches(uint64_t address, uint64_t bytes) const;

  // A stream will wait for a value in the aligned word of 4 or 8 bytes at `address`. The worker
  // must get everything that the host stored before the value, before it gets the value. So from
  // now on the word is sent as a whole, after everything else. Does nothing outside of regions.
  void watch(uint64_t address, size_t bytes);
  // Whether a watched word was changed at this end.
  bool any_word_changed();
  // Sends the changes of this end, before work is sent that may see them. `visit` is called with
  // the sent runs (Agreement::Visit). `is_all` is asked behind them, before another push may begin:
  // what has to go last is sent once it says that nothing else has to go first.
  CUresult push(const pages::Agreement::Visit& visit = {},
                const std::function<bool()>& is_all = {});
  // begin_work(): work is about to be sent, after its push; end_work(): it was sent. From the first
  // on, and until the work is known to be done, device code may write.
  void begin_work();
  void end_work();
  // A mark behind all work sent so far, for pull(); nullopt while work is being sent.
  std::optional<uint64_t> mark() const;
  // Fetches the changes of device code. `done`: all work up to this mark is done, so nothing is
  // left to fetch until more work is sent.
  CUresult pull(std::optional<uint64_t> done);

  // For regions with a gate. Whether a thread must find out when all work is done, and has not been
  // requested before; await_settling() returns when that is so.
  bool is_to_settle();
  void await_settling();
  // The search has ended: after a pull() with the mark, if work is done.
  void settled();
  // The application's access to this address waits. CUDA_ERROR_NOT_MAPPED: it is in no such region,
  // any more; it should be tried again.
  CUresult bring(uint64_t address);
  // Closes blocks that have been open for long enough. Returns when to look again.
  std::optional<Clock::time_point> look();
  // The region that begins there, if any, is fetched as a whole by every pull from now on.
  CUresult keep_open(uint64_t address);
  // All regions; `context`: the regions that end with it.
  CUresult keep_all_open(std::optional<uint16_t> context = std::nullopt);
  // Around a fork, in the thread that forks; after_fork() in both processes. The child gets what
  // the application has: nothing that is moved away stays closed, and nothing is closed meanwhile.
  void before_fork();
  void after_fork() { pulling_.unlock(); }
  bool any_gated() const;
  // How many such regions there have been. Takes no lock.
  uint64_t gated_ever() const { return gated_ever_.load(std::memory_order_acquire); }
  // Whether any of these bytes are in such a region.
  bool any_gated(uint64_t begin, uint64_t end) const;

 private:
  // Between two closings while work may be running.
  static constexpr Clock::duration kShortest = std::chrono::milliseconds(1);
  static constexpr Clock::duration kLongest = std::chrono::milliseconds(16);

  struct Range {
    uint64_t begin, end;
  };
  struct Overtaken {  // a push that a pull under way may not know
    uint64_t number, address, bytes;
  };
  // The worker's description of the runs that it sent, at the begin of the buffer.
  struct Fetched {
    size_t bytes = 0;               // of runs
    unsigned long long next = 0;    // the address to go on from; 0: that was all
    unsigned long long pushes = 0;  // how many pushes it had taken by then
  };
  struct Region {
    uint64_t address() const { return agreement.address(); }

    pages::Agreement agreement;
    uint16_t context = 0;
    bool read_only = false;
    bool is_new = true;  // nothing was sent yet, so no device code has it
    CUdeviceptr device_pointer = 0;
    std::map<size_t, size_t> gone{};  // begins and ends of unmapped parts that the system read
    std::unique_ptr<UnchangedFile> file{};  // without a gate, if nothing else can change it
    BlockStates blocks{};                   // without a gate all are open
    std::shared_ptr<PageGate> gate{};       // the rest is for regions with one
    uint64_t number = 0;                    // no other region has had it
    size_t next = 0, ahead = 1;  // where sequential touches go on, and how many blocks come
  };
  struct Part {  // of memory that several threads look at
    explicit Part(size_t limit) : runs(limit) {}
    pages::RunWriter runs;
    pages::LateWords late;
    size_t begin = 0, end = 0, reached = 0;  // offsets in the region
  };
  struct ClosedBlocks {
    Region* region;
    BlockStates::Run run;
  };
  struct Word {
    Region* region;
    uint64_t address;
    size_t bytes;
    std::array<std::byte, sizeof(uint64_t)> now;
  };
  void read_words();          // needs state_
  bool words_differ() const;  // as they were read; needs state_
  // Needs state_. `no_pull`: of pulling_; is locked if that is needed and does not wait.
  CUresult push_others(const pages::Agreement::Visit&, std::unique_lock<std::mutex>& no_pull);
  // Of the suspect memory at these addresses. Needs state_.
  CUresult look_at(uint64_t begin, uint64_t until, bool old, const pages::Agreement::Visit& visit);
  void take_snapshot();  // needs state_
  CUresult push_late();  // needs state_
  CUresult push_part(Region& region, size_t from, size_t until,
                     const pages::Agreement::Visit& visit);  // needs state_
  CUresult push_alone(Region& region, size_t from, size_t until,
                      const pages::Agreement::Visit& visit);  // needs state_
  static bool is_closed(const Region& region, size_t from, size_t until);
  void make_parts();  // needs state_
  CUresult push_side_by_side(Region& region, size_t from, size_t until,
                             const pages::Agreement::Visit& visit);  // needs state_
  CUresult push_found(const Region& region, Part& part,
                      const pages::Agreement::Visit& visit);  // needs state_
  // As Agreement::collect().
  size_t collect(Region& region, size_t from, size_t until,
                 const pages::Agreement::Visit& visit);  // needs state_
  size_t collect_from(Region& region, const std::byte* memory, size_t from, size_t until,
                      const pages::Agreement::Visit& visit);  // needs state_
  size_t collect_into(Region& region, const std::byte* memory, size_t from, size_t until,
                      const pages::Agreement::Visit& visit, pages::RunWriter& runs,
                      pages::LateWords& late) const;  // needs state_
  // The same of memory that the system reads.
  size_t collect_read(Region& region, size_t from, size_t until,
                      const pages::Agreement::Visit& visit);  // needs state_
  std::span<std::byte> sample(size_t bytes);                  // needs state_
  // Whether the system reads and writes the block.
  static bool is_read(const Region& region, size_t block);
  static bool read_word(Region& region, size_t offset, std::span<std::byte> now);
  CUresult push_words();                                             // needs state_
  void forget_words(uint64_t address, uint64_t bytes);               // needs state_
  CUresult send() { return send(*runs_); }                           // needs state_
  CUresult send(pages::RunWriter& runs);                             // needs state_
  CUresult fetch_all();                                              // needs pulling_
  CUresult fetch_open();                                             // needs pulling_
  CUresult merge(std::span<const std::byte> runs, uint64_t pushes);  // needs pulling_
  // All of these need state_.
  void merge_one(Region& region, pages::ByteRun run);
  void merge_part(Region& region, const pages::ByteRun& run);
  void merge_read(Region& region, pages::ByteRun run);
  void write_merged();
  static void fail_closed(Region& region);
  Region* find(uint64_t address, size_t bytes);         // needs state_
  const Region* find_gated(uint64_t address) const;     // by its begin; needs state_
  void forget(std::map<uint64_t, Region>::iterator);    // needs state_
  bool is_running() const { return clean_ != begun_; }  // needs state_
  bool any_open() const;                                // needs state_
  // Both need pulling_ and state_. Runs of `least` blocks or more. `closed`: those that were
  // closed, to be opened soon.
  void close_open(size_t least = 1, std::vector<ClosedBlocks>* closed = nullptr);
  void close_blocks(Region& region, size_t least);  // adds to closed_now_
  void look_later();                                // needs state_
  void settle();                                    // needs state_
  // All of these need pulling_.
  CUresult fetch_part(uint64_t address, size_t bytes, bool* news);
  void open_brought(uint64_t number, uint64_t address, BlockStates::Run run, CUresult result);
  CUresult bring_closed(uint64_t address);
  CUresult stop_closing(uint64_t address);
  void make_way();
  // `is_awaited`: by an access.
  CUresult bring_run(uint64_t address, uint64_t number, BlockStates::Run run, bool is_awaited);
  // Regions of one block that were open.
  struct SmallRegions {
    std::array<std::pair<uint64_t, uint64_t>, 4> regions{};  // address and number
    size_t count = 0;
  };
  void close_all(SmallRegions* small);
  CUresult bring_small(const SmallRegions& small);

  // Enough to fill a link.
  static constexpr uint64_t kMostBytes = 4u << 20;
  Link& link_;
  Observers& observers_;
  const size_t limit_;
  UserFaults& faults_;
  const Clock::duration longest_read_;
  const bool asks_descriptors_;
  AmendableCopies* copies_ = nullptr;
  std::atomic<uint64_t> wanted_{0};  // pulls asked for
  std::mutex pulling_;               // lock order: pulling_ before state_
  uint64_t covered_ = 0;             // of wanted_; guarded by pulling_
  std::vector<std::byte> buffer_;    // guarded by pulling_

  mutable std::mutex state_;
  std::map<uint64_t, Region> regions_;  // guarded by state_, like all below
  std::map<uint64_t, size_t> watched_;  // words by address, without overlaps
  std::vector<Word> words_;             // of a push: as they were before it
  std::optional<pages::RunWriter> runs_;
  std::vector<Part> parts_;        // none: no thread has looked beside this one yet
  pages::LateWords late_;          // agreed, but not sent yet
  int looks_ = 0;                  // of a push
  bool has_gaps_ = false;          // of a push: unchanged bytes may lie in its runs
  uint64_t changed_until_ = 0;     // where the last change ends that a look has found; 0: none
  std::vector<std::byte> sample_;  // of a region without a gate
  MemorySnapshot snapshot_;        // of what is open, for some looks of a push
  struct Merging {
    Region* region = nullptr;  // none
    uint64_t address = 0;
    std::vector<std::byte> before, after;
  } merging_;  // contents of such a region during a merge
  uint64_t pushes_ = 0;
  bool fetching_ = false;
  std::vector<Overtaken> overtaken_;
  std::vector<Range> newer_;       // of a merge
  uint64_t begun_ = 0, sent_ = 0;  // work
  uint64_t clean_ = 0;             // up to this one its writes are here
  // Of regions with a gate.
  size_t gated_ = 0;
  std::atomic<uint64_t> gated_ever_{0};  // read without the lock
  bool settling_ = false, asked_ = false;
  std::condition_variable asking_;
  std::optional<Clock::time_point> due_{};        // when open blocks are closed
  std::optional<Clock::time_point> next_look_{};  // when look() is called at the latest
  Clock::duration interval_{};
  bool news_ = false;                     // since that was done the last time
  std::vector<ClosedBlocks> closed_now_;  // by the last close_open()
  Clock::time_point shown_{};             // when something was opened the last time
  Clock::time_point aged_{};              // when closed blocks became older
  // Looks at closed blocks that may not be as they were compared: whether a push does so; the last
  // one's end, and how long it took.
  bool looks_at_closed_ = false;
  Clock::time_point closed_looked_at_{};
  Clock::duration closed_took_{};
};

}  // namespace fargpu::client
