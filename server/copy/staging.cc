#include "server/copy/staging.h"

#include <cuda.h>
#include <fmt/core.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>

#include "common/base/address_check.h"
#include "generated/server/driver_table.h"

namespace fargpu::server {
namespace {

unsigned class_of(size_t bytes) {
  const size_t pages = (bytes + StagingPool::kSmallest - 1) / StagingPool::kSmallest;
  return pages <= 1 ? 0 : static_cast<unsigned>(std::bit_width(pages - 1));
}
size_t class_bytes(unsigned size_class) { return StagingPool::kSmallest << size_class; }

}  // namespace

void StagingBlock::give_back() {
  const auto all = whole();
  address_check::unpoison(all.data() + size_, all.data() + all.size());
  pool_->give_back(*memory_);
}

std::span<std::byte> StagingBlock::whole() const {
  return {memory_->base, class_bytes(memory_->size_class)};
}

StagingRegistration::~StagingRegistration() {
  if (pool_ != nullptr) pool_->release(*memory_);
}

CUresult StagingRegistration::undo() const {
  return pool_->driver_->cuMemHostUnregister(memory_->base);
}

StagingPool::~StagingPool() {
  retire_ = nullptr;
  for (Free(&of_use)[40] : free_) {
    for (Free& blocks : of_use) {
      for (StagingMemory* memory : blocks) {
        if (memory->registered_in != 0) driver_->cuMemHostUnregister(memory->base);
        unmap(*memory);
      }
    }
  }
}

Result<StagingBlock> StagingPool::acquire(size_t bytes, StagingUse use, uint16_t context,
                                          Budget budget) {
  const unsigned size_class = class_of(bytes);
  auto& of_use = free_[static_cast<unsigned>(use)];
  if (size_class >= std::size(of_use)) {
    return Status(StatusCode::kNoCapacity,
                  fmt::format("a staging block of {} bytes is too large", bytes));
  }
  StagingMemory* memory = take_fitting(of_use[size_class], context);
  if (memory != nullptr) {
    kept_bytes_ -= class_bytes(size_class);
  } else {
    FARGPU_ASSIGN_OR_RETURN(memory, map(size_class, use, budget));
  }
  const bool worth_it = use == StagingUse::kFromDevice || class_bytes(size_class) >= kPinnedFrom;
  if (context != 0 && memory->registered_in == 0 && worth_it && pin(*memory))
    memory->registered_in = context;
  memory->holders = 1;
  StagingBlock block;
  block.pool_ = this;
  block.memory_ = memory;
  block.size_ = bytes;
  const auto all = block.whole();
  address_check::poison(all.data() + bytes, all.data() + all.size());
  return block;
}

// A few looks: nearly always the last one given back fits.
StagingMemory* StagingPool::take_fitting(Free& candidates, uint16_t context) {
  constexpr size_t kLooks = 16;
  const size_t looks = std::min(kLooks, candidates.size());
  for (auto place = candidates.rbegin(); place != candidates.rbegin() + static_cast<long>(looks);
       ++place) {
    StagingMemory* const memory = *place;
    if (context != 0 && memory->registered_in != 0 && memory->registered_in != context) continue;
    std::swap(*place, candidates.back());
    candidates.pop_back();
    return memory;
  }
  return nullptr;
}

bool StagingPool::pay(size_t bytes) {
  if (budget_->take(bytes)) return true;
  for (Free(&of_use)[40] : free_) {
    for (Free& blocks : of_use) {
      while (!blocks.empty()) {
        StagingMemory* const memory = blocks.back();
        blocks.pop_back();
        kept_bytes_ -= class_bytes(memory->size_class);
        memory->holders = 1;
        let_go(*memory);
        if (budget_->take(bytes)) return true;
      }
    }
  }
  return false;
}

Result<StagingMemory*> StagingPool::map(unsigned size_class, StagingUse use, Budget budget) {
  const bool beyond = !pay(class_bytes(size_class));
  if (beyond && budget == Budget::kHolds)
    return Status(StatusCode::kNoCapacity, "the session's host memory is used up");
  void* base = mmap(nullptr, class_bytes(size_class), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) {
    if (!beyond) budget_->give_back(class_bytes(size_class));
    return Status(StatusCode::kNoCapacity, fmt::format("no memory for a staging block of {} bytes",
                                                       class_bytes(size_class)));
  }
  auto memory = std::make_unique<StagingMemory>();
  memory->base = static_cast<std::byte*>(base);
  memory->size_class = size_class;
  memory->use = use;
  memory->beyond = beyond;
  StagingMemory* const raw = memory.get();
  all_.emplace(raw, std::move(memory));
  return raw;
}

std::vector<StagingRegistration> StagingPool::take_registrations(uint16_t context) {
  std::vector<StagingRegistration> taken;
  for (const auto& [memory, owner] : all_) {
    if (memory->registered_in != context || memory->leaving) continue;
    memory->leaving = true;
    ++memory->holders;
    taken.emplace_back(*this, *memory);
  }
  for (Free(&of_use)[40] : free_) {
    for (Free& blocks : of_use) {
      std::erase_if(blocks, [this](const StagingMemory* memory) {
        if (memory->leaving) kept_bytes_ -= class_bytes(memory->size_class);
        return memory->leaving;
      });
    }
  }
  return taken;
}

void StagingPool::context_ended(ContextEnd& end) {
  for (StagingRegistration& taken : take_registrations(end.id)) {
    const auto registration = std::make_shared<StagingRegistration>(std::move(taken));
    end.withdrawals.push_back([registration] { (void)registration->undo(); });
  }
}

bool StagingPool::pin(const StagingMemory& memory) {
  if (driver_ == nullptr || driver_->cuMemHostRegister_v2 == nullptr) return false;
  const CUresult result = driver_->cuMemHostRegister_v2(memory.base, class_bytes(memory.size_class),
                                                        CU_MEMHOSTREGISTER_PORTABLE);
  return result == CUDA_SUCCESS || result == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
}

void StagingPool::give_back(StagingMemory& memory) {
  const size_t bytes = class_bytes(memory.size_class);
  if (!memory.leaving && !memory.beyond && kept_bytes_ + bytes <= kKeepBytes) {
    memory.holders = 0;
    free_[static_cast<unsigned>(memory.use)][memory.size_class].push_back(&memory);
    kept_bytes_ += bytes;
    return;
  }
  let_go(memory);
}

void StagingPool::let_go(StagingMemory& memory) {
  if (!memory.leaving && memory.registered_in != 0) {
    memory.leaving = true;
    ++memory.holders;
    StagingRegistration registration(*this, memory);
    if (retire_) {
      retire_(std::move(registration));
    } else {
      registration.undo();
    }
  }
  release(memory);
}

void StagingPool::release(StagingMemory& memory) {
  if (--memory.holders == 0) unmap(memory);
}

void StagingPool::unmap(StagingMemory& memory) {
  if (gone_) gone_(memory.base);
  munmap(memory.base, class_bytes(memory.size_class));
  if (!memory.beyond) budget_->give_back(class_bytes(memory.size_class));
  all_.erase(&memory);
}

}  // namespace fargpu::server
