#include "server/memory/direct_memory.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "common/base/env.h"
#include "common/base/fd.h"
#include "common/base/log.h"
#include "common/host/memory_page.h"
#include "generated/server/driver_table.h"

namespace fargpu::server {
namespace {

// After so many failures in a row without a success in between, nothing is tried any more.
constexpr unsigned kEnough = 8;

std::span<std::byte> memory_at(CUdeviceptr address, uint64_t bytes) {
  return {reinterpret_cast<std::byte*>(address), bytes};
}

int attribute(const DriverTable& driver, CUdevice_attribute id, int device) {
  int value = 0;
  return driver.cuDeviceGetAttribute(&value, id, device) == CUDA_SUCCESS ? value : 0;
}

// Programs cannot call it through fargpu, so it is not in the table. Null in a driver before
// CUDA 11.7.
using ExportRange = decltype(&::cuMemGetHandleForAddressRange);
ExportRange find_export(const DriverTable& driver) {
  constexpr int kSince = 11070;
  void* function = nullptr;
  CUdriverProcAddressQueryResult how{};
  if (driver.cuGetProcAddress_v2 == nullptr ||
      driver.cuGetProcAddress_v2("cuMemGetHandleForAddressRange", &function, kSince,
                                 CU_GET_PROC_ADDRESS_DEFAULT, &how) != CUDA_SUCCESS) {
    return nullptr;
  }
  return reinterpret_cast<ExportRange>(function);
}

}  // namespace

Result<DirectMemory::Options> DirectMemory::Options::from_environment() {
  Options options;
  FARGPU_ASSIGN_OR_RETURN(options.enabled, env_bool("FARGPU_GPUDIRECT", options.enabled));
  FARGPU_ASSIGN_OR_RETURN(options.from, env_bytes("FARGPU_GPUDIRECT_FROM", options.from));
  return options;
}

const char* DirectMemory::name(Access access) {
  switch (access) {
    case Access::kDmabuf:
      return "dma-buf";
    case Access::kPeerMemory:
      return "peer memory";
    case Access::kStaged:
      break;
  }
  return "staged";
}

Result<DirectMemory::Registration> DirectMemory::by_dmabuf(int device, CUdeviceptr begin,
                                                           uint64_t bytes) {
  const auto export_range = find_export(driver_);
  if (export_range == nullptr)
    return Status(StatusCode::kUnsupported, "the driver has no dma-buf functions");
  if (attribute(driver_, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, device) == 0)
    return Status(StatusCode::kUnsupported, "the driver exports no dma-buf of this GPU's memory");
  // A dma-buf has whole pages. Bytes beyond the range belong to this session, and the key is given
  // to nobody.
  const CUdeviceptr first = page_of(begin);
  const uint64_t whole = page_from(begin + bytes) - first;
  int descriptor = -1;
  const CUresult result =
      export_range(&descriptor, first, whole, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
  if (result != CUDA_SUCCESS) {
    return Status(StatusCode::kUnsupported,
                  fmt::format("the driver exports no dma-buf of this memory, error {}",
                              static_cast<int>(result)));
  }
  const Fd dmabuf(descriptor);
  FARGPU_ASSIGN_OR_RETURN(auto registered, remote_->register_dmabuf(
                                               dmabuf.get(), begin - first, memory_at(begin, bytes),
                                               transport::RemoteAccess::kNone));
  return Registration(std::move(registered));
}

Result<DirectMemory::Registration> DirectMemory::by_address(CUdeviceptr begin, uint64_t bytes) {
  FARGPU_ASSIGN_OR_RETURN(
      auto registered,
      remote_->register_memory(memory_at(begin, bytes), transport::RemoteAccess::kNone));
  return Registration(std::move(registered));
}

bool DirectMemory::capable(CUdeviceptr address) const {
  unsigned answer = 1;
  // A driver that does not know the question has not said no.
  if (driver_.cuPointerGetAttribute == nullptr ||
      driver_.cuPointerGetAttribute(&answer, CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE,
                                    address) != CUDA_SUCCESS) {
    return true;
  }
  return answer != 0;
}

DirectMemory::Attempt DirectMemory::attempt(int device, CUdeviceptr begin, uint64_t bytes) {
  auto dmabuf = by_dmabuf(device, begin, bytes);
  if (dmabuf.ok()) return {Access::kDmabuf, std::move(*dmabuf), {}};
  auto plain = by_address(begin, bytes);
  std::string why = "dma-buf: " + dmabuf.status().message();
  if (plain.ok()) return {Access::kPeerMemory, std::move(*plain), std::move(why)};
  return {Access::kStaged, nullptr, why + "; peer memory: " + plain.status().message()};
}

bool DirectMemory::writes_are_ordered(int device) {
  return attribute(driver_, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING, device) >=
         CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER;
}

DirectMemory::Access DirectMemory::probe(int device, CUdeviceptr address, uint64_t bytes,
                                         std::string* why) {
  if (remote_ == nullptr) {
    *why = "the session has no remote memory";
    return Access::kStaged;
  }
  if (!options_.enabled) {
    *why = "switched off by FARGPU_GPUDIRECT=0";
    return Access::kStaged;
  }
  Attempt made = attempt(device, address, bytes);
  *why = std::move(made.why);
  if (made.access != Access::kStaged && !writes_are_ordered(device)) {
    if (!why->empty()) *why += "; ";
    *why +=
        "copies to the device are staged, since its driver does not order an adapter's writes "
        "before later work";
  }
  return made.access;
}

DirectMemory::Windows::iterator DirectMemory::first_touching(CUdeviceptr address) {
  auto window = windows_.upper_bound(address);
  if (window != windows_.begin() && std::prev(window)->second.end > address) --window;
  return window;
}

std::vector<DirectMemory::Part> DirectMemory::find(const Ledger::AllocationAt& allocation,
                                                   CUdeviceptr address, uint64_t bytes,
                                                   bool to_device) {
  const auto device = static_cast<int>(allocation.device);
  if (!wanted(bytes) || failures_ >= kEnough || (to_device && !writes_are_ordered(device)))
    return {};
  std::vector<Part> parts;
  const CUdeviceptr end = address + bytes;
  while (address < end) {
    const uint64_t skipped = (address - allocation.base) / kWindow * kWindow;
    const CUdeviceptr begin = allocation.base + skipped;
    const uint64_t length = std::min(kWindow, allocation.bytes - skipped);
    auto window = first_touching(address);
    if (window == windows_.end() || window->first != begin ||
        window->second.end != begin + length) {
      forget(begin, length);
      Attempt made;
      if (capable(begin)) {  // memory of a pool is not, as a rule
        made = attempt(device, begin, length);
        if (made.registration != nullptr && !std::exchange(told_, true))
          log::info("event=gpudirect access=\"{}\"", name(made.access));
        failures_ = made.registration != nullptr ? 0 : failures_ + 1;
      }
      if (failures_ == 1 && !made.why.empty())
        log::info("event=gpudirect-refused bytes={} why=\"{}\"", length, made.why);
      window = windows_
                   .emplace(begin, Window{begin + length, allocation.context,
                                          std::move(made.registration)})
                   .first;
    }
    if (window->second.registration == nullptr) return {};
    const uint64_t here = std::min<uint64_t>(end, window->second.end) - address;
    parts.push_back({window->second.registration, memory_at(address, here)});
    address += here;
  }
  return parts;
}

std::vector<DirectMemory::Registration> DirectMemory::take(CUdeviceptr address, uint64_t bytes) {
  std::vector<Registration> taken;
  for (auto window = first_touching(address);
       window != windows_.end() && window->first < address + bytes;) {
    if (window->second.registration != nullptr)
      taken.push_back(std::move(window->second.registration));
    window = windows_.erase(window);
  }
  return taken;
}

void DirectMemory::context_ended(const ContextEnd& end) {
  std::erase_if(windows_, [&end](const auto& window) { return window.second.context == end.id; });
}

}  // namespace fargpu::server
