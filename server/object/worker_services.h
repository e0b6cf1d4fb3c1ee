// What hand-written server halves (server/manual/) need beyond Worker: contexts, images, staging,
// completion, output.
//
// All on the executor's thread, except post(). The worker implements it and owns every component;
// nothing here outlives the session.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "common/base/status.h"
#include "common/rpc/handle_kind.h"
#include "server/object/frame_stream.h"
#include "server/object/ledger.h"

namespace fargpu::transport {
class DescriptorPassing;
}

namespace fargpu::server {

class Completion;
class CopyFences;
class DirectMemory;
class EventWaits;
class HostGate;
class HostPages;
class Image;
class ImageCache;
class LinkTable;
class OrderedCopies;
class ParameterLayouts;
class PhysicalMemory;
class RemoteStaging;
class SharedHost;
class StagingBlock;
class StagingPool;
class StreamHolds;

class WorkerServices {
 public:
  virtual ~WorkerServices() = default;

  // As Worker::add(), for an object that goes together with `parent` (a function with its module).
  virtual CUresult add_child(rpc::HandleKind kind, uint64_t id, void* handle, uint16_t context,
                             uint64_t parent) = 0;

  // The object, which is there, has another driver handle from now on.
  virtual void replace_handle(uint64_t id, void* handle) = 0;
  // The context that the object was made in; 0: none, or there is no such object.
  virtual uint16_t context_of(uint64_t id) const = 0;

  // Contexts by the 16-bit id of frame headers. bind_context(): kInvalidArgument-like
  // CUDA_ERROR_INVALID_VALUE when the id is 0 or in use.
  virtual CUresult bind_context(uint16_t id, CUcontext context, CUdevice device) = 0;
  // nullptr for an unknown id.
  virtual CUcontext find_context(uint16_t id) = 0;
  // Forgets the context and every handle that was made in it; does not call the driver.
  virtual void unbind_context(uint16_t id) = 0;
  virtual std::vector<uint16_t> context_ids() const = 0;
  // The one that is current in the driver; 0: that is not known.
  virtual uint16_t current_context() const = 0;
  // The streams that were made in a context, by driver handle; valid until the next change.
  virtual std::span<void* const> streams_of(uint16_t context) const = 0;
  virtual int device_count() const = 0;
  // For questions that the driver answers only inside a context, before the client has one: makes
  // device 0's primary context current. It is held until the client retains it itself
  // (return_borrowed_context), so that it is made only once.
  virtual CUresult borrow_context() = 0;
  virtual void return_borrowed_context() = 0;

  // Images, content-addressed (image_cache.h).
  virtual ImageCache& images() = 0;
  // kNotFound: the client must bring it first.
  virtual Result<Image> find_image(std::span<const std::byte> hash) = 0;

  // The memory that holds the current request's bulk bytes; the handler may keep it as long as it
  // needs. Call at most once a request.
  virtual StagingBlock take_bulk() = 0;
  virtual StagingPool& staging() = 0;
  virtual Completion& completion() = 0;
  virtual EventWaits& event_waits() = 0;
  virtual CopyFences& copy_fences() = 0;
  // A stream that no work goes into: unlike Worker::find(), this leaves it as it is. The frame's
  // context must be current.
  virtual CUresult look_up_stream(uint64_t id, FrameStream* stream) const = 0;
  virtual HostGate& host_gate() = 0;
  virtual StreamHolds& stream_holds() = 0;
  virtual HostPages& host_pages() = 0;
  virtual OrderedCopies& ordered_copies() = 0;
  virtual SharedHost& shared_host() = 0;
  virtual RemoteStaging& remote_staging() = 0;
  virtual DirectMemory& direct_memory() = 0;
  // The allocation of the session that holds all of [address, address + bytes); nullopt: none does.
  virtual std::optional<Ledger::Place> find_allocation(CUdeviceptr address,
                                                       uint64_t bytes) const = 0;
  // Null where client and worker do not share a host.
  virtual transport::DescriptorPassing* descriptor_passing() = 0;
  virtual LinkTable& links() = 0;
  virtual PhysicalMemory& physical_memory() = 0;
  virtual ParameterLayouts& parameter_layouts() = 0;

  // Runs `task` on the executor's thread, soon. From any thread.
  virtual void post(std::function<void()> task) = 0;
  // Sends what the client must have before it learns how far the GPU is: bytes of copies to the
  // host that are done, and what device code printed so far. Before the reply of a synchronising
  // call.
  virtual Status flush_output() = 0;
  // How many notices with either the session has had.
  virtual uint32_t outputs_sent() const = 0;

  // The ledger, for memory of any device (Worker's functions are for that of the current context).
  // CUDA_ERROR_INVALID_DEVICE for a device that the session does not have.
  virtual CUresult charge_device(CUdevice device, uint64_t bytes) = 0;
  virtual void refund_device(size_t device, uint64_t bytes) = 0;
  // Memory of a pool, which outlives contexts; charged before.
  virtual void remember_pool_memory(CUdeviceptr pointer, uint64_t bytes, CUdevice device) = 0;
  // Around a free that another thread executes (ledger.h).
  virtual Ledger::FreeId begin_free(CUdeviceptr pointer) = 0;
  virtual void end_free(Ledger::FreeId id, CUdeviceptr pointer, bool freed) = 0;

  // As Worker::add(), for a memory pool of a device.
  virtual CUresult add_pool(uint64_t id, CUmemoryPool pool, CUdevice device) = 0;
  // The device of a live pool, that of a live context; 0 for others.
  virtual CUdevice device_of_pool(uint64_t id) const = 0;
  virtual CUdevice device_of_context(uint16_t id) = 0;

  // Bytes of device memory that the session's job may have per GPU (0: no limit) and has taken on
  // the current context's GPU.
  virtual uint64_t memory_limit() const = 0;
  virtual uint64_t memory_used() const = 0;
  // Most bulk bytes that one frame to the client may carry.
  virtual uint64_t max_bulk_bytes() const = 0;
};

}  // namespace fargpu::server
