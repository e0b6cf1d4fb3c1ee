// A copy as data: where from, where to, its shape, how it ends. The client fills it in, and the
// worker chooses from it how the bytes move. One of the two ends is device memory of the worker.
//
// A Copy travels as words (encode). A peer's words are checked by decode() only, except against the
// worker's tables: whether shared memory is shared, and handles. Any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "common/copy/shape.h"
#include "common/transport/remote_memory.h"

namespace fargpu::copy {

// Where one end of a copy lies. The numbers are part of the protocol.
struct Location {
  enum class Kind : uint8_t {
    kDevice = 0,  // rows: addresses of the worker's driver. A mirror is such memory, too
    kFrame = 1,   // packed rows that travel in frames
    kShared = 2,  // rows: host memory that both ends have at these addresses (shm)
    kRemote = 3,  // packed rows from `offset` on in memory that the client registered (rdma)
    kArray = 4,   // the elements of an array, from `position` on
  };
  Kind kind = Kind::kFrame;
  Rows rows;
  transport::RemoteKey remote;
  uint64_t offset = 0;
  ArrayPosition position{};

  bool on_device() const { return kind == Kind::kDevice || kind == Kind::kArray; }
  // Of an end that is not packed: the location of a piece.
  Location part(const Piece& piece) const {
    return {kind, piece.of(rows), remote, offset, piece.of(position)};
  }

  // kRemote: whether so many bytes lie in the registered memory.
  bool holds(uint64_t bytes) const {
    return offset <= remote.bytes && bytes <= remote.bytes - offset;
  }

  static Location device(const Rows& rows) { return {Kind::kDevice, rows, {}, 0}; }
  static Location in_array(const ArrayPosition& position) {
    return {Kind::kArray, {}, {}, 0, position};
  }
  static Location frame() { return {}; }
  static Location shared(const Rows& rows) { return {Kind::kShared, rows, {}, 0}; }
  static Location in(const transport::RemoteKey& key, uint64_t offset) {
    return {Kind::kRemote, {}, key, offset};
  }
};

// Which later work must wait for a copy to the device whose call may return before the bytes have
// arrived. Of several pieces of a copy the last one's counts for all. The numbers are part of the
// protocol.
enum class Order : uint8_t {
  // Only later work in its own stream: an asynchronous copy, or a caller that waits by itself.
  kStream = 0,
  // All work that is submitted later, in any stream, context or device of the session.
  kLaterWork = 1,
  // The same. In addition, queries of streams and events report the copy, and all work before it in
  // its stream, as complete: the call has returned, which told its caller so.
  kReturned = 2,
  // As kLaterWork, also while host functions or waits for a value are in streams: the copy is in a
  // stream that fargpu has for itself, which never waits for the application.
  kOwnStream = 3,
};

// How a copy in stream order may block its stream (Completion::Kind::kFollow).
enum class Hold : uint8_t {
  kNever = 0,           // the stream never waits for it
  kForStaging = 1,      // it may wait for staging memory that earlier copies of the stream use
  kUntilDelivered = 2,  // it also waits until the client has said fgDelivered
  // kForStaging of a copy to the device whose bytes the client gives away at any time: the worker
  // asks for them before the stream has come to the copy. Known to releases that know bulk
  // connections.
  kSourceStands = 3,
};

// How the client learns that the copy no longer touches host memory. The numbers are part of the
// protocol.
struct Completion {
  enum class Kind : uint8_t {
    kNothing = 0,  // it does not need to
    kReply = 1,    // by the reply of the call
    kWord = 2,     // the CompletionWord at `word`, in shared memory, gets the value `number`
    kNotice = 3,   // the notice `copied` with the ticket `number`
    // The copy follows its stream, and the call waits for nothing: the bytes move by the notices
    // `delivery` and `fetch` for the id `number`, when the stream has come to the copy.
    kFollow = 4,
    // Of a copy to the device in stream order: the bytes are in the frame, but until the stream has
    // come to the copy others may replace them, by fgAmend for the id `number`.
    kAmended = 5,
  };
  Kind kind = Kind::kNothing;
  Hold hold = Hold::kNever;
  uint64_t number = 0;
  uint64_t word = 0;
};

struct Copy {
  Location from, to;
  Shape shape;
  Completion completion;
  Order order = Order::kStream;

  bool to_device() const { return to.on_device(); }
  const Location& device() const { return to_device() ? to : from; }
  // The other end. Of a copy inside the device: where it comes from.
  const Location& host() const { return to_device() ? from : to; }
  bool inside() const { return from.on_device() && to.on_device(); }
};

// The words of a Copy. Fields that a simple copy lacks come last and are not sent, so a small copy
// stays a small message. Words that do not travel are 0.
struct Words {
  static constexpr size_t kMost = 18;
  std::array<uint64_t, kMost> words;
  size_t count = 0;

  const void* data() const { return words.data(); }
  size_t bytes() const { return count * sizeof(uint64_t); }
};
Words with_arrays(const Copy& copy, Words words);  // of encode() alone
inline Words encode(const Copy& copy) {
  const Location &device = copy.device(), &host = copy.host();
  Words made;
  auto& words = made.words;
  words[0] = uint64_t{static_cast<uint8_t>(copy.from.kind)} |
             uint64_t{static_cast<uint8_t>(copy.to.kind)} << 8 |
             uint64_t{static_cast<uint8_t>(copy.completion.kind)} << 16 |
             uint64_t{static_cast<uint8_t>(copy.order)} << 24 |
             uint64_t{static_cast<uint8_t>(copy.completion.hold)} << 32;
  words[1] = device.rows.address;
  words[2] = copy.shape.width;
  words[3] = copy.shape.height;
  words[4] = copy.shape.depth;
  words[5] = copy.completion.number;
  words[6] = host.rows.address;
  words[7] = copy.completion.word;
  words[8] = device.rows.pitch;
  words[9] = device.rows.slice;
  words[10] = host.rows.pitch;
  words[11] = host.rows.slice;
  if (device.kind == Location::Kind::kArray || host.kind == Location::Kind::kArray) [[unlikely]]
    return with_arrays(copy, made);
  const uint64_t pitches = words[8] | words[9] | words[10] | words[11];
  made.count = pitches != 0 ? 12 : words[7] != 0 ? 8 : words[6] != 0 ? 7 : words[5] != 0 ? 6 : 5;
  if (host.kind != Location::Kind::kRemote) return made;
  words[12] = host.offset;
  words[13] = host.remote.address;
  words[14] = host.remote.bytes;
  words[15] = host.remote.key;
  made.count = 16;
  return made;
}
// nullptr: `*copy` is a copy that may be carried out: both ends are of a kind that fits the other
// one, the shape is possible at both of them. Otherwise what is wrong.
const char* decode(std::span<const std::byte> words, Copy* copy);

}  // namespace fargpu::copy
