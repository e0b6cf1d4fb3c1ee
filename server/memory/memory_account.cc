#include "server/memory/memory_account.h"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <utility>

#include "common/base/parse.h"
#include "generated/server/driver_table.h"

namespace fargpu::server {

CUresult MemoryAccount::charge(CUdevice device, uint64_t bytes) {
  if (device < 0) return CUDA_ERROR_INVALID_DEVICE;
  const auto index = static_cast<size_t>(device);
  CUresult result = ledger_.charge(index, bytes);
  if (result == CUDA_ERROR_OUT_OF_MEMORY && index < used_on_devices().size()) {
    // A driver without memory, too, takes what is kept.
    pools_.trim(index);
    settle(index);
    result = ledger_.charge(index, bytes);
  }
  if (result == CUDA_ERROR_OUT_OF_MEMORY && limit() != 0) refused_ = {index, bytes};
  publish();
  return result;
}

void MemoryAccount::settle(size_t device) {
  ledger_.settle(device, Ledger::Keeper::kPools, pools_.reserved(device));
  ledger_.settle(device, Ledger::Keeper::kGraphs, pools_.reserved_by_graphs(device));
  publish();
}

void MemoryAccount::settle_kept() {
  for (size_t device = 0; device < used_on_devices().size(); ++device)
    if (ledger_.kept(device) != 0) settle(device);
}

void MemoryAccount::look() {
  const auto now = std::chrono::steady_clock::now();
  if (now < next_look_) return;
  settle_kept();
  pause_ = std::min(2 * pause_, kLongestPause);
  next_look_ = ledger_.keeps() ? now + pause_ : std::chrono::steady_clock::time_point::max();
}

// What the worker writes there appears on the program's stderr, before the call with the error
// returns.
void MemoryAccount::tell_refusal() {
  const auto refused = std::exchange(refused_, std::nullopt);
  if (!refused || std::exchange(told_limit_, true)) return;
  const auto [device, bytes] = *refused;
  std::fprintf(
      stderr,
      "fargpu: out of memory by the job's limit, not the GPU's: %s of each GPU, of which %s "
      "are taken and %s were asked for; `fargpu run --memory` sets it\n",
      format_bytes(limit()).c_str(), format_bytes(ledger_.used_by_job(device)).c_str(),
      format_bytes(bytes).c_str());
}

CUresult MemoryAccount::charge(uint64_t bytes) {
  return charge(static_cast<CUdevice>(contexts_.current_device()), bytes);
}

void MemoryAccount::refund(size_t device, uint64_t bytes) {
  ledger_.refund(device, bytes);
  publish();
}

void MemoryAccount::refund(const PhysicalMemory::Refunds& refunds) {
  for (const PhysicalMemory::Refund& each : refunds) {
    const bool later = each.shared != 0 && shared_ended_ && shared_ended_(each);
    if (!later) refund(each.device, each.bytes);
  }
}

void MemoryAccount::take_over(uint64_t shared, size_t device, uint64_t bytes) {
  if (!physical_.take_over(shared, bytes)) return;
  ledger_.take_over(device, bytes);
  publish();
}

uint64_t MemoryAccount::opened(CUdeviceptr pointer, size_t device, uint64_t bytes,
                               uint16_t context) {
  Opened& opened = opened_[pointer];
  if (opened.times++ == 0) opened = {++last_opened_, device, bytes, context, 1};
  return opened.number;
}

MemoryAccount::OpenedMemory::iterator MemoryAccount::close_opened(OpenedMemory::iterator entry) {
  if (entry->second.charged) refund(entry->second.device, entry->second.bytes);
  return opened_.erase(entry);
}

void MemoryAccount::closed(CUdeviceptr pointer) {
  const auto found = opened_.find(pointer);
  if (found != opened_.end() && --found->second.times == 0) close_opened(found);
}

const MemoryAccount::Opened* MemoryAccount::find_opened(uint64_t number) const {
  const auto found = std::ranges::find_if(
      opened_, [number](const auto& each) { return each.second.number == number; });
  return found == opened_.end() ? nullptr : &found->second;
}

void MemoryAccount::take_over_opened(uint64_t number) {
  auto* const opened = const_cast<Opened*>(find_opened(number));
  if (opened == nullptr || std::exchange(opened->charged, true)) return;
  ledger_.take_over(opened->device, opened->bytes);
  publish();
}

void MemoryAccount::freed(CUdeviceptr pointer) {
  if (freed_) freed_(pointer);
  look_soon();
  if (const auto found = opened_.find(pointer); found != opened_.end()) close_opened(found);
}

void MemoryAccount::look_soon() {
  if (pause_ == kFirstPause || !ledger_.keeps()) return;
  pause_ = kFirstPause;
  next_look_ = std::chrono::steady_clock::now() + pause_;
}

void MemoryAccount::remember(CUdeviceptr pointer, uint64_t bytes, size_t device, uint16_t context,
                             Ledger::Keeper keeper) {
  direct_.forget(pointer, bytes);  // what was there may have gone without our notice
  ledger_.remember(pointer, bytes, device, context, keeper);
  left_.erase(pointer);
  publish();
}

void MemoryAccount::remember(CUdeviceptr pointer, uint64_t bytes) {
  remember(pointer, bytes, contexts_.current_device(), contexts_.current());
}

void MemoryAccount::remember_pool_memory(CUdeviceptr pointer, uint64_t bytes, CUdevice device) {
  ledger_.allocated(static_cast<size_t>(device), bytes, Ledger::Keeper::kPools);
  remember(pointer, bytes, static_cast<size_t>(device), 0, Ledger::Keeper::kPools);
}

void MemoryAccount::forget(CUdeviceptr pointer) {
  if (const auto gone = ledger_.find(pointer, 1)) direct_.forget(gone->base, gone->bytes);
  ledger_.forget(pointer);
  left_.erase(pointer);
  freed(pointer);
  publish();
}

bool MemoryAccount::begins_at(CUdeviceptr pointer) const {
  const auto allocation = ledger_.find(pointer, 0);
  return allocation && allocation->base == pointer;
}

// Of no bytes: the graph has them.
void MemoryAccount::left_by_graph(CUdeviceptr pointer) {
  if (!begins_at(pointer)) remember(pointer, 0, 0, 0);
  left_.insert(pointer);
}

void MemoryAccount::freed_by_graph(CUdeviceptr pointer) {
  if (left_.contains(pointer)) forget(pointer);
}

void MemoryAccount::begin_graph_memory(uint64_t bytes, CUdevice device) {
  pools_.use_graphs(static_cast<size_t>(device));
  ledger_.allocated(static_cast<size_t>(device), bytes, Ledger::Keeper::kGraphs);
}

void MemoryAccount::end_graph_memory(CUdeviceptr pointer, uint64_t bytes, CUdevice device) {
  const auto where = static_cast<size_t>(device);
  if (begins_at(pointer)) {
    remember(pointer, bytes, where, 0, Ledger::Keeper::kGraphs);
    left_.insert(pointer);
  } else {
    ledger_.given_back(where, bytes, Ledger::Keeper::kGraphs);
    look_soon();
  }
}

MemoryAccount::Free MemoryAccount::begin_free(CUdeviceptr pointer) {
  Free free;
  if (const auto allocation = ledger_.find(pointer, 1))
    free.registered = direct_.take(allocation->base, allocation->bytes);
  free.id = ledger_.begin_free(pointer);
  left_.erase(pointer);
  return free;
}

void MemoryAccount::end_free(Ledger::FreeId id, CUdeviceptr pointer, bool is_free) {
  ledger_.end_free(id, pointer, is_free);
  if (is_free) freed(pointer);
  publish();
}

void MemoryAccount::array_ended(const ObjectEnd& end) {
  end_use(array_mappings_.ended(end.id));
  const auto charge = arrays_.extract(end.id);
  if (!charge.empty()) refund(charge.mapped().device, charge.mapped().bytes);
}

void MemoryAccount::memgeneric_ended(const ObjectEnd& end) {
  refund(physical_.released(reinterpret_cast<uint64_t>(end.handle)));
}

// Green contexts have that of their device's primary one.
MemoryAccount::OwnMemory& MemoryAccount::own_memory() {
  const uint16_t current = contexts_.current();
  const auto primary = static_cast<uint16_t>(contexts_.current_device() + 1);
  return of_contexts_[contexts_.green(current) != nullptr ? primary : current];
}

CUresult MemoryAccount::grow_context(uint64_t bytes) {
  const CUresult result = charge(bytes);
  if (result == CUDA_SUCCESS) own_memory().charged += bytes;
  return result;
}

// Never below what it was made with, which is not charged.
void MemoryAccount::shrink_context(uint64_t bytes) {
  OwnMemory& own = own_memory();
  bytes = std::min(bytes, own.charged);
  own.charged -= bytes;
  refund(bytes);
}

CUresult MemoryAccount::resize_threads(uint64_t before) {
  const auto attribute = [&](CUdevice_attribute which) {
    int value = 0;
    const auto device = static_cast<CUdevice>(contexts_.current_device());
    const CUresult result = driver_.cuDeviceGetAttribute(&value, which, device);
    return result == CUDA_SUCCESS ? static_cast<uint64_t>(value) : 0;
  };
  const uint64_t threads = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) *
                           attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
  const uint64_t after = own_memory().per_thread();
  uint64_t change = 0;
  if (__builtin_mul_overflow(std::max(before, after) - std::min(before, after), threads, &change))
    return CUDA_ERROR_OUT_OF_MEMORY;
  if (after >= before) return grow_context(change);
  shrink_context(change);
  return CUDA_SUCCESS;
}

CUresult MemoryAccount::set_stack(uint64_t bytes) {
  OwnMemory& own = own_memory();
  const uint64_t before = own.per_thread(), old = own.stack;
  own.stack = bytes;
  const CUresult result = resize_threads(before);
  if (result != CUDA_SUCCESS) own.stack = old;
  return result;
}

CUresult MemoryAccount::grow_local(uint64_t bytes) {
  OwnMemory& own = own_memory();
  if (bytes <= own.local) return CUDA_SUCCESS;
  const uint64_t before = own.per_thread(), old = own.local;
  own.local = bytes;
  const CUresult result = resize_threads(before);
  if (result != CUDA_SUCCESS) own.local = old;
  return result;
}

void MemoryAccount::context_ended(const ContextEnd& end) {
  ledger_.forget_context(end.id);
  for (auto each = opened_.begin(); each != opened_.end();)
    each = each->second.context == end.id ? close_opened(each) : std::next(each);
  if (const auto grown = of_contexts_.extract(end.id); !grown.empty())
    ledger_.refund(static_cast<size_t>(contexts_.device_of(end.id)), grown.mapped().charged);
  publish();
}

}  // namespace fargpu::server
