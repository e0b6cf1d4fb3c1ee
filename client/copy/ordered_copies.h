// OrderedCopies: asynchronous copies of memory that the application has pinned or registered, in
// stream order, whose bytes cross the connection while the application goes on.
//
// A delivery (to the host) ends when the worker's notices have brought all of its bytes, which the
// receiving thread writes to where they belong. A fetch (to the device) ends when the worker has
// asked for all bytes and they were sent, by a thread of our own that is started with the first
// one. The worker names copies by id; addresses are known here only, and a notice that does not fit
// its copy is a Status that ends the session.
//
// add_...() before the call that orders the copy. Any thread; notices on the receiving thread,
// which they do not block.
#pragma once

#include <cuda.h>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <vector>

#include "client/copy/pack.h"
#include "common/base/status.h"

namespace fargpu::client {

class OrderedCopies {
 public:
  // How the thread of the copies reaches the worker; replaced in tests. Nothing there may wait for
  // the application.
  struct Wire {
    std::function<void(uint64_t id, uint64_t offset, std::span<const std::byte>)> send;
    std::function<void(uint64_t id)> delivered;
    // Bytes were delivered to memory that device code sees by now.
    std::function<void()> publish;
    // A copy that held a stream of the device is over, or has all that it needs. Also called on
    // the receiving thread; must not block.
    std::function<void(uint16_t device)> release;
  };
  // `piece_bytes`: the most that one send() takes.
  OrderedCopies(Wire wire, uint64_t piece_bytes)
      : wire_(std::move(wire)), piece_bytes_(piece_bytes) {}

  // How a copy holds its stream. `held`: release(device) is called at its end.
  struct Hold {
    bool held = false;
    uint16_t device = 0;
    bool acknowledge = false;  // delivered() is called when the bytes are there
  };
  // `written`: the worker may write the bytes by itself, instead of sending them.
  uint64_t add_delivery(const Box& box, const Side& host, const Hold& hold, bool written = false);
  uint64_t add_fetch(const Box& box, const Side& host, uint16_t held_device);
  // A place in a stream that is held there until device code sees what was delivered before it.
  uint64_t add_meeting(uint16_t held_device);
  // The call that should have ordered it failed.
  void cancel(uint64_t id);

  // Notices. Where the bytes of a delivery go straight away; empty: through memory of the channel.
  Result<std::span<std::byte>> target(uint64_t id, uint64_t offset, uint64_t bytes);
  // `written`: so many bytes are there without having been sent.
  Status on_delivery(uint64_t id, uint64_t offset, CUresult result,
                     std::span<const std::byte> bytes, uint64_t written = 0);
  Status on_fetch(uint64_t id, uint64_t offset, uint64_t bytes, CUresult result);
  // The session is gone, and every copy with it.
  void lost();

  // Device code sees the range from now on. Streams do not wait for deliveries to it that are under
  // way: what their bytes change is published, and until then work has to meet them.
  void show(uint64_t address, uint64_t bytes);
  // There are such deliveries.
  bool to_be_met() const { return shown_.load(std::memory_order_acquire) != 0; }
  // Of deliveries that hold no stream.
  uint64_t unheld_bytes() const { return unheld_bytes_.load(std::memory_order_relaxed); }
  bool outstanding() const { return outstanding_.load(std::memory_order_acquire) != 0; }
  // Some delivery will still write to the range.
  bool writes(uint64_t address, uint64_t bytes) const { return finds(address, bytes, true); }
  // Some copy uses the range.
  bool uses(uint64_t address, uint64_t bytes) const { return finds(address, bytes, false); }

 private:
  struct Copy {
    Box box;
    Side host;
    uint64_t base = 0, span = 0;  // the range of addresses
    uint64_t bytes = 0;
    uint64_t moved = 0;  // of a delivery: received; of a fetch: asked for
    bool fetch = false;
    Hold hold;
    bool packed = false;
    bool written = false;  // of a delivery: perhaps
    bool dropped = false;  // of a fetch: the worker wants no more
    bool shown = false;    // a delivery to memory that device code has got meanwhile
    bool is_meeting() const { return fetch && bytes == 0; }
  };
  struct Task {
    enum class Kind { kSend, kGiveUp, kAcknowledge, kPublish } kind;
    uint64_t id, offset, bytes;
  };
  using Map = std::map<uint64_t, Copy>;

  uint64_t add(const Box& box, const Side& host, bool fetch, const Hold& hold, bool written);
  void queue(const Task& task);    // with mutex_ held
  void erase(Map::iterator copy);  // with mutex_ held
  void start_thread();             // with mutex_ held
  bool finds(uint64_t address, uint64_t bytes, bool deliveries_only) const;
  void run();
  void run_task(const Task& task);

  const Wire wire_;
  const uint64_t piece_bytes_;
  mutable std::mutex mutex_;
  std::condition_variable ready_;
  Map copies_;                          // guarded by mutex_
  std::vector<Map::node_type> unused_;  // guarded by mutex_: no allocation for a copy
  std::deque<Task> tasks_;              // guarded by mutex_
  uint64_t next_id_ = 1;                // guarded by mutex_
  bool started_ = false;                // guarded by mutex_
  bool lost_ = false;                   // guarded by mutex_
  std::atomic<size_t> outstanding_{0};
  std::atomic<uint64_t> unheld_bytes_{0};
  std::atomic<size_t> shown_{0};
};

}  // namespace fargpu::client
