#include "client/memory/copy.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "client/manual/common.h"
#include "client/memory/reserve.h"

namespace fargpu::client {
namespace {

bool is_packed(const Box& box, const Side& side) {
  const bool rows = box.height == 1 || side.pitch == box.width;
  const bool slices = box.depth == 1 || side.slice == box.width * box.height;
  return rows && slices;
}

// Calls visit(piece, device side, host side) for pieces of at most `limit` bytes: whole slices when
// one fits, else whole rows, else parts of rows.
template <typename Visit>
CUresult for_each_piece(const Box& box, const Side& device, const Side& host, uint64_t limit,
                        Visit&& visit) {
  const auto at = [](const Side& side, size_t x, size_t y, size_t z) {
    return Side{side.address + z * side.slice + y * side.pitch + x, side.pitch, side.slice};
  };
  const uint64_t slice_bytes = box.width * box.height;
  if (slice_bytes <= limit) {
    const size_t step = std::max<uint64_t>(1, limit / slice_bytes);
    for (size_t z = 0; z < box.depth; z += step) {
      const Box piece{box.width, box.height, std::min(step, box.depth - z)};
      if (const CUresult result = visit(piece, at(device, 0, 0, z), at(host, 0, 0, z));
          result != CUDA_SUCCESS) {
        return result;
      }
    }
    return CUDA_SUCCESS;
  }
  for (size_t z = 0; z < box.depth; ++z) {
    if (box.width <= limit) {
      const size_t step = std::max<uint64_t>(1, limit / box.width);
      for (size_t y = 0; y < box.height; y += step) {
        const Box piece{box.width, std::min(step, box.height - y), 1};
        if (const CUresult result = visit(piece, at(device, 0, y, z), at(host, 0, y, z));
            result != CUDA_SUCCESS) {
          return result;
        }
      }
      continue;
    }
    for (size_t y = 0; y < box.height; ++y) {
      for (size_t x = 0; x < box.width; x += limit) {
        const Box piece{std::min<size_t>(limit, box.width - x), 1, 1};
        if (const CUresult result = visit(piece, at(device, x, y, z), at(host, x, y, z));
            result != CUDA_SUCCESS) {
          return result;
        }
      }
    }
  }
  return CUDA_SUCCESS;
}

// Before host memory is read for a copy that is ordered behind other work: functions of the
// application in streams may still write pinned memory, and device code may have written mapped
// memory.
CUresult settle_source(Session& session, uint64_t address, CUstream stream) {
  const bool mirrored = session.mirrors.any();
  if (!mirrored && !session.host_calls.outstanding()) return CUDA_SUCCESS;
  if (!session.host_memory.find(address)) return CUDA_SUCCESS;
  if (const CUresult result = call_cuStreamSynchronize(session, current_context_id(), stream);
      result != CUDA_SUCCESS) {
    return result;
  }
  return after_synchronisation(session, /*all_done=*/false);
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
  const uint64_t extent = session.device_memory.extent(address);
  *known = extent != 0;
  return *known && extent < bytes ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult settle_untried(Session& session, uint64_t address, uint64_t bytes) {
  const auto region = session.device_memory.find(address);
  if (!region || region->kind != MemoryKind::kVirtual || region->used) return CUDA_SUCCESS;
  if (const CUresult result = settle(session); result != CUDA_SUCCESS) return result;
  session.device_memory.mark_used(address, bytes);
  return CUDA_SUCCESS;
}

CUresult copy_to_device(Session& session, const Side& dst, const Side& src, const Box& box,
                        CUstream stream, bool wait) {
  if (box.empty()) return CUDA_SUCCESS;
  bool known = false;
  if (const CUresult result = checked_span(session, dst, src, box, &known); result != CUDA_SUCCESS)
    return result;
  if (const CUresult result = settle_source(session, src.address, stream); result != CUDA_SUCCESS)
    return result;
  std::unique_ptr<std::byte[]> staging;
  const uint64_t limit = session.piece_bytes();
  const CUresult result = for_each_piece(
      box, dst, src, limit, [&](const Box& piece, const Side& to, const Side& from) -> CUresult {
        const size_t bytes = piece.width * piece.height * piece.depth;
        const void* data = reinterpret_cast<const void*>(from.address);
        if (!is_packed(piece, from)) {
          if (!staging) staging = std::make_unique<std::byte[]>(limit);
          pack(piece, from, staging.get());
          data = staging.get();
        }
        return call_fgCopyToDevice(session, current_context_id(), to.address, to.pitch, to.slice,
                                   piece.width, piece.height, piece.depth, stream, data, bytes);
      });
  if (result != CUDA_SUCCESS) return result;
  if (known) return settle_untried(session, dst.address, span_of(box, dst));
  return wait ? settle(session) : CUDA_SUCCESS;
}

CUresult copy_to_host(Session& session, const Side& dst, const Side& src, const Box& box,
                      CUstream stream) {
  if (box.empty()) return CUDA_SUCCESS;
  bool known = false;
  if (const CUresult result = checked_span(session, src, dst, box, &known); result != CUDA_SUCCESS)
    return result;
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
  return result == CUDA_SUCCESS ? after_synchronisation(session, /*all_done=*/false) : result;
}

CUresult copy_on_host(Session& session, const Side& dst, const Side& src, const Box& box,
                      CUstream stream) {
  if (box.empty()) return CUDA_SUCCESS;
  if (span_of(box, dst) == 0 || span_of(box, src) == 0) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = call_cuStreamSynchronize(session, current_context_id(), stream);
      result != CUDA_SUCCESS) {
    return result;
  }
  if (const CUresult result = after_synchronisation(session, /*all_done=*/false);
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
