// Pages: host memory of the application that has a mirror in the worker for device code. Bytes that
// the application changed are pushed before work is sent. Bytes that device code changed are pulled
// after synchronisations.
//
// Both ends keep an Agreement (common/pages) for each region. So only changed bytes travel, and a
// byte that one end did not change is never written at the other. Where both ends changed a byte
// without an order between them, the client's value stays. Managed memory is meant to be kept here,
// too.
//
// Any thread. Pushes are sent in the order in which they were collected. One thread at a time
// pulls; others wait for it, and are done once a pull that began after they came has ended. No lock
// is held across the wait of a pull, except the one that admits a single puller. any() is one
// relaxed load.
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
    // The most bytes of one push or one fetch.
    virtual size_t limit() const = 0;
    // Need not wait; the worker applies the runs before everything that is sent later.
    virtual CUresult push(std::span<const std::byte> runs) = 0;
    struct Fetched {
      size_t bytes = 0;     // of runs, at the begin of the buffer
      uint64_t next = 0;    // the address to go on from; 0: that was all
      uint64_t pushes = 0;  // how many pushes the worker had taken by then
    };
    // Fetches what device code changed, from the address `from` on.
    virtual CUresult fetch(uint64_t from, std::span<std::byte> buffer, Fetched* fetched) = 0;
  };

  bool any() const { return any_.load(std::memory_order_relaxed); }
  // Gives the region [address, address + bytes) a mirror. `map` asks the worker for it; device code
  // then sees the region at *device_pointer. Its contents are sent with the next push. Regions do
  // not overlap. Does nothing if the region has a mirror. `context`: the id of the context in which
  // the mirror is made, and with which it ends. `ended`: whether that has happened meanwhile; then
  // there is no mirror, CUDA_ERROR_CONTEXT_IS_DESTROYED.
  CUresult add(
      uint64_t address, size_t bytes, uint16_t context,
      const std::function<CUresult(CUdeviceptr* device_pointer)>& map,
      const std::function<bool()>& ended = [] { return false; });
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
  // Sends what was changed at this end, before work is sent that may see it. `visit` is called with
  // what is sent (Agreement::Visit). Watched words are sent once `is_all` says that nothing else
  // has to go first.
  CUresult push(Wire& wire, const pages::Agreement::Visit& visit = {},
                const std::function<bool()>& is_all = {});
  // begin_work(): work is about to be sent, after its push; end_work(): it was sent. From the first
  // on, and until the work is known to be done, device code may write.
  void begin_work();
  void end_work();
  // A mark behind all work sent so far, for pull(); nullopt while work is being sent.
  std::optional<uint64_t> mark() const;
  // Fetches what device code has changed. `done`: all work up to this mark is done, so nothing is
  // left to fetch until more work is sent.
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
  std::mutex pulling_;               // lock order: pulling_ before state_
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
