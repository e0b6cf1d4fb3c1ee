#include "sim/work/copy.h"

#include <algorithm>
#include <cstring>
#include <shared_mutex>
#include <vector>

#include "sim/context/capture.h"
#include "sim/context/context.h"
#include "sim/driver/driver.h"
#include "sim/image/tiles.h"

namespace fargpu::sim {
namespace {

// Bytes from the first to the last byte of one side; false: it overflows.
bool extent(const CopySide& side, const Copy& copy, uint64_t* bytes) {
  unsigned __int128 last = static_cast<unsigned __int128>(copy.depth - 1) * side.slice +
                           static_cast<unsigned __int128>(copy.height - 1) * side.pitch +
                           copy.width;
  if (last + side.base > UINT64_MAX) return false;
  *bytes = static_cast<uint64_t>(last);
  return true;
}

enum class When { kNow, kLater };

// Known to CUDA as a whole; later also memory that an allocation node will have made.
bool known(const CopySide& side, uint64_t bytes, When when) {
  AllocationMap& allocations = Driver::get().allocations();
  return allocations.covered(side.base, bytes) ||
         (when == When::kLater && allocations.covered_later(side.base, bytes));
}

// Host memory that CUDA knows.
bool is_known_host(const CopySide& side) {
  if (side.where == CopySide::Where::kArray) return false;
  const auto found = Driver::get().allocations().find(side.base);
  return found && found->is_host();
}

// Host memory that was registered as read-only. What a GPU does with copies to it was not seen.
bool is_read_only(const CopySide& side) {
  if (side.where == CopySide::Where::kArray) return false;
  const auto found = Driver::get().allocations().find(side.base);
  return found && found->kind == Allocation::Kind::kRegistered && found->writable == 0;
}

// One row, of which a sparse array may have only parts.
void copy_row(const Copy& copy, uint64_t to, uint64_t from) {
  for (uint64_t done = 0; done < copy.width;) {
    uint64_t run = copy.width - done;
    if (copy.to.tiles != nullptr) run = std::min(run, copy.to.tiles->run(to + done));
    if (copy.from.tiles != nullptr) run = std::min(run, copy.from.tiles->run(from + done));
    const auto place = [done](const CopySide& side, uint64_t row) {
      return side.tiles != nullptr ? side.tiles->at(row + done)
                                   : reinterpret_cast<uint8_t*>(row + done);
    };
    uint8_t* const target = place(copy.to, to);
    const uint8_t* const source = place(copy.from, from);
    if (target != nullptr && source != nullptr) std::memmove(target, source, run);
    if (target != nullptr && source == nullptr) std::memset(target, 0, run);
    done += run;
  }
}

void copy_rows(const Copy& copy) {
  if (copy.to.tiles != nullptr || copy.from.tiles != nullptr) {
    for (uint64_t z = 0; z < copy.depth; ++z) {
      for (uint64_t y = 0; y < copy.height; ++y)
        copy_row(copy, copy.to.base + z * copy.to.slice + y * copy.to.pitch,
                 copy.from.base + z * copy.from.slice + y * copy.from.pitch);
    }
    return;
  }
  const bool packed = copy.to.pitch == copy.width && copy.from.pitch == copy.width;
  const uint64_t slice = copy.width * copy.height;
  for (uint64_t z = 0; z < copy.depth; ++z) {
    const uint64_t to = copy.to.base + z * copy.to.slice,
                   from = copy.from.base + z * copy.from.slice;
    if (packed || copy.height == 1) {
      std::memmove(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), slice);
      continue;
    }
    for (uint64_t y = 0; y < copy.height; ++y) {
      std::memmove(reinterpret_cast<void*>(to + y * copy.to.pitch),
                   reinterpret_cast<const void*>(from + y * copy.from.pitch), copy.width);
    }
  }
}

CUresult check_side(const CopySide& side, const Copy& copy, bool* pageable,
                    When when = When::kNow) {
  if (side.where == CopySide::Where::kArray) return CUDA_SUCCESS;
  if (side.pitch < copy.width) return CUDA_ERROR_INVALID_VALUE;
  uint64_t bytes = 0;
  if (side.base == 0 || !extent(side, copy, &bytes)) return CUDA_ERROR_INVALID_VALUE;
  const bool is_known = known(side, bytes, when);
  if (side.where == CopySide::Where::kDevice && !is_known) return CUDA_ERROR_INVALID_VALUE;
  // Partly known memory is an overrun of an allocation, unless it is plain host memory next to a
  // registered piece.
  if (side.where == CopySide::Where::kUnified && !is_known) {
    const auto first = Driver::get().allocations().find(side.base);
    if (first && !first->is_host()) return CUDA_ERROR_INVALID_VALUE;
  }
  *pageable = !is_known;
  return CUDA_SUCCESS;
}

CUmemorytype type_of(CopySide::Where where) {
  switch (where) {
    case CopySide::Where::kHost:
      return CU_MEMORYTYPE_HOST;
    case CopySide::Where::kDevice:
      return CU_MEMORYTYPE_DEVICE;
    case CopySide::Where::kArray:
      return CU_MEMORYTYPE_ARRAY;
    case CopySide::Where::kUnified:
      break;
  }
  return CU_MEMORYTYPE_UNIFIED;
}

// The copy as a node of a graph that is being captured.
CUDA_MEMCPY_NODE_PARAMS node_params(const Context& context, const Copy& copy) {
  CUDA_MEMCPY_NODE_PARAMS params{};
  params.copyCtx = context.handle();
  CUDA_MEMCPY3D& out = params.copyParams;
  if (copy.described) {
    out = *copy.described;
    return params;
  }
  out.WidthInBytes = copy.width;
  out.Height = copy.height;
  out.Depth = copy.depth;
  const auto rows = [&copy](const CopySide& side) {
    return copy.depth > 1 && side.pitch != 0 ? side.slice / side.pitch : 0;
  };
  out.srcMemoryType = type_of(copy.from.where);
  out.dstMemoryType = type_of(copy.to.where);
  out.srcHost = reinterpret_cast<const void*>(copy.from.base);
  out.dstHost = reinterpret_cast<void*>(copy.to.base);
  if (copy.from.where != CopySide::Where::kHost) out.srcDevice = copy.from.base, out.srcHost = {};
  if (copy.to.where != CopySide::Where::kHost) out.dstDevice = copy.to.base, out.dstHost = {};
  out.srcPitch = copy.from.pitch;
  out.dstPitch = copy.to.pitch;
  out.srcHeight = rows(copy.from);
  out.dstHeight = rows(copy.to);
  // One row has no pitch.
  if (copy.height == 1 && copy.depth == 1) out.srcPitch = out.dstPitch = 0;
  if (copy.from.where == CopySide::Where::kArray) {
    out.srcDevice = 0, out.srcPitch = out.srcHeight = 0, out.srcArray = copy.from.handle;
    out.srcXInBytes = copy.from.x, out.srcY = copy.from.y, out.srcZ = copy.from.z;
  }
  if (copy.to.where == CopySide::Where::kArray) {
    out.dstDevice = 0, out.dstPitch = out.dstHeight = 0, out.dstArray = copy.to.handle;
    out.dstXInBytes = copy.to.x, out.dstY = copy.to.y, out.dstZ = copy.to.z;
  }
  return params;
}

// The bytes of the source, taken now, as the new source.
std::shared_ptr<std::vector<std::byte>> stage(Copy* copy) {
  auto bytes = std::make_shared<std::vector<std::byte>>(copy->width * copy->height * copy->depth);
  Copy taking = *copy;
  taking.to = {CopySide::Where::kHost, reinterpret_cast<uint64_t>(bytes->data()), copy->width,
               copy->width * copy->height, nullptr};
  copy_rows(taking);
  copy->from = taking.to;
  return bytes;
}

template <typename T>
void fill_rows(const Fill& fill) {
  for (uint64_t y = 0; y < fill.height; ++y) {
    auto* row = reinterpret_cast<T*>(fill.base + y * fill.pitch);
    std::fill_n(row, fill.width, static_cast<T>(fill.value));
  }
}

// The memory of a fill as one side of a copy. CUDA_ERROR_INVALID_VALUE: it overflows, or is not
// aligned to the elements.
CUresult area_of(const Fill& fill, Copy* area) {
  if (fill.width > UINT64_MAX / fill.element) return CUDA_ERROR_INVALID_VALUE;
  area->width = fill.width * fill.element;
  area->height = fill.height;
  // The pitch of a single row does not matter.
  area->to = {CopySide::Where::kDevice, fill.base, fill.height > 1 ? fill.pitch : area->width, 0,
              nullptr};
  const bool aligned =
      fill.base % fill.element == 0 && (fill.height <= 1 || fill.pitch % fill.element == 0);
  return aligned ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

ChannelKind channel_of(const Copy& copy) {
  if (is_known_host(copy.to)) return ChannelKind::kToHost;
  return is_known_host(copy.from) ? ChannelKind::kToDevice : ChannelKind::kCompute;
}

}  // namespace

void run_fill(const Fill& fill) {
  switch (fill.element) {
    case 1:
      fill_rows<uint8_t>(fill);
      break;
    case 2:
      fill_rows<uint16_t>(fill);
      break;
    default:
      fill_rows<uint32_t>(fill);
      break;
  }
}

CUresult check_fill(const Fill& fill) {
  Copy area;
  bool pageable = false;
  const CUresult result = area_of(fill, &area);
  return result == CUDA_SUCCESS ? check_side(area.to, area, &pageable, When::kLater) : result;
}

CUresult check_copy(const Copy& copy) {
  if (copy.empty()) return CUDA_SUCCESS;
  bool pageable = false;
  const CUresult result = check_side(copy.from, copy, &pageable, When::kLater);
  return result == CUDA_SUCCESS ? check_side(copy.to, copy, &pageable, When::kLater) : result;
}

bool launch_waits_for(const Copy& copy) {
  if (copy.empty() || copy.to.where == CopySide::Where::kArray) return false;
  bool from_pageable = false, to_pageable = false;
  if (check_side(copy.from, copy, &from_pageable) != CUDA_SUCCESS ||
      check_side(copy.to, copy, &to_pageable) != CUDA_SUCCESS)
    return false;
  const bool from_host = from_pageable || is_known_host(copy.from);
  return to_pageable || (from_host && is_known_host(copy.to));
}

void run_copy(const Copy& copy) {
  if (!copy.empty()) copy_rows(copy);
}

CUresult submit_copy(Context& context, const std::shared_ptr<Stream>& stream, Copy copy,
                     bool synchronous) {
  if (copy.empty()) return CUDA_SUCCESS;
  const auto captured = capture_node(context, stream, CU_GRAPH_NODE_TYPE_MEMCPY, [&](auto& params) {
    params.memcpy = node_params(context, copy);
  });
  if (captured) return *captured;
  bool from_pageable = false, to_pageable = false;
  if (CUresult result = check_side(copy.from, copy, &from_pageable); result != CUDA_SUCCESS)
    return result;
  if (CUresult result = check_side(copy.to, copy, &to_pageable); result != CUDA_SUCCESS)
    return result;
  if (is_read_only(copy.to)) return CUDA_ERROR_INVALID_VALUE;
  const bool touches_host = !copy.from.on_device() || !copy.to.on_device();
  const bool from_host = from_pageable || is_known_host(copy.from);
  const bool between_host = from_host && is_known_host(copy.to);
  if (to_pageable || between_host || (synchronous && touches_host)) {
    const auto held_off =
        to_pageable ? context.hold_functions_off() : std::shared_lock<std::shared_mutex>();
    context.submit_and_wait(stream, [&context, &copy] {
      if (context.error() == CUDA_SUCCESS) copy_rows(copy);
    });
    context.output().flush();
    return context.error();
  }
  std::shared_ptr<std::vector<std::byte>> staged;
  // Up to here a driver takes the bytes into its queue. Those of pinned memory, too, if the stream
  // has no work of its own: work of other streams that it follows by itself does not count.
  constexpr size_t kMostInQueue = 64u << 10, kBeside = 393;
  const bool reads_now = from_host && copy.width * copy.height * copy.depth <= kMostInQueue &&
                         !context.has_own_work(*stream);
  if (from_pageable || reads_now || (copy.take_source && from_host)) staged = stage(&copy);
  const bool in_queue = staged && staged->size() <= kMostInQueue;
  context.submit_to_device(
      stream,
      [owner = context.shared_from_this(), copy, staged] {
        if (owner->error() == CUDA_SUCCESS) copy_rows(copy);
      },
      in_queue ? staged->size() + kBeside : 0, in_queue ? ChannelKind::kCompute : channel_of(copy));
  return CUDA_SUCCESS;
}

CUresult submit_fill(Context& context, const std::shared_ptr<Stream>& stream, const Fill& fill,
                     bool synchronous) {
  if (fill.width == 0 || fill.height == 0) return CUDA_SUCCESS;
  const auto captured = capture_node(context, stream, CU_GRAPH_NODE_TYPE_MEMSET, [&](auto& params) {
    params.memset = {fill.base,  fill.pitch,  fill.value,      fill.element,
                     fill.width, fill.height, context.handle()};
  });
  if (captured) return *captured;
  Copy area;
  if (CUresult result = area_of(fill, &area); result != CUDA_SUCCESS) return result;
  bool pageable = false;
  if (CUresult result = check_side(area.to, area, &pageable); result != CUDA_SUCCESS) return result;
  const auto found = Driver::get().allocations().find(fill.base);
  auto work = [owner = context.shared_from_this(), fill] {
    if (owner->error() == CUDA_SUCCESS) run_fill(fill);
  };
  // Filling device memory returns at once even in its synchronous form; filling pinned host memory
  // or managed memory does not.
  const bool seen_by_host =
      found && (found->is_host() || found->kind == Allocation::Kind::kManaged);
  if (!synchronous || !seen_by_host) {
    context.submit_to_device(stream, std::move(work));
    return CUDA_SUCCESS;
  }
  context.submit_and_wait(stream, std::move(work));
  return context.error();
}

}  // namespace fargpu::sim
