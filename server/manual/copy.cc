// Copies between host and device: the two internal calls that every host copy of the application becomes.
#include "generated/schema/internal.capnp.h"

#include <limits>
#include <memory>

#include "server/manual/manual.h"
#include "server/staging.h"

namespace fargpu::server {
namespace {

struct Shape {
  size_t pitch, slice_pitch, width, height, depth;
};

// The rows fill exactly `bytes` on the host side, and the device side's extent is representable.
bool is_consistent(const Shape& shape, uint64_t bytes) {
  uint64_t packed = 0;
  uint64_t extent = 0;
  if (shape.width == 0 || shape.height == 0 || shape.depth == 0) return bytes == 0;
  if (__builtin_mul_overflow(shape.width, shape.height, &packed) ||
      __builtin_mul_overflow(packed, shape.depth, &packed) || packed != bytes) {
    return false;
  }
  if (shape.height > 1 && shape.pitch < shape.width) return false;
  return !__builtin_mul_overflow(shape.slice_pitch, shape.depth - 1, &extent) &&
         !__builtin_mul_overflow(shape.pitch, shape.height - 1, &extent);
}

// One driver call for each slice, or one for all when the rows are contiguous.
CUresult copy_slices(Worker& worker, const Shape& shape, CUdeviceptr device, std::byte* host, bool to_device,
                     CUstream stream) {
  const DriverTable& driver = worker.driver();
  if (shape.width == 0 || shape.height == 0 || shape.depth == 0) return CUDA_SUCCESS;
  for (size_t slice = 0; slice < shape.depth; ++slice) {
    const CUdeviceptr on_device = device + slice * shape.slice_pitch;
    std::byte* const on_host = host + slice * shape.width * shape.height;
    CUresult result = CUDA_SUCCESS;
    if (shape.height == 1 || shape.pitch == shape.width) {
      const size_t bytes = shape.width * shape.height;
      result = to_device ? driver.cuMemcpyHtoDAsync_v2(on_device, on_host, bytes, stream)
                         : driver.cuMemcpyDtoHAsync_v2(on_host, on_device, bytes, stream);
    } else {
      CUDA_MEMCPY2D copy{};
      copy.WidthInBytes = shape.width;
      copy.Height = shape.height;
      if (to_device) {
        copy.srcMemoryType = CU_MEMORYTYPE_HOST;
        copy.srcHost = on_host;
        copy.srcPitch = shape.width;
        copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
        copy.dstDevice = on_device;
        copy.dstPitch = shape.pitch;
      } else {
        copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
        copy.srcDevice = on_device;
        copy.srcPitch = shape.pitch;
        copy.dstMemoryType = CU_MEMORYTYPE_HOST;
        copy.dstHost = on_host;
        copy.dstPitch = shape.width;
      }
      result = driver.cuMemcpy2DAsync_v2(&copy, stream);
    }
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

}  // namespace

Status manual_fgCopyToDevice(Worker& worker, const Request& request) {
  return decoded("fgCopyToDevice", [&]() -> Status {
    wire::SegmentReader reader(request.body);
    const auto params = reader.getRoot<schema::FgCopyToDeviceParams>();
    const Shape shape{params.getPitch(), params.getSlicePitch(), params.getWidthBytes(), params.getHeight(),
                      params.getDepth()};
    if (params.getSrcBytes() != request.bulk.size() || !is_consistent(shape, request.bulk.size())) {
      return malformed("fgCopyToDevice", "the rows do not fill the bytes that came");
    }
    FARGPU_ANSWER_UNLESS_SUCCESS(worker.enter_context(request.header.context));
    CUstream stream = nullptr;
    FARGPU_ANSWER_UNLESS_SUCCESS(find_handle(worker, rpc::HandleKind::kStream, params.getStream(), &stream));
    const CUresult result = copy_slices(worker, shape, params.getDst(), request.bulk.data(), true, stream);
    StagingBlock bulk = worker.services().take_bulk();
    if (bulk.pinned()) {
      // The copy engine reads the block until the stream gets there, also when a later slice was refused.
      auto block = std::make_shared<StagingBlock>(std::move(bulk));
      worker.services().completion().when_reached(request.header.context, stream, [block](CUresult) {});
    }
    return answer(worker, request, result);
  });
}

Status manual_fgCopyToHost(Worker& worker, const Request& request) {
  return decoded("fgCopyToHost", [&]() -> Status {
    wire::SegmentReader reader(request.body);
    const auto params = reader.getRoot<schema::FgCopyToHostParams>();
    const Shape shape{params.getPitch(), params.getSlicePitch(), params.getWidthBytes(), params.getHeight(),
                      params.getDepth()};
    if (!is_consistent(shape, params.getDstBytes())) {
      return malformed("fgCopyToHost", "the rows do not fill the bytes that are asked for");
    }
    if (params.getDstBytes() > worker.services().max_bulk_bytes()) {
      return malformed("fgCopyToHost", "more bytes are asked for than one frame may bring");
    }
    FARGPU_ANSWER_UNLESS_SUCCESS(worker.enter_context(request.header.context));
    CUstream stream = nullptr;
    FARGPU_ANSWER_UNLESS_SUCCESS(find_handle(worker, rpc::HandleKind::kStream, params.getStream(), &stream));
    Result<StagingBlock> acquired = worker.services().staging().acquire(params.getDstBytes(), StagingUse::kFromDevice);
    if (!acquired.ok()) return answer(worker, request, CUDA_ERROR_OUT_OF_MEMORY);
    auto block = std::make_shared<StagingBlock>(std::move(*acquired));
    const CUresult started = copy_slices(worker, shape, params.getSrc(), block->bytes().data(), false, stream);
    const LaterReply later(worker, request);
    worker.services().completion().when_reached(
        request.header.context, stream, [later, block, started](CUresult reached) {
          const CUresult result = started != CUDA_SUCCESS ? started : reached;
          if (result != CUDA_SUCCESS) {
            later.send_synchronised(result);
            return;
          }
          (void)later.worker().services().flush_output();
          rpc::Responder::Frame frame(later.worker().responder(), later.header(), 0);
          const std::span<const std::byte> bulk[] = {block->bytes()};
          (void)frame.send(CUDA_SUCCESS, bulk);
        });
    return Status();
  });
}

}  // namespace fargpu::server
