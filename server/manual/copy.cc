// Copies between host and device: the internal calls that every host copy of the application
// becomes.
#include <limits>
#include <memory>

#include "common/rpc/completion_word.h"
#include "common/rpc/copy_order.h"
#include "generated/schema/internal.capnp.h"
#include "server/manual/manual.h"
#include "server/memory/copy_shape.h"
#include "server/memory/shared_host.h"
#include "server/memory/staging.h"
#include "server/stream/copy_fences.h"
#include "server/stream/host_gate.h"

namespace fargpu::server {

CUresult order_copy(Worker& worker, int order, uint64_t id) {
  if (order == static_cast<int>(rpc::CopyOrder::kStream)) return CUDA_SUCCESS;
  CopyFences& fences = worker.parts().copy_fences;
  // What the application submits to let the stream go on must not wait for the stream.
  if (fences.held() || worker.parts().host_gate.outstanding()) return CUDA_SUCCESS;
  CopyFences::Stream stream;
  if (const CUresult result = worker.parts().core.find_stream(id, &stream);
      result != CUDA_SUCCESS) {
    return result;
  }
  return fences.add(stream, order == static_cast<int>(rpc::CopyOrder::kReturned));
}

namespace {

// One side of a copy of which both sides have rows of their own.
struct Place {
  uint64_t address, pitch, slice_pitch;
};

struct SharedCopy {
  bool to_device;
  Place host, device;
  uint64_t width, height, depth;

  bool empty() const { return width == 0 || height == 0 || depth == 0; }
};

// How many bytes of the place the copy spans; 0: rows or slices overlap, the slice pitch is not
// whole rows, or it is not representable.
uint64_t span_of(const SharedCopy& copy, const Place& place) {
  uint64_t rows = 0, slice = 0, slices = 0, span = 0;
  if (__builtin_mul_overflow(place.pitch, copy.height - 1, &rows) ||
      __builtin_add_overflow(rows, copy.width, &slice))
    return 0;
  if (copy.height > 1 && place.pitch < copy.width) return 0;
  if (copy.depth > 1 &&
      (place.pitch == 0 || place.slice_pitch % place.pitch != 0 || place.slice_pitch < slice))
    return 0;
  if (__builtin_mul_overflow(place.slice_pitch, copy.depth - 1, &slices) ||
      __builtin_add_overflow(slices, slice, &span))
    return 0;
  return span;
}

bool is_dense(const SharedCopy& copy, const Place& place) {
  const bool rows = copy.height == 1 || place.pitch == copy.width;
  return rows && (copy.depth == 1 || place.slice_pitch == copy.width * copy.height);
}

CUresult start_flat(const DriverTable& driver, const SharedCopy& copy, CUstream stream) {
  const size_t bytes = copy.width * copy.height * copy.depth;
  void* const host = reinterpret_cast<void*>(copy.host.address);
  return copy.to_device ? driver.cuMemcpyHtoDAsync_v2(copy.device.address, host, bytes, stream)
                        : driver.cuMemcpyDtoHAsync_v2(host, copy.device.address, bytes, stream);
}

CUresult start_box(const DriverTable& driver, const SharedCopy& copy, CUstream stream) {
  void* const host = reinterpret_cast<void*>(copy.host.address);
  CUDA_MEMCPY3D box{};
  box.WidthInBytes = copy.width;
  box.Height = copy.height;
  box.Depth = copy.depth;
  const auto rows_of = [&copy](const Place& place) {
    return copy.depth == 1 ? copy.height : static_cast<size_t>(place.slice_pitch / place.pitch);
  };
  const auto pitch_of = [&copy](const Place& place) {
    return copy.height == 1 && copy.depth == 1 ? copy.width : place.pitch;
  };
  const Place& from = copy.to_device ? copy.host : copy.device;
  const Place& to = copy.to_device ? copy.device : copy.host;
  box.srcPitch = pitch_of(from);
  box.srcHeight = rows_of(from);
  box.dstPitch = pitch_of(to);
  box.dstHeight = rows_of(to);
  if (copy.to_device) {
    box.srcMemoryType = CU_MEMORYTYPE_HOST;
    box.srcHost = host;
    box.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    box.dstDevice = copy.device.address;
  } else {
    box.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    box.srcDevice = copy.device.address;
    box.dstMemoryType = CU_MEMORYTYPE_HOST;
    box.dstHost = host;
  }
  return driver.cuMemcpy3DAsync_v2(&box, stream);
}

// Starts the copy straight from or to the client's memory. CUDA_ERROR_INVALID_VALUE: the host side
// is not inside one shared mapping.
CUresult start_shared(Worker& worker, const SharedCopy& copy, CUstream stream) {
  if (copy.empty()) return CUDA_SUCCESS;
  const uint64_t host_span = span_of(copy, copy.host);
  if (host_span == 0 || span_of(copy, copy.device) == 0) return CUDA_ERROR_INVALID_VALUE;
  if (worker.parts().shared_host.find(copy.host.address, host_span) == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  const DriverTable& driver = worker.driver();
  if (is_dense(copy, copy.host) && is_dense(copy, copy.device))
    return start_flat(driver, copy, stream);
  if (driver.cuMemcpy3DAsync_v2 == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  return start_box(driver, copy, stream);
}

template <typename Params>
SharedCopy read_copy(const Params& params) {
  return {params.getToDevice() != 0,
          {params.getHost(), params.getHostPitch(), params.getHostSlicePitch()},
          {params.getDevice(), params.getDevicePitch(), params.getDeviceSlicePitch()},
          params.getWidthBytes(),
          params.getHeight(),
          params.getDepth()};
}

}  // namespace

Status manual_fgCopyToDevice(Worker& worker, const Request& request) {
  return decoded("fgCopyToDevice", [&]() -> Status {
    wire::SegmentReader reader(request.body);
    const auto params = reader.getRoot<schema::FgCopyToDeviceParams>();
    const Shape shape{params.getPitch(), params.getSlicePitch(), params.getWidthBytes(),
                      params.getHeight(), params.getDepth()};
    if (params.getSrcBytes() != request.bulk.size() || !is_consistent(shape, request.bulk.size())) {
      return malformed("fgCopyToDevice", "the rows do not fill the bytes that came");
    }
    if (!rpc::is_copy_order(params.getOrder()))
      return malformed("fgCopyToDevice", "an order that does not exist");
    FARGPU_ANSWER_UNLESS_SUCCESS(worker.enter_context(request.header.context));
    CUstream stream = nullptr;
    FARGPU_ANSWER_UNLESS_SUCCESS(
        find_handle(worker, rpc::HandleKind::kStream, params.getStream(), &stream));
    CUresult result =
        copy_slices(worker.driver(), shape, params.getDst(), request.bulk.data(), true, stream);
    if (result == CUDA_SUCCESS) result = order_copy(worker, params.getOrder(), params.getStream());
    StagingBlock bulk = worker.parts().take_bulk();
    if (bulk.pinned()) {
      // The copy engine reads the block until the stream gets there, also when a later slice was
      // refused.
      auto block = std::make_shared<StagingBlock>(std::move(bulk));
      worker.parts().completion.when_reached(request.header.context, stream, [block](CUresult) {});
    }
    return answer(worker, request, result);
  });
}

Status manual_fgCopyToHost(Worker& worker, const Request& request) {
  return decoded("fgCopyToHost", [&]() -> Status {
    wire::SegmentReader reader(request.body);
    const auto params = reader.getRoot<schema::FgCopyToHostParams>();
    const Shape shape{params.getPitch(), params.getSlicePitch(), params.getWidthBytes(),
                      params.getHeight(), params.getDepth()};
    if (!is_consistent(shape, params.getDstBytes())) {
      return malformed("fgCopyToHost", "the rows do not fill the bytes that are asked for");
    }
    if (params.getDstBytes() > worker.parts().max_bulk_bytes) {
      return malformed("fgCopyToHost", "more bytes are asked for than one frame may bring");
    }
    FARGPU_ANSWER_UNLESS_SUCCESS(worker.enter_context(request.header.context));
    CUstream stream = nullptr;
    FARGPU_ANSWER_UNLESS_SUCCESS(
        find_handle(worker, rpc::HandleKind::kStream, params.getStream(), &stream));
    Result<StagingBlock> acquired = worker.parts().staging.acquire(
        params.getDstBytes(), StagingUse::kFromDevice, request.header.context);
    if (!acquired.ok()) return answer(worker, request, CUDA_ERROR_OUT_OF_MEMORY);
    auto block = std::make_shared<StagingBlock>(std::move(*acquired));
    const CUresult started =
        copy_slices(worker.driver(), shape, params.getSrc(), block->bytes().data(), false, stream);
    const LaterReply later(worker, request);
    worker.parts().completion.when_reached(
        request.header.context, stream, [later, block, started](CUresult reached) {
          const CUresult result = started != CUDA_SUCCESS ? started : reached;
          if (result != CUDA_SUCCESS) {
            later.send_synchronised(result);
            return;
          }
          (void)later.worker().parts().output.flush();
          rpc::Responder::Frame frame(later.worker().responder(), later.header(), 0);
          const std::span<const std::byte> bulk[] = {block->bytes()};
          (void)frame.send(CUDA_SUCCESS, bulk);
        });
    return Status();
  });
}

Status manual_fgCopyShared(Worker& worker, const Request& request) {
  return decoded("fgCopyShared", [&]() -> Status {
    wire::SegmentReader reader(request.body);
    const auto params = reader.getRoot<schema::FgCopySharedParams>();
    if (!rpc::is_copy_order(params.getOrder()))
      return malformed("fgCopyShared", "an order that does not exist");
    const uint64_t word_address = params.getWord(), value = params.getValue();
    SharedHost::Held mapping;
    if (word_address != 0) {
      mapping = worker.parts().shared_host.find(word_address, sizeof(rpc::CompletionWord));
      if (mapping == nullptr || word_address % alignof(rpc::CompletionWord) != 0)
        return answer(worker, request, CUDA_ERROR_INVALID_VALUE);
    }
    // From here on the client may be waiting for the word, so that every way out sets it.
    auto* const word = reinterpret_cast<rpc::CompletionWord*>(word_address);
    CUstream stream = nullptr;
    CUresult result = worker.enter_context(request.header.context);
    if (result == CUDA_SUCCESS)
      result = find_handle(worker, rpc::HandleKind::kStream, params.getStream(), &stream);
    if (result != CUDA_SUCCESS) {
      if (word != nullptr) rpc::publish(*word, value, result);
      return answer(worker, request, result);
    }
    const SharedCopy copy = read_copy(params);
    result = start_shared(worker, copy, stream);
    if (result == CUDA_SUCCESS && copy.to_device)
      result = order_copy(worker, params.getOrder(), params.getStream());
    if (word == nullptr) return answer(worker, request, result);
    const bool to_host = !copy.to_device;
    worker.parts().completion.when_reached(
        request.header.context, stream,
        [&worker, mapping, word, value, result, to_host](CUresult reached) {
          // Somebody waits for what is copied to the host: what device code printed goes first.
          if (to_host) (void)worker.parts().output.flush();
          if (reached != CUDA_SUCCESS) worker.before_error();
          rpc::publish(*word, value, result != CUDA_SUCCESS ? result : reached,
                       worker.parts().output.notices());
        });
    return answer(worker, request, copy.to_device ? result : CUDA_SUCCESS);
  });
}

Status manual_fgCopySharedWait(Worker& worker, const Request& request) {
  return decoded("fgCopySharedWait", [&]() -> Status {
    wire::SegmentReader reader(request.body);
    const auto params = reader.getRoot<schema::FgCopySharedWaitParams>();
    FARGPU_ANSWER_UNLESS_SUCCESS(worker.enter_context(request.header.context));
    CUstream stream = nullptr;
    FARGPU_ANSWER_UNLESS_SUCCESS(
        find_handle(worker, rpc::HandleKind::kStream, params.getStream(), &stream));
    FARGPU_ANSWER_UNLESS_SUCCESS(start_shared(worker, read_copy(params), stream));
    const LaterReply later(worker, request);
    worker.parts().completion.when_reached(
        request.header.context, stream,
        [later](CUresult reached) { later.send_synchronised(reached); });
    return Status();
  });
}

}  // namespace fargpu::server
