#include "server/object/ledger.h"

#include <algorithm>
#include <iterator>
#include <numeric>

namespace fargpu::server {

CUresult Ledger::charge(size_t device, uint64_t bytes) {
  if (device >= used_.size()) return CUDA_ERROR_INVALID_DEVICE;
  const uint64_t ceiling = limit_ != 0 ? limit_ : UINT64_MAX;
  if (used_[device] > ceiling || bytes > ceiling - used_[device]) return CUDA_ERROR_OUT_OF_MEMORY;
  if (job_ != nullptr && !job_->charge(device, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  used_[device] += bytes;
  return CUDA_SUCCESS;
}

void Ledger::take_over(size_t device, uint64_t bytes) {
  if (device >= used_.size()) return;
  used_[device] += bytes;
  if (job_ != nullptr) job_->take_over(device, bytes);
}

void Ledger::refund(size_t device, uint64_t bytes) {
  if (device >= used_.size()) return;
  const uint64_t back = std::min(bytes, used_[device]);
  used_[device] -= back;
  if (job_ != nullptr) job_->refund(device, back);
}

void Ledger::remember(CUdeviceptr pointer, uint64_t bytes, size_t device, uint16_t context,
                      Keeper keeper) {
  // The driver gave the address out again: what was there has gone without our notice.
  forget(pointer);
  allocations_[pointer] = {bytes, device, context, keeper};
}

bool Ledger::forget(CUdeviceptr pointer) {
  const auto found = allocations_.find(pointer);
  if (found == allocations_.end()) return false;
  give_back(found->second);
  allocations_.erase(found);
  return true;
}

void Ledger::allocated(size_t device, uint64_t bytes, Keeper keeper) {
  if (keeper != Keeper::kDriver) reserve_of(device, keeper).allocated += bytes;
}

void Ledger::given_back(size_t device, uint64_t bytes, Keeper keeper) {
  if (keeper == Keeper::kDriver) return refund(device, bytes);
  Reserve& reserve = reserve_of(device, keeper);
  reserve.allocated -= bytes;
  reserve.kept += bytes;
}

uint64_t Ledger::kept(size_t device) const {
  return reserves_[device][0].kept + reserves_[device][1].kept;
}

bool Ledger::keeps() const {
  for (size_t device = 0; device < reserves_.size(); ++device)
    if (kept(device) != 0) return true;
  return false;
}

void Ledger::settle(size_t device, Keeper keeper, uint64_t reserved) {
  Reserve& reserve = reserve_of(device, keeper);
  const uint64_t kept = reserved - std::min(reserved, reserve.allocated);
  if (kept < reserve.kept) refund(device, reserve.kept - kept);
  if (kept > reserve.kept) take_over(device, kept - reserve.kept);
  reserve.kept = kept;
}

void Ledger::forget_context(uint16_t context) {
  if (context == 0) return;
  for (Free& free : frees_) {
    if (free.allocation.context != context || free.gone) continue;
    refund(free.allocation.device, free.allocation.bytes);
    free.gone = true;
  }
  for (auto entry = allocations_.begin(); entry != allocations_.end();) {
    if (entry->second.context == context) {
      refund(entry->second.device, entry->second.bytes);
      entry = allocations_.erase(entry);
    } else {
      ++entry;
    }
  }
}

Ledger::FreeId Ledger::begin_free(CUdeviceptr pointer) {
  const auto found = allocations_.find(pointer);
  if (found == allocations_.end()) return 0;
  frees_.push_back({next_free_, pointer, found->second});
  allocations_.erase(found);
  return next_free_++;
}

void Ledger::end_free(FreeId id, CUdeviceptr pointer, bool freed) {
  if (id == 0 && !freed) return;
  const auto ended = std::find_if(frees_.begin(), frees_.end(), [&](const Free& free) {
    return id != 0 ? free.id == id : free.pointer == pointer && !free.gone;
  });
  if (ended == frees_.end()) return;
  if (!ended->gone && freed) give_back(ended->allocation);
  if (!ended->gone && !freed) allocations_.emplace(pointer, ended->allocation);
  ended->gone = true;
  if (id != 0) frees_.erase(ended);
}

std::optional<Ledger::AllocationAt> Ledger::find(CUdeviceptr address, uint64_t bytes) const {
  const auto after = allocations_.upper_bound(address);
  if (after == allocations_.begin()) return std::nullopt;
  const auto& [base, allocation] = *std::prev(after);
  const uint64_t offset = address - base;
  if (offset > allocation.bytes || bytes > allocation.bytes - offset) return std::nullopt;
  return AllocationAt{base, allocation.bytes, allocation.device, allocation.context};
}

uint64_t Ledger::used_everywhere() const {
  return std::accumulate(used_.begin(), used_.end(), uint64_t{0});
}

}  // namespace fargpu::server
