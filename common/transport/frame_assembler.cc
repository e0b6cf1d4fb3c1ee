#include "common/transport/frame_assembler.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <new>

#include "common/base/address_check.h"

namespace fargpu::transport {
namespace {

constexpr size_t kHeaderBytes = sizeof(wire::FrameHeader);
constexpr size_t kReadAheadBytes = 256 << 10;  // one read takes many small frames
constexpr size_t kCheapMoveBytes = 4 << 10;
constexpr std::align_val_t kAlignment{64};

std::byte* allocate(size_t bytes) {
  return static_cast<std::byte*>(::operator new[](bytes, kAlignment));
}

}  // namespace

void FrameAssembler::FreeBytes::operator()(std::byte* bytes) const {
  ::operator delete[](bytes, kAlignment);
}

FrameAssembler::FrameAssembler(const wire::FrameLimits& limits, size_t connections)
    : limits_(limits),
      connections_(connections),
      capacity_(wire::whole_words(kHeaderBytes + limits.max_body_bytes) + kReadAheadBytes),
      buffer_(allocate(capacity_)) {}

// Moves the unparsed rest to the front when that is cheap (which also aligns it) or when the frame
// would not fit.
void FrameAssembler::make_room() {
  const size_t rest = end_ - begin_;
  if (begin_ == 0) return;
  if (rest == 0) {
    begin_ = end_ = 0;
    return;
  }
  if (rest > kCheapMoveBytes && capacity_ - begin_ >= kHeaderBytes + limits_.max_body_bytes &&
      end_ < capacity_) {
    return;
  }
  std::memmove(buffer_.get(), buffer_.get() + begin_, rest);
  begin_ = 0;
  end_ = rest;
}

FrameAssembler::Writable FrameAssembler::writable() {
  if (!in_bulk_) make_room();
  const size_t room = std::min(capacity_ - end_, kReadAheadBytes);
  return {in_bulk_ ? shares_[0].subspan(done_[0]) : std::span<std::byte>(),
          std::span(buffer_.get() + end_, room)};
}

Result<size_t> FrameAssembler::advance(size_t bytes, FrameHandler& handler) {
  if (!in_bulk_) {
    end_ += bytes;
    return parse(handler);
  }
  const size_t to_bulk = std::min(bytes, shares_[0].size() - done_[0]);
  done_[0] += to_bulk;
  missing_ -= to_bulk;
  end_ += bytes - to_bulk;
  return missing_ > 0 ? size_t{0} : after_bulk(handler);
}

Result<size_t> FrameAssembler::advance_share(size_t index, size_t bytes, FrameHandler& handler) {
  done_[index] += bytes;
  missing_ -= bytes;
  return missing_ > 0 ? size_t{0} : after_bulk(handler);
}

Result<size_t> FrameAssembler::after_bulk(FrameHandler& handler) {
  in_bulk_ = false;
  FARGPU_RETURN_IF_ERROR(deliver(handler, bulk_));
  FARGPU_ASSIGN_OR_RETURN(const size_t more, parse(handler));
  return 1 + more;
}

Result<size_t> FrameAssembler::parse(FrameHandler& handler) {
  for (size_t delivered = 0;; ++delivered) {
    FARGPU_ASSIGN_OR_RETURN(const bool whole, parse_one(handler));
    if (!whole) return delivered;
  }
}

void FrameAssembler::begin_bulk(std::span<std::byte> bulk) {
  bulk_ = bulk;
  missing_ = bulk.size();
  for (size_t i = 0; i < connections_; ++i) {
    const Share share = share_of(bulk.size(), connections_, i);
    shares_[i] = bulk.subspan(share.offset, share.bytes);
    done_[i] = 0;
  }
  in_bulk_ = true;
}

std::span<const std::byte> FrameAssembler::aligned_body(const std::byte* body, size_t bytes) {
  if (reinterpret_cast<uintptr_t>(body) % 8 == 0 || bytes == 0) return {body, bytes};
  if (!scratch_) scratch_.reset(allocate(wire::whole_words(limits_.max_body_bytes)));
  std::memcpy(scratch_.get(), body, bytes);
  return {scratch_.get(), bytes};
}

std::span<const std::byte> FrameAssembler::around_body() const {
  if (body_in_buffer()) return {buffer_.get(), capacity_};
  return {scratch_.get(), wire::whole_words(limits_.max_body_bytes)};
}

Status FrameAssembler::deliver(FrameHandler& handler, std::span<std::byte> bulk) {
  const address_check::OnlyPart body(body_, around_body());
  return handler.on_frame(header_, body_, bulk);
}

Result<bool> FrameAssembler::parse_one(FrameHandler& handler) {
  const size_t available = end_ - begin_;
  if (available < kHeaderBytes) return false;
  std::memcpy(&header_, buffer_.get() + begin_, kHeaderBytes);
  FARGPU_RETURN_IF_ERROR(wire::check_header(header_, limits_));
  const size_t frame_bytes = kHeaderBytes + header_.body_bytes;
  if (available < frame_bytes) return false;

  body_ = aligned_body(buffer_.get() + begin_ + kHeaderBytes, header_.body_bytes);
  begin_ += frame_bytes;
  if (header_.bulk_bytes == 0) {
    FARGPU_RETURN_IF_ERROR(deliver(handler, {}));
    return true;
  }
  return take_bulk(handler);
}

Result<bool> FrameAssembler::take_bulk(FrameHandler& handler) {
  FARGPU_ASSIGN_OR_RETURN(const auto bulk, handler.bulk_buffer(header_, body_));
  if (bulk.size() != header_.bulk_bytes) {
    return Status(StatusCode::kProtocol,
                  fmt::format("no room for the {} bytes of bulk data of opcode {}",
                              header_.bulk_bytes, header_.opcode));
  }
  begin_bulk(bulk);
  done_[0] = std::min(end_ - begin_, shares_[0].size());
  missing_ -= done_[0];
  std::memcpy(bulk.data(), buffer_.get() + begin_, done_[0]);
  begin_ += done_[0];
  if (missing_ == 0) {
    in_bulk_ = false;
    FARGPU_RETURN_IF_ERROR(deliver(handler, bulk_));
    return true;
  }
  if (must_wait()) return false;  // what is buffered belongs to later frames
  // The buffer is used up. What follows the bulk is stored aligned, behind the body, which must
  // stay.
  begin_ = end_ =
      body_in_buffer() && !body_.empty()
          ? wire::whole_words(static_cast<size_t>(body_.data() - buffer_.get()) + body_.size())
          : 0;
  return false;
}

}  // namespace fargpu::transport
