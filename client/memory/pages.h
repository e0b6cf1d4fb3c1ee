// Pages: host memory of the application of which the worker has a mirror that device code uses:
// what was changed here goes there before work is sent, what device code changed comes back after
// synchronisations, byte by byte.
//
// Both ends keep an Agreement (common/pages) for each region, so that only changed bytes travel and
// a byte that one end left alone is never written on the other one. Where both changed one byte
// without an order between them, this end's stays. Managed memory is meant to be kept here too.
//
// Any thread. Pushes are sent in the order in which they were collected. One thread at a time
// pulls; who comes meanwhile waits, and is content with a pull that began after it came. No lock is
// held across the wait of a pull but that one. any() is one relaxed load.
#pragma once

#include <cuda.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "common/pages/agreement.h"

namespace fargpu::client {

class Pages {
 public:
  // How runs travel; replaced in tests.
  class Wire {
   public:
    virtual ~Wire() = default;
    // Most bytes of a push or of what is fetched at once.
    virtual size_t limit() const = 0;
    // Need not wait; the worker takes them before everything that is sent later.
    virtual CUresult push(std::span<const std::byte> runs) = 0;
    struct Fetched {
      size_t bytes = 0;     // of runs, at the begin of the buffer
      uint64_t next = 0;    // the address to go on from; 0: that was all
      uint64_t pushes = 0;  // how many pushes the worker had taken by then
    };
    // What the device changed from the address `from` on.
    virtual CUresult fetch(uint64_t from, std::span<std::byte> buffer, Fetched* fetched) = 0;
  };

  bool any() const { return any_.load(std::memory_order_relaxed); }
  // The region [address, address + bytes) gets a mirror by `map`, which asks the worker; device
  // code then sees it at *device_pointer. Its contents travel with the next push. Regions do not
  // overlap. Nothing happens to a region that has one.
  // `context`: the id of the one that the mirror is made in, with which it goes.
  CUresult add(uint64_t address, size_t bytes, uint16_t context,
               const std::function<CUresult(CUdeviceptr* device_pointer)>& map);
  // Before the worker is asked to take the mirror away. False: there is none.
  bool remove(uint64_t address);
  // The context was destroyed. Returns where the regions begin that went with it.
  std::vector<uint64_t> forget_context(uint16_t context);
  // Where device code sees the region that begins at `address`; nullopt: it has no mirror.
  std::optional<uint64_t> device_pointer(uint64_t address) const;
  // Whether device code may write any of these bytes.
  bool touches(uint64_t address, uint64_t bytes) const;

  // A stream will wait for a value in the aligned word of 4 or 8 bytes at `address`. What the host
  // stored before it stored the value, the worker must have before the value: from now on the word
  // travels whole, and behind everything else. Nothing happens where there is no region.
  void watch(uint64_t address, size_t bytes);
  // Some word that is watched was changed here.
  bool any_word_changed();
  // Sends what was changed here, before work is sent that may see it. `visit` is shown what is
  // sent (Agreement::Visit); words that are watched are sent when `is_all` then says that nothing
  // else has to go first.
  CUresult push(Wire& wire, const pages::Agreement::Visit& visit = {},
                const std::function<bool()>& is_all = {});
  // Work begins to be sent, after its push; end_work() says that it was. Between the two, and until
  // it is known to be done, device code may write.
  void begin_work();
  void end_work();
  // All work that was sent by now, for pull(); nullopt while some is being sent.
  std::optional<uint64_t> mark() const;
  // Fetches what device code has changed. `done`: all work up to this mark is done, so that there
  // is nothing more to fetch until more was sent.
  CUresult pull(Wire& wire, std::optional<uint64_t> done);

 private:
  struct Overtaken {  // a push that a pull under way may not know
    uint64_t number, address, bytes;
  };
  struct Word {
    pages::Agreement* region;
    uint64_t address;
    size_t bytes;
    std::array<std::byte, sizeof(uint64_t)> now;
  };
  void read_words();                                                 // needs state_
  CUresult push_others(Wire& wire, const pages::Agreement::Visit&);  // needs state_
  CUresult push_words(Wire& wire);                                   // needs state_
  void forget_words(uint64_t address, uint64_t bytes);               // needs state_
  CUresult send(Wire& wire);                                         // needs state_
  CUresult fetch_all(Wire& wire);                                    // needs pulling_
  CUresult merge(std::span<const std::byte> runs, uint64_t pushes);  // needs pulling_
  void merge_one(pages::Agreement& region, pages::ByteRun run);      // needs state_
  pages::Agreement* find(uint64_t address, size_t bytes);            // needs state_

  struct Region {
    pages::Agreement agreement;
    uint16_t context = 0;
    CUdeviceptr device_pointer = 0;
  };

  std::atomic<bool> any_{false};
  std::atomic<uint64_t> wanted_{0};  // pulls asked for
  std::mutex pulling_;               // before state_
  uint64_t covered_ = 0;             // of wanted_; guarded by pulling_
  std::vector<std::byte> buffer_;    // guarded by pulling_

  mutable std::mutex state_;
  std::map<uint64_t, Region> regions_;  // guarded by state_, like all below
  std::map<uint64_t, size_t> watched_;  // words by address, without overlaps
  std::vector<Word> words_;             // of a push: as they were before it
  std::optional<pages::RunWriter> runs_;
  uint64_t pushes_ = 0;
  bool fetching_ = false;
  std::vector<Overtaken> overtaken_;
  struct Range {
    uint64_t begin, end;
  };
  std::vector<Range> newer_;       // of a merge
  uint64_t begun_ = 0, sent_ = 0;  // work
  uint64_t clean_ = 0;             // up to this one its writes are here
};

}  // namespace fargpu::client
