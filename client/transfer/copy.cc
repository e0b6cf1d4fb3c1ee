#include "client/transfer/copy.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>

#include "client/copy/pieces.h"
#include "client/entry/here.h"
#include "client/memory/reserve.h"
#include "client/transfer/coherence.h"
#include "client/transfer/exposure.h"
#include "client/transfer/ordered_copy.h"
#include "client/transfer/remote_copy.h"
#include "client/transfer/staged_copy.h"
#include "client/transfer/synchronous_copy.h"
#include "common/rpc/copy_order.h"

namespace fargpu::client {
namespace {

// Before host memory is read here for a copy that is ordered behind other work.
CUresult settle_source(Session& session, const Side& src, const Box& box, CUstream stream) {
  if (session.host_memory.empty()) return CUDA_SUCCESS;
  const auto region = session.find_host(src.address);
  if (!region) return CUDA_SUCCESS;
  if (!may_be_written_later(session, *region, src.address, span_of(box, src))) return CUDA_SUCCESS;
  return call_cuStreamSynchronize(session, current_context_id(), stream);
}

// True when the whole host side lies in memory of the application that the worker shares, in a
// shape that the driver copies in one go. Its order is then the stream's own, whatever else may
// write the memory.
bool is_shared(Session& session, const Side& host, const Side& device, const Box& box) {
  if (session.host_memory.empty()) return false;
  const auto region = session.find_host(host.address);
  if (!region || region->shared_at == 0) return false;
  if (span_of(box, host) > region->base + region->bytes - host.address) return false;
  if (box.depth == 1) return true;
  const auto whole_rows = [&box](const Side& side) {
    return side.pitch >= box.width && side.slice % side.pitch == 0 &&
           side.slice / side.pitch >= box.height;
  };
  return whole_rows(host) && whole_rows(device);
}

CUresult copy_shared(Session& session, bool to_device, const Side& host, const Side& device,
                     const Box& box, CUstream stream, bool wait) {
  const uint16_t context = current_context_id();
  if (!wait) {
    return call_fgCopyShared(session, context, to_device, host.address, host.pitch, host.slice,
                             device.address, device.pitch, device.slice, box.width, box.height,
                             box.depth, stream, 0, 0, static_cast<int>(rpc::CopyOrder::kStream));
  }
  return call_fgCopySharedWait(session, context, to_device, host.address, host.pitch, host.slice,
                               device.address, device.pitch, device.slice, box.width, box.height,
                               box.depth, stream);
}

// In frames: the source has been taken when this returns.
CUresult framed_to_device(Session& session, const Side& dst, const Side& src, const Box& box,
                          CUstream stream, const SynchronousCopy& synchronous) {
  std::unique_ptr<std::byte[]> staging;
  const uint64_t limit = session.piece_bytes();
  size_t left = box.width * box.height * box.depth;
  return for_each_piece(
      box, dst, src, limit, [&](const Box& piece, const Side& to, const Side& from) -> CUresult {
        const size_t bytes = piece.width * piece.height * piece.depth;
        const void* data = reinterpret_cast<const void*>(from.address);
        if (!is_packed(piece, from)) {
          if (!staging) staging = std::make_unique<std::byte[]>(limit);
          pack(piece, from, staging.get());
          data = staging.get();
        }
        left -= bytes;
        return call_fgCopyToDevice(session, current_context_id(), to.address, to.pitch, to.slice,
                                   piece.width, piece.height, piece.depth, stream, data, bytes,
                                   synchronous.order(/*last=*/left == 0));
      });
}

bool has_whole_rows(const Side& side, const Box& box) {
  return box.depth == 1 || (side.pitch != 0 && side.slice % side.pitch == 0);
}

// Host memory of which the worker has a mirror is copied from and to there: in the order of the
// stream, which kernels that use it are in as well.
bool goes_by_mirror(Session& session, const Side& host, const Side& device, const Box& box) {
  if (!session.pages.any()) return false;
  return is_mirrored(session, host.address, span_of(box, host)) && has_whole_rows(host, box) &&
         has_whole_rows(device, box);
}

CUresult copy_by_mirror(Session& session, const Side& dst, const Side& src, const Box& box,
                        CUstream stream, bool wait) {
  const uint16_t context = current_context_id();
  const Submission work(session, stream);
  CUresult result = work.result();
  if (result != CUDA_SUCCESS) return result;
  if (box.height == 1 && box.depth == 1) {
    result =
        call_cuMemcpyDtoDAsync_v2(session, context, dst.address, src.address, box.width, stream);
  } else {
    const auto rows = [&box](const Side& side) {
      return box.depth == 1 ? box.height : side.slice / side.pitch;
    };
    CUDA_MEMCPY3D copy{};
    copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = src.address;
    copy.srcPitch = src.pitch;
    copy.srcHeight = rows(src);
    copy.dstDevice = dst.address;
    copy.dstPitch = dst.pitch;
    copy.dstHeight = rows(dst);
    copy.WidthInBytes = box.width;
    copy.Height = box.height;
    copy.Depth = box.depth;
    result = call_cuMemcpy3DAsync_v2(session, context, &copy, stream);
  }
  if (result != CUDA_SUCCESS || !wait) return result;
  return call_cuStreamSynchronize(session, context, stream);
}

CUresult checked_span(Session& session, const Side& device, const Side& host, const Box& box,
                      bool* known) {
  const uint64_t span = span_of(box, device);
  if (span == 0 || span_of(box, host) == 0) return CUDA_ERROR_INVALID_VALUE;
  return check_device_range(session, device.address, span, known);
}

}  // namespace

Where classify(Session& session, uint64_t address) {
  if (session.device_memory.find(address)) return Where::kDevice;
  if (session.host_memory.find(address)) return Where::kHost;
  // Neither is known: a variable on the application's stack or heap, or an address that only device
  // code has made.
  return readable(reinterpret_cast<const void*>(address)) ? Where::kHost : Where::kDevice;
}

CUresult check_device_range(Session& session, uint64_t address, uint64_t bytes, bool* known) {
  const AddressMap::Extent extent = session.device_memory.extent(address);
  *known = extent.bytes != 0;
  if (!*known) return CUDA_SUCCESS;
  return extent.bytes < bytes || extent.session != &session ? CUDA_ERROR_INVALID_VALUE
                                                            : CUDA_SUCCESS;
}

CUresult settle_untried(Session& session, uint64_t address, uint64_t bytes) {
  const auto region = session.device_memory.find(address);
  if (!region || region->kind != MemoryKind::kVirtual || region->used) return CUDA_SUCCESS;
  if (const CUresult result = settle(session); result != CUDA_SUCCESS) return result;
  session.device_memory.mark_used(address, bytes);
  return CUDA_SUCCESS;
}

CUresult copy_to_device(Session& session, const Side& dst, const Side& src, const Box& box,
                        CUstream stream, bool wait, SourceAccess access) {
  if (box.empty()) return CUDA_SUCCESS;
  bool known = false;
  if (const CUresult result = checked_span(session, dst, src, box, &known); result != CUDA_SUCCESS)
    return result;
  if (const CUresult result = expose_operands(session, {dst.address}); result != CUDA_SUCCESS)
    return result;
  if (const CUresult result = expose_copied(session, dst, src, box); result != CUDA_SUCCESS)
    return result;
  const bool in_stream = access == SourceAccess::kInStream;
  if (in_stream && goes_by_mirror(session, src, dst, box)) {
    const CUresult result = copy_by_mirror(session, dst, src, box, stream, wait);
    if (result != CUDA_SUCCESS || !known) return result;
    return settle_untried(session, dst.address, span_of(box, dst));
  }
  const Submission work(session, stream);
  if (work.result() != CUDA_SUCCESS) return work.result();
  if (in_stream && is_shared(session, src, dst, box)) {
    const CUresult result = copy_shared(session, true, src, dst, box, stream, wait);
    if (result != CUDA_SUCCESS || !known) return result;
    return settle_untried(session, dst.address, span_of(box, dst));
  }
  if (in_stream && !wait && is_fetched(session, src, box)) {
    const CUresult result = fetch_to_device(session, dst, src, box, stream);
    if (result != CUDA_SUCCESS || !known) return result;
    return settle_untried(session, dst.address, span_of(box, dst));
  }
  if (in_stream) {
    const CUresult result = settle_source(session, src, box, stream);
    if (result != CUDA_SUCCESS) return result;
  }
  if (const auto place = in_stream ? remote_place(session, src, box) : std::nullopt) {
    const CUresult result = remote_to_device(session, *place, dst, src, box, stream);
    if (result != CUDA_SUCCESS) return result;
    // A synchronous copy has taken its bytes, and the worker takes them in stream order.
    if (wait) return call_cuStreamSynchronize(session, current_context_id(), stream);
    return known ? settle_untried(session, dst.address, span_of(box, dst)) : CUDA_SUCCESS;
  }
  SynchronousCopy synchronous(session, wait, src.address, box.width * box.height * box.depth,
                              stream);
  const auto ring = ring_for(session, box);
  const Overflow overflow = in_stream && !wait && is_fetchable(session, src, box)
                                ? Overflow::kFetched
                                : Overflow::kInFrames;
  CUresult result =
      ring ? staged_to_device(session, *ring, dst, src, box, stream, synchronous, overflow)
           : framed_to_device(session, dst, src, box, stream, synchronous);
  if (result == CUDA_SUCCESS) result = synchronous.finish();
  if (result != CUDA_SUCCESS) return result;
  if (known) return settle_untried(session, dst.address, span_of(box, dst));
  return wait ? settle(session) : CUDA_SUCCESS;
}

CUresult copy_to_host(Session& session, const Side& dst, const Side& src, const Box& box,
                      CUstream stream, bool wait) {
  if (box.empty()) return CUDA_SUCCESS;
  bool known = false;
  if (const CUresult result = checked_span(session, src, dst, box, &known); result != CUDA_SUCCESS)
    return result;
  if (const CUresult result = expose_operands(session, {src.address}); result != CUDA_SUCCESS)
    return result;
  // The source may be host memory by its device address, which is the mirror's.
  std::optional<Submission> from_mirror;
  if (session.pages.touches(src.address, span_of(box, src))) {
    from_mirror.emplace(session, stream);
    if (from_mirror->result() != CUDA_SUCCESS) return from_mirror->result();
  }
  if (goes_by_mirror(session, dst, src, box)) {
    const CUresult result = copy_by_mirror(session, dst, src, box, stream, wait);
    if (result != CUDA_SUCCESS || !known) return result;
    return settle_untried(session, src.address, span_of(box, src));
  }
  if (is_shared(session, dst, src, box)) {
    const CUresult result = copy_shared(session, false, dst, src, box, stream, wait);
    if (result != CUDA_SUCCESS || !known) return result;
    return settle_untried(session, src.address, span_of(box, src));
  }
  if (!wait && is_delivered(session, dst, box)) {
    const CUresult result = deliver_to_host(session, dst, src, box, stream);
    if (result != CUDA_SUCCESS || !known) return result;
    return settle_untried(session, src.address, span_of(box, src));
  }
  if (const auto place = remote_place(session, dst, box)) {
    const CUresult result = remote_to_host(session, *place, dst, src, box, stream);
    return result == CUDA_SUCCESS ? after_synchronisation(session) : result;
  }
  if (const auto ring = ring_for(session, box)) {
    const CUresult result = staged_to_host(session, *ring, dst, src, box, stream);
    return result == CUDA_SUCCESS ? after_synchronisation(session) : result;
  }
  std::unique_ptr<std::byte[]> staging;
  const uint64_t limit = session.piece_bytes();
  const CUresult result = for_each_piece(
      box, src, dst, limit, [&](const Box& piece, const Side& from, const Side& to) -> CUresult {
        const size_t bytes = piece.width * piece.height * piece.depth;
        const bool direct = is_packed(piece, to);
        if (!direct && !staging) staging = std::make_unique<std::byte[]>(limit);
        std::byte* data = direct ? reinterpret_cast<std::byte*>(to.address) : staging.get();
        const CUresult copied =
            call_fgCopyToHost(session, current_context_id(), from.address, from.pitch, from.slice,
                              piece.width, piece.height, piece.depth, stream, data, bytes);
        if (copied == CUDA_SUCCESS && !direct) unpack(piece, to, data);
        return copied;
      });
  // Everything before it in the stream is complete.
  return result == CUDA_SUCCESS ? after_synchronisation(session) : result;
}

CUresult copy_on_host(Session& session, const Side& dst, const Side& src, const Box& box,
                      CUstream stream) {
  if (box.empty()) return CUDA_SUCCESS;
  if (span_of(box, dst) == 0 || span_of(box, src) == 0) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = call_cuStreamSynchronize(session, current_context_id(), stream);
      result != CUDA_SUCCESS) {
    return result;
  }
  for (size_t z = 0; z < box.depth; ++z) {
    for (size_t y = 0; y < box.height; ++y) {
      std::memmove(reinterpret_cast<void*>(dst.address + z * dst.slice + y * dst.pitch),
                   reinterpret_cast<const void*>(src.address + z * src.slice + y * src.pitch),
                   box.width);
    }
  }
  return CUDA_SUCCESS;
}

}  // namespace fargpu::client
