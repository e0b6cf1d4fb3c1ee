// CopyFences: copies to the device whose calls have returned in the client although the bytes have
// not arrived. Work that the client submits later must see the bytes.
//
// An event is recorded behind such a copy. Before the next work enters any other stream of the
// session, that stream waits for the event (cuStreamWaitEvent, also between contexts and devices),
// once for each fence. Streams that the driver itself orders after the copy need no wait: the
// copy's own stream, and blocking streams on either side of their context's legacy stream. Nothing
// here blocks.
//
// Some copies may stand behind a host function or a wait for a value, so perhaps only the
// application can release them. Such a copy gets no fence: the very work that releases it would
// wait for it. The client waits for such a copy itself where CUDA promises more. Copies in streams
// that the client has for itself have their fences always (copy::Order::kOwnStream).
//
// A stream has at most two fences. A fence ends when its event is done or its context has failed.
// For memory that another process reaches the client waits as well.
// One thread (the executor's).
#pragma once

#include <cuda.h>

#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "server/object/frame_stream.h"
#include "server/object/object_end.h"

namespace fargpu::server {

struct DriverTable;
class StreamEvents;

class CopyFences {
 public:
  using Stream = FrameStream;

  CopyFences(const DriverTable& driver, StreamEvents& events) : driver_(driver), events_(events) {}
  CopyFences(const CopyFences&) = delete;
  CopyFences& operator=(const CopyFences&) = delete;

  // The present work of `stream` ends before later work of other streams begins. `returned`: as
  // copy::Order::kReturned. The stream's context must be current. An error: there is no fence.
  CUresult add(const Stream& stream, bool returned);
  // Called before work enters `stream`, whose context is current. One comparison while there are no
  // fences.
  CUresult before_work(const Stream& stream) {
    return fences_.empty() ? CUDA_SUCCESS : wait_for_all(stream);
  }
  // A wait for a value is in a stream: while there is one, streams may need an action of the
  // application to continue.
  class ValueWait {
   public:
    explicit ValueWait(CopyFences& fences) : fences_(&fences) { ++fences.value_waits_; }
    ValueWait(ValueWait&& other) noexcept : fences_(std::exchange(other.fences_, nullptr)) {}
    ValueWait& operator=(ValueWait&&) = delete;
    ~ValueWait() {
      if (fences_ != nullptr) --fences_->value_waits_;
    }

   private:
    CopyFences* fences_;
  };
  ValueWait value_wait() { return ValueWait(*this); }
  bool any_value_wait() const { return value_waits_ != 0; }
  // Drops fences whose events are done.
  void poll() {
    if (!fences_.empty()) drop_what_is_over();
  }

  // The newest fence; 0: there was none yet.
  uint64_t newest() const { return newest_; }
  // Whether a fence up to `number`, of kReturned or of any kind, still stands. Polls.
  enum class Which : uint8_t { kReturned, kAll };
  bool stands(uint64_t number, Which which = Which::kReturned);
  bool any_returned() const { return returned_ != 0; }

  // The stream is destroyed; its work continues.
  void stream_ended(const ObjectEnd& end);
  // Its fences go with it.
  void context_ended(const ContextEnd& end);

  size_t size() const { return fences_.size(); }

 private:
  // Default streams with their context, others by their id alone.
  struct Key {
    uint64_t id;
    uint16_t context;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    size_t operator()(const Key& key) const { return key.id ^ (uint64_t{key.context} << 48); }
  };
  struct Fence {
    Stream stream;  // without a handle when it has been destroyed
    Key key;
    bool returned;
    uint64_t first, last;  // numbers: the event was recorded again for all copies after the first
    CUevent event;
  };
  struct Seen {
    uint64_t passed = 0;  // has waited for all fences up to this number
    enum class Blocking : uint8_t { kUnknown, kYes, kNo } blocking = Blocking::kUnknown;
  };

  static Key key_of(const Stream& stream);
  CUresult wait_for_all(const Stream& stream);
  bool comes_after(const Stream& stream, const Key& key, const Fence& fence);
  bool is_blocking(const Stream& stream, const Key& key);
  bool is_over(const Fence& fence);
  void drop_what_is_over();
  void drop(size_t index);

  const DriverTable& driver_;
  StreamEvents& events_;
  std::vector<Fence> fences_;  // two a stream at most, the older one first
  uint64_t newest_ = 0;
  uint64_t value_waits_ = 0;
  size_t returned_ = 0;                          // how many fences are of kReturned
  std::unordered_map<Key, Seen, KeyHash> seen_;  // streams that got work since there are fences
};

}  // namespace fargpu::server
