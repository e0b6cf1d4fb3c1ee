// OrderedCopies: asynchronous copies of pinned or registered memory. The call returns at once; the
// bytes cross the connection later, in stream order.
//
// A delivery is a copy to the host. It ends when the worker's notices have brought all of its
// bytes; the receiving thread writes them to their place. A fetch is a copy to the device. It ends
// when the worker has asked for all of its bytes and a thread has sent them
// (client/transfer/ordered_copy.h). Over a bulk connection later calls may overtake them; there it
// ends when the worker says that they have landed. The worker names a copy by its id; only the
// client knows addresses. A notice that does not fit its copy gives a Status that ends the session.
//
// Call add_...() before the call that enqueues the copy. Any thread; notices come on the receiving
// thread and do not block it.
#pragma once

#include <cuda.h>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <span>
#include <vector>

#include "client/copy/pack.h"
#include "client/stream/host_calls.h"
#include "client/stream/observers.h"
#include "common/base/status.h"
#include "common/copy/shape.h"

namespace fargpu::client {

class OrderedCopies {
 public:
  // `holds`: where copies that hold their streams are counted. `observers`: of kCopies and
  // kUnseenDeliveries this is the owner.
  OrderedCopies(HostCalls& holds, Observers& observers) : holds_(holds), observers_(observers) {}

  // How a copy holds its stream. `held`: it was counted, until it is over or has all that it needs.
  struct Hold {
    bool held = false;
    uint16_t device = 0;
    bool acknowledge = false;  // the worker is told when the bytes are there
  };
  // Whose the host memory is. What the application has mapped itself, it may unmap before the copy
  // is over.
  enum class Memory : uint8_t { kOurs, kRegistered };
  // `written`: the worker may write the bytes by itself, instead of sending them.
  uint64_t add_delivery(const copy::Shape& shape, const copy::Rows& host, const Hold& hold,
                        bool written = false, Memory memory = Memory::kOurs);
  uint64_t add_fetch(const copy::Shape& shape, const copy::Rows& host, uint16_t held_device,
                     Memory memory = Memory::kOurs);
  // Holds a stream at this place until device code sees all bytes that were delivered before it.
  uint64_t add_barrier(uint16_t held_device);
  // The call that should have enqueued the copy failed.
  void cancel(uint64_t id);

  // Handlers of notices. The memory into which the bytes of a delivery are received directly;
  // empty: they pass through memory of the channel.
  Result<std::span<std::byte>> target(uint64_t id, uint64_t offset, uint64_t bytes);
  // `written`: how many bytes the worker has written itself.
  Status on_delivery(uint64_t id, uint64_t offset, CUresult result,
                     std::span<const std::byte> bytes, uint64_t written = 0);
  Status on_fetch(uint64_t id, uint64_t offset, uint64_t bytes, CUresult result);
  Status on_landed(uint64_t id);
  // The session is lost, and with it every copy.
  void lost();

  // What the thread that sends does next: it waits for that, does it, and says that it is done.
  struct Task {
    enum class Action : uint8_t {
      kSend,         // bytes [offset, offset + bytes) of a fetch
      kGiveUp,       // the worker wants no more of a fetch
      kAcknowledge,  // the bytes of a delivery are there
      kPublish,      // they are in memory that device code has been able to reach since the call
    } action;
    uint64_t id, offset, bytes;
  };
  Task next();
  // `awaits_landing`: of a kSend, what is sent later may arrive earlier; on_landed() comes.
  void done(const Task& task, bool awaits_landing = false);
  // A part of what kSend sends: where it lies, or in `packed`. Empty: the session is lost.
  // Registered memory that the application has unmapped meanwhile reads as zeros, which is logged
  // and sets *is_missing.
  std::span<const std::byte> part(const Task& task, uint64_t offset, uint64_t bytes,
                                  PackBuffer& packed, bool* is_missing) const;

  // Device code can reach the range from now on. Streams do not wait for deliveries to it that are
  // under way. Their bytes are published when they arrive; until then, work must wait for them.
  void show(uint64_t address, uint64_t bytes);
  // Counts deliveries that hold no stream.
  uint64_t unheld_bytes() const { return unheld_bytes_.load(std::memory_order_relaxed); }
  // Whether a delivery will still write to the range.
  bool writes(uint64_t address, uint64_t bytes) const { return finds(address, bytes, true); }
  // Whether a copy uses the range.
  bool uses(uint64_t address, uint64_t bytes) const { return finds(address, bytes, false); }

 private:
  struct Copy {
    copy::Shape shape{};
    copy::Rows host{};
    uint64_t span = 0;  // bytes from the host address on
    uint64_t bytes = 0;
    uint64_t moved = 0;    // of a delivery: received; of a fetch: asked for
    uint64_t sent = 0;     // of a fetch, or about to be
    bool sending = false;  // bytes of a fetch; on_landed() then leaves its end to who sends them
    bool landed = false;
    bool fetch = false;
    Memory memory = Memory::kOurs;
    Hold hold;
    bool packed = false;
    bool written = false;  // of a delivery: perhaps
    bool dropped = false;  // of a fetch: the worker wants no more
    bool shown = false;    // a delivery to memory that device code can reach by now
    bool is_barrier() const { return fetch && bytes == 0; }
    bool touches(uint64_t address, uint64_t length) const {
      return host.address < address + length && address < host.address + span;
    }
  };
  using Map = std::map<uint64_t, Copy>;

  uint64_t add(const copy::Shape& shape, const copy::Rows& host, bool fetch, Memory memory,
               const Hold& hold, bool written);
  void queue(const Task& task);    // with mutex_ held
  void erase(Map::iterator copy);  // with mutex_ held
  bool finds(uint64_t address, uint64_t bytes, bool deliveries_only) const;
  static bool read(const Copy& copy, uint64_t offset, std::span<std::byte> packed);
  static void unpack_into(const Copy& copy, uint64_t offset, std::span<const std::byte> bytes);

  HostCalls& holds_;
  Observers& observers_;
  mutable std::mutex mutex_;
  std::condition_variable ready_;
  Map copies_;                          // guarded by mutex_
  std::vector<Map::node_type> unused_;  // guarded by mutex_: no allocation for a copy
  std::deque<Task> tasks_;              // guarded by mutex_
  uint64_t next_id_ = 1;                // guarded by mutex_
  bool lost_ = false;                   // guarded by mutex_
  size_t shown_ = 0;                    // guarded by mutex_: how many copies are
  std::atomic<uint64_t> unheld_bytes_{0};
};

}  // namespace fargpu::client
