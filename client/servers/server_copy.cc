#include "client/servers/server_copy.h"

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "client/entry/call_target.h"
#include "client/process/process.h"
#include "client/servers/held_streams.h"
#include "client/transfer/copy.h"
#include "client/transfer/submission.h"
#include "common/host/thread.h"

namespace fargpu::client {
namespace {

// Large enough to fill a link, small enough that a copy has several.
constexpr uint64_t kMostPiece = 8u << 20, kLeastPiece = 256u << 10;
constexpr size_t kBuffers = 3;  // one is read, one is written, one lies between

using Buffer = std::unique_ptr<std::byte[]>;

// Buffers of kMostPiece for the next copy: fresh memory costs a fault for every page. Any thread.
class Buffers {
 public:
  static Buffers& get() {
    static auto& made = *new Buffers;
    return made;
  }
  Buffer take() {
    std::lock_guard lock(mutex_);
    if (free_.empty()) return Buffer(new std::byte[kMostPiece]);
    Buffer buffer = std::move(free_.back());
    free_.pop_back();
    return buffer;
  }
  void give_back(Buffer buffer) {
    std::lock_guard lock(mutex_);
    if (free_.size() < 2 * kBuffers) free_.push_back(std::move(buffer));
  }

 private:
  std::mutex mutex_;
  std::vector<Buffer> free_;  // guarded by mutex_
};

// One end of the copy: its context, and a stream of ours there.
struct End {
  Context* context;
  CUstream stream;
};

// A part of the copy.
struct Piece {
  copy::Shape shape;
  copy::Rows dst, src;
};

Endpoint packed(const CallTarget& target, const Piece& piece, const Buffer& buffer) {
  return host_end(target.session,
                  copy::dense(reinterpret_cast<uint64_t>(buffer.get()), piece.shape));
}

CUresult read(const End& from, const Piece& piece, const Buffer& buffer) {
  const ContextScope scope(from.context);
  const CallTarget target = CallTarget::of_current();
  return copy_to_host(target, packed(target, piece, buffer), device_end(target.session, piece.src),
                      piece.shape, from.stream, true);
}

// Returns when the buffer may change.
CUresult write(const End& to, const Piece& piece, const Buffer& buffer) {
  const ContextScope scope(to.context);
  const CallTarget target = CallTarget::of_current();
  return copy_to_device(target, device_end(target.session, piece.dst),
                        packed(target, piece, buffer), piece.shape, to.stream, false);
}

CUresult finish(const End& to) {
  const ContextScope scope(to.context);
  return await_stream(*to.context->session, to.context->wire_id, to.stream);
}

// Hands buffers from the thread that reads to the one that writes, and back.
class Pipe {
 public:
  // An empty buffer; null: the writer has failed.
  Buffer empty() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return result_ != CUDA_SUCCESS || out_ < kBuffers; });
    if (result_ != CUDA_SUCCESS) return nullptr;
    ++out_;
    return Buffers::get().take();
  }
  void filled(Buffer buffer) {
    std::lock_guard lock(mutex_);
    full_.push_back(std::move(buffer));
    changed_.notify_all();
  }
  // Null: there are no more, because the reader has failed.
  Buffer full() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return result_ != CUDA_SUCCESS || !full_.empty(); });
    if (full_.empty()) return nullptr;
    Buffer buffer = std::move(full_.front());
    full_.pop_front();
    return buffer;
  }
  void written(Buffer buffer) {
    Buffers::get().give_back(std::move(buffer));
    std::lock_guard lock(mutex_);
    --out_;
    changed_.notify_all();
  }
  // The first error counts.
  void fail(CUresult result) {
    std::lock_guard lock(mutex_);
    if (result_ == CUDA_SUCCESS) result_ = result;
    changed_.notify_all();
  }
  CUresult result() {
    std::lock_guard lock(mutex_);
    return result_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  std::deque<Buffer> full_;
  size_t out_ = 0;
  CUresult result_ = CUDA_SUCCESS;
};

CUresult in_pipeline(const End& to, const End& from, const std::vector<Piece>& pieces) {
  Pipe pipe;
  Thread writer([&] {
    for (const Piece& piece : pieces) {
      Buffer buffer = pipe.full();
      if (buffer == nullptr) return;
      const CUresult result = without_exception([&] { return write(to, piece, buffer); });
      pipe.written(std::move(buffer));
      if (result != CUDA_SUCCESS) return pipe.fail(result);
    }
  });
  for (const Piece& piece : pieces) {
    const CUresult result = without_exception([&] {
      Buffer buffer = pipe.empty();
      if (buffer == nullptr) return pipe.result();
      const CUresult got = read(from, piece, buffer);
      if (got == CUDA_SUCCESS) pipe.filled(std::move(buffer));
      return got;
    });
    if (result == CUDA_SUCCESS) continue;
    pipe.fail(result);
    break;
  }
  writer.join();
  return pipe.result();
}

CUresult in_one_piece(const End& to, const End& from, const Piece& piece) {
  Buffer buffer = Buffers::get().take();
  CUresult result = read(from, piece, buffer);
  if (result == CUDA_SUCCESS) result = write(to, piece, buffer);
  Buffers::get().give_back(std::move(buffer));
  return result;
}

struct Copy {
  Context *dst_context, *src_context;
  copy::Rows dst, src;
  copy::Shape shape;
};

CUresult transfer(Lane& lane, const Copy& copy) {
  return without_exception([&]() -> CUresult {
    End to{copy.dst_context, nullptr}, from{copy.src_context, nullptr};
    CUresult result = lane.work().in(*to.context, &to.stream);
    if (result == CUDA_SUCCESS) result = lane.work().in(*from.context, &from.stream);
    if (result != CUDA_SUCCESS) return result;
    const uint64_t limit = std::clamp(copy.shape.bytes() / 8, kLeastPiece, kMostPiece);
    std::vector<Piece> pieces;
    for_each_piece(copy.shape, limit, [&](const copy::Piece& piece) {
      pieces.push_back({piece.shape, piece.of(copy.dst), piece.of(copy.src)});
      return CUDA_SUCCESS;
    });
    result =
        pieces.size() == 1 ? in_one_piece(to, from, pieces.front()) : in_pipeline(to, from, pieces);
    return result == CUDA_SUCCESS ? finish(to) : result;
  });
}

// A context in which the region's memory can be copied: that of a pool and mapped memory belong to
// none. Null: there is none.
Context* context_of_region(const Region& region) {
  const auto usable = [&region](Context* context) {
    return context != nullptr && context->session == region.session && context->usable();
  };
  const Tables& tables = *Process::get().tables();
  if (region.context != nullptr) return usable(region.context) ? region.context : nullptr;
  if (Context* const primary = tables.contexts.primary(region.device); usable(primary))
    return primary;
  Context* found = nullptr;
  tables.handles.for_each([&](Object& object) {
    if (found != nullptr || object.kind() != rpc::HandleKind::kContext) return;
    auto* const context = static_cast<Context*>(&object);
    if (usable(context) && context->device == region.device) found = context;
  });
  return found;
}

CUresult check(const Endpoint& end, const copy::Shape& shape) {
  const uint64_t span = span_of(shape, end.rows);
  return span == 0 ? CUDA_ERROR_INVALID_VALUE : check_range(*end.session(), end, span);
}

// What a copy in the legacy stream is ordered behind: all in both contexts, and what is in the
// stream of the caller, which may be of a third one.
CUresult wait_for_legacy(const Copy& copy, CUstream stream) {
  const Context* const caller = current_context();
  if (caller != nullptr && caller != copy.dst_context && caller != copy.src_context) {
    if (const CUresult result = await_stream(*caller->session, caller->wire_id, stream);
        result != CUDA_SUCCESS)
      return result;
  }
  for (Context* const context : {copy.dst_context, copy.src_context}) {
    const ContextScope scope(context);
    if (const CUresult result = await_context(*context->session, context->wire_id);
        result != CUDA_SUCCESS)
      return result;
  }
  return CUDA_SUCCESS;
}

HeldStreams::Touched touched_by(const Copy& copy) {
  return {{copy.dst_context, copy.src_context},
          {{copy.dst.address, span_of(copy.shape, copy.dst)},
           {copy.src.address, span_of(copy.shape, copy.src)}}};
}

}  // namespace

CUresult copy_between_servers(const Endpoint& dst, const Endpoint& src, const copy::Shape& shape,
                              CUstream stream) {
  if (shape.empty()) return CUDA_SUCCESS;
  if (const CUresult result = check(dst, shape); result != CUDA_SUCCESS) return result;
  if (const CUresult result = check(src, shape); result != CUDA_SUCCESS) return result;
  const Copy copy{context_of_region(*dst.region), context_of_region(*src.region), dst.rows,
                  src.rows, shape};
  if (copy.dst_context == nullptr || copy.src_context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  for (const Context* const context : {copy.dst_context, copy.src_context}) {
    if (const int sticky = context->sticky.load()) return static_cast<CUresult>(sticky);
  }
  if (is_legacy(stream)) {
    HeldStreams::Touched touched = touched_by(copy);
    const CrossServerWork under_way(std::move(touched.contexts), std::move(touched.memory));
    if (const CUresult result = wait_for_legacy(copy, stream); result != CUDA_SUCCESS)
      return result;
    return HeldStreams::borrow(*copy.dst_context,
                               [&copy](Lane& lane) { return transfer(lane, copy); });
  }
  Context* const in = context_of(stream);
  if (in == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const ContextScope scope(in);
  auto ready = std::make_shared<ServerPoint>();
  return HeldStreams::hold(
      *in, stream, touched_by(copy), [&](Lane&) { return ready->set(*in, stream); },
      [ready, copy](Lane& lane) {
        const CUresult result = ready->wait();
        return result == CUDA_SUCCESS ? transfer(lane, copy) : result;
      });
}

}  // namespace fargpu::client
