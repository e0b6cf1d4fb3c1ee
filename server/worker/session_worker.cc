#include "server/worker/session_worker.h"

#include <kj/exception.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "common/wire/control.h"
#include "common/wire/slot_message.h"
#include "generated/schema/control.capnp.h"
#include "generated/schema/internal.capnp.h"
#include "generated/server/driver_table.h"

namespace fargpu::server {

using rpc::HandleKind;

SessionWorker::SessionWorker(const DriverTable& driver, transport::Transport& transport,
                             SessionStatistics& statistics, CapturedOutput& output,
                             const WorkerSetup& setup)
    : driver_(driver),
      transport_(transport),
      statistics_(statistics),
      output_(output),
      setup_(setup),
      responder_(transport),
      ledger_(setup.devices, setup.memory_bytes, setup.job_memory),
      images_(setup.image_folder, setup.image_cache_bytes),
      remote_staging_(transport.remote_memory()),
      staging_(&driver),
      direct_memory_(driver, transport.remote_memory(), setup.direct),
      host_pages_(driver),
      shared_host_(driver),
      copy_fences_(driver),
      ordered_copies_(*this),
      event_waits_(*this),
      host_gate_(*this),
      completion_(*this) {
  handles_.when_removed([this](uint64_t id) { parameter_layouts_.forget(id); });
  staging_.before_unmap([this](std::byte* memory) { remote_staging_.forget(memory); });
  staging_.on_retire([this](StagingRegistration taken) {
    // The driver waits for what runs before it lets go of memory.
    const auto registration = std::make_shared<StagingRegistration>(std::move(taken));
    completion_.aside_when_idle(
        registration->context(), [registration] { return registration->undo(); },
        [registration](CUresult) {});
  });
  responder_.call_first([this] { ordered_copies_.flush(); });
}

SessionWorker::~SessionWorker() {
  host_gate_.close();
  ordered_copies_.close();
  stream_holds_.close();
}

CUresult SessionWorker::enter_context(uint16_t context) {
  if (context == 0 || context == current_) return CUDA_SUCCESS;
  const ContextTable::Entry* entry = contexts_.find(context);
  if (entry == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (const CUresult result = driver_.cuCtxSetCurrent(entry->handle); result != CUDA_SUCCESS)
    return result;
  current_ = context;
  current_device_ = static_cast<size_t>(entry->device);
  return CUDA_SUCCESS;
}

CUresult SessionWorker::find(HandleKind kind, uint64_t id, void** handle) {
  *handle = nullptr;
  if (kind == HandleKind::kStream) {
    CopyFences::Stream stream;
    if (const CUresult result = look_up_stream(id, &stream); result != CUDA_SUCCESS) return result;
    *handle = stream.handle;
    return copy_fences_.before_work(stream);
  }
  if (id == 0) return CUDA_SUCCESS;
  if (kind == HandleKind::kContext) {
    const ContextTable::Entry* entry =
        id > UINT16_MAX ? nullptr : contexts_.find(static_cast<uint16_t>(id));
    if (entry == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    *handle = entry->handle;
    return CUDA_SUCCESS;
  }
  if (kind == HandleKind::kFunction && rpc::handle_kind(id) == HandleKind::kKernel)
    kind = HandleKind::kKernel;
  return handles_.find(kind, id, handle);
}

CUresult SessionWorker::look_up_stream(uint64_t id, CopyFences::Stream* stream) const {
  if (id <= 2) {
    *stream = {id, current_, reinterpret_cast<CUstream>(id)};
    return CUDA_SUCCESS;
  }
  const HandleTable::Entry* entry =
      rpc::handle_kind(id) == HandleKind::kStream ? handles_.find(id) : nullptr;
  if (entry == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *stream = {id, entry->context, static_cast<CUstream>(entry->handle)};
  return CUDA_SUCCESS;
}

CUresult SessionWorker::add(HandleKind kind, uint64_t id, void* handle, uint16_t context) {
  return handles_.add(kind, id, {handle, 0, context});
}

void SessionWorker::remove(uint64_t id) {
  if (rpc::handle_kind(id) == HandleKind::kStream) ordered_copies_.forget_stream(id);
  handles_.remove(id);
  if (rpc::handle_kind(id) == HandleKind::kStream) copy_fences_.forget_stream(id);
}

CUresult SessionWorker::charge(uint64_t bytes) { return ledger_.charge(current_device_, bytes); }

void SessionWorker::refund(uint64_t bytes) { ledger_.refund(current_device_, bytes); }

void SessionWorker::remember_allocation(CUdeviceptr pointer, uint64_t bytes) {
  direct_memory_.forget(pointer, bytes);  // what was there may have gone without our notice
  ledger_.remember(pointer, bytes, current_device_, current_);
  publish_memory();
}

void SessionWorker::forget_allocation(CUdeviceptr pointer) {
  if (const auto gone = ledger_.find(pointer, 1)) direct_memory_.forget(gone->base, gone->bytes);
  ledger_.forget(pointer);
  publish_memory();
}

CUresult SessionWorker::charge_device(CUdevice device, uint64_t bytes) {
  if (device < 0) return CUDA_ERROR_INVALID_DEVICE;
  const CUresult result = ledger_.charge(static_cast<size_t>(device), bytes);
  publish_memory();
  return result;
}

void SessionWorker::refund_device(size_t device, uint64_t bytes) {
  ledger_.refund(device, bytes);
  publish_memory();
}

void SessionWorker::remember_pool_memory(CUdeviceptr pointer, uint64_t bytes, CUdevice device) {
  direct_memory_.forget(pointer, bytes);
  ledger_.remember(pointer, bytes, static_cast<size_t>(device), 0);
  publish_memory();
}

void SessionWorker::end_free(Ledger::FreeId id, CUdeviceptr pointer, bool freed) {
  ledger_.end_free(id, pointer, freed);
  publish_memory();
}

CUresult SessionWorker::add_pool(uint64_t id, CUmemoryPool pool, CUdevice device) {
  return handles_.add(HandleKind::kMemPool, id, {pool, 0, 0, static_cast<uint16_t>(device)});
}

CUdevice SessionWorker::device_of_pool(uint64_t id) const {
  const HandleTable::Entry* entry = handles_.find(id);
  return entry == nullptr ? 0 : entry->device;
}

CUdevice SessionWorker::device_of_context(uint16_t id) {
  const ContextTable::Entry* entry = contexts_.find(id);
  return entry == nullptr ? 0 : entry->device;
}

void SessionWorker::publish_memory() {
  statistics_.memory_used_bytes.store(ledger_.used_everywhere(), std::memory_order_relaxed);
}

CUresult SessionWorker::bind_context(uint16_t id, CUcontext context, CUdevice device) {
  if (id == 0 || contexts_.add(id, context, device) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // Making a context leaves it current in the driver, whatever was entered before.
  current_ = 0;
  return enter_context(id);
}

CUresult SessionWorker::borrow_context() {
  if (borrowed_ == nullptr) {
    if (const CUresult result = driver_.cuDevicePrimaryCtxRetain(&borrowed_, 0);
        result != CUDA_SUCCESS)
      return result;
  }
  current_ = 0;
  current_device_ = 0;
  return driver_.cuCtxSetCurrent(borrowed_);
}

void SessionWorker::return_borrowed_context() {
  if (std::exchange(borrowed_, nullptr) != nullptr) driver_.cuDevicePrimaryCtxRelease_v2(0);
}

CUcontext SessionWorker::find_context(uint16_t id) {
  const ContextTable::Entry* entry = contexts_.find(id);
  return entry == nullptr ? nullptr : entry->handle;
}

void SessionWorker::unbind_context(uint16_t id) {
  handles_.remove_context(id);
  direct_memory_.forget_context(id);
  ledger_.forget_context(id);
  contexts_.remove(id);
  current_ = 0;
  publish_memory();
}

Result<Image> SessionWorker::find_image(std::span<const std::byte> hash) {
  if (hash.size() == sizeof(Sha256Digest)) {
    Sha256Digest digest;
    std::memcpy(digest.data(), hash.data(), sizeof(digest));
    if (std::optional<Image> image = images_.get(digest)) return std::move(*image);
  }
  return Status(StatusCode::kNotFound, "the image is not in the cache");
}

void SessionWorker::post(std::function<void()> task) {
  {
    std::lock_guard lock(posted_mutex_);
    posted_.push_back(std::move(task));
    any_posted_.store(true, std::memory_order_relaxed);
  }
  transport_.wake();
}

Status SessionWorker::describe(const wire::FrameHeader& request) {
  constexpr size_t kMostWaits = 16;
  const size_t waits = std::min(kMostWaits, pending_.size());
  rpc::Responder::Frame frame(responder_, request, 1024);
  auto inspection = frame.init<schema::Inspection>();
  inspection.setHostFunctions(static_cast<uint32_t>(host_gate_.waiting()));
  inspection.setHelperCalls(static_cast<uint32_t>(completion_.calls_under_way()));
  auto list = inspection.initWaits(static_cast<unsigned>(waits));
  auto entry = pending_.entries().begin();
  for (unsigned i = 0; i < waits; ++i, ++entry) {
    list[i].setOpcode(entry->opcode);
    list[i].setSeconds(
        std::chrono::duration<double>(PendingList::Clock::now() - entry->since).count());
  }
  return frame.send(CUDA_SUCCESS);
}

size_t SessionWorker::poll() {
  std::vector<std::function<void()>> posted;
  {
    std::lock_guard lock(posted_mutex_);
    posted.swap(posted_);
    any_posted_.store(false, std::memory_order_relaxed);
  }
  for (const std::function<void()>& task : posted) task();
  if (host_gate_.next_look() != transport::kNoDeadline) host_gate_.look();
  copy_fences_.poll();
  return posted.size() + pending_.poll() + ordered_copies_.poll();
}

Result<std::span<std::byte>> SessionWorker::receive_bulk(uint64_t bytes, uint16_t context) {
  if (enter_context(context) != CUDA_SUCCESS) context = 0;
  FARGPU_ASSIGN_OR_RETURN(bulk_, staging_.acquire(bytes, StagingUse::kToDevice, context));
  return bulk_.bytes();
}

Result<std::span<std::byte>> SessionWorker::receive_fetched(std::span<const std::byte> body,
                                                            uint64_t bytes) {
  try {
    wire::SegmentReader reader(body);
    const auto params = reader.getRoot<schema::FgFetchedParams>();
    FARGPU_ASSIGN_OR_RETURN(const std::span<std::byte> target,
                            ordered_copies_.target(params.getId(), params.getOffset(), bytes));
    return target.empty() ? receive_bulk(bytes, 0) : target;
  } catch (const kj::Exception& error) {
    return Status(StatusCode::kProtocol,
                  std::string("fgFetched: ") + error.getDescription().cStr());
  }
}

// Asking whether there is anything costs a system call, and hardly anything ever comes to stderr
// but what goes with an error: in between it is enough to look now and then.
Status SessionWorker::flush_output() {
  constexpr auto kNowAndThen = std::chrono::milliseconds(100);
  ordered_copies_.flush();
  FARGPU_RETURN_IF_ERROR(send_output(output_.out, wire::kOutput));
  const auto now = transport::Clock::now();
  if (now - errors_looked_at_ < kNowAndThen) return Status();
  errors_looked_at_ = now;
  return send_output(output_.err, wire::kErrorOutput);
}

// A transport that fails is noticed by the executor.
void SessionWorker::before_error() {
  (void)send_output(output_.out, wire::kOutput);
  (void)send_output(output_.err, wire::kErrorOutput);
}

Status SessionWorker::send_output(OutputCapture& capture, uint16_t opcode) {
  const size_t limit = std::min<uint64_t>(setup_.client_limits.max_bulk_bytes, 1u << 20);
  while (true) {
    const std::vector<std::byte> bytes = capture.take(limit);
    if (bytes.empty()) return Status();
    const std::span<const std::byte> piece(bytes);
    ++outputs_sent_;
    FARGPU_RETURN_IF_ERROR(
        rpc::Responder::Frame(responder_, opcode, 0).send(0, std::span(&piece, 1)));
  }
}

}  // namespace fargpu::server
