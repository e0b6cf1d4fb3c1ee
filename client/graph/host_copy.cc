#include "client/graph/host_copy.h"

#include <bit>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "client/transfer/endpoint.h"
#include "client/transfer/exposure.h"
#include "client/transfer/pinned_memory.h"

namespace fargpu::client {
namespace {

// Staging memory that no copy uses, by session and size. It is kept until the process ends: to free
// it, one would have to wait for everything that runs.
class FreeStaging {
 public:
  static FreeStaging& get() {
    static auto& memory = *new FreeStaging;
    return memory;
  }
  CUresult take(Session& session, size_t bytes, void** memory) {
    {
      std::lock_guard lock(mutex_);
      auto& free = free_[{&session, bytes}];
      if (!free.empty()) {
        *memory = free.back();
        free.pop_back();
        return CUDA_SUCCESS;
      }
    }
    return allocate_pinned(bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP, memory);
  }
  void give_back(Session& session, size_t bytes, void* memory) {
    std::lock_guard lock(mutex_);
    free_[{&session, bytes}].push_back(memory);
  }

 private:
  std::mutex mutex_;
  std::map<std::pair<Session*, size_t>, std::vector<void*>> free_;
};

}  // namespace

// Staging memory of one copy. It is given back with the last one that has it.
class Staging {
 public:
  static CUresult take(Session& session, size_t bytes, std::shared_ptr<Staging>* staging) {
    auto taken = std::make_shared<Staging>(session, bytes);
    const CUresult result = FreeStaging::get().take(session, bytes, &taken->memory_);
    if (result == CUDA_SUCCESS) *staging = std::move(taken);
    return result;
  }
  Staging(Session& session, size_t bytes) : session_(session), bytes_(bytes) {}
  ~Staging() {
    if (memory_ != nullptr) FreeStaging::get().give_back(session_, bytes_, memory_);
  }
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  uint64_t address() const { return reinterpret_cast<uint64_t>(memory_); }
  size_t bytes() const { return bytes_; }

 private:
  Session& session_;
  const size_t bytes_;
  void* memory_ = nullptr;
};

namespace {

Endpoint end_of(Session& session, CUmemorytype type, const copy::Rows& rows) {
  return type == CU_MEMORYTYPE_HOST     ? host_end(session, rows)
         : type == CU_MEMORYTYPE_DEVICE ? device_end(session, rows)
                                        : unified_end(session, rows);
}

// Whether a side is host memory, by whichever address; *rows: there.
bool is_on_host(Session& session, CUmemorytype type, const copy::Part& part,
                const copy::Shape& shape, copy::Rows* rows) {
  if (type == CU_MEMORYTYPE_ARRAY || !place(part, shape, rows)) return false;
  const uint64_t span = span_of(shape, *rows);
  return span != 0 && lies_on_host(session, end_of(session, type, *rows), span);
}

// Where the driver finds a side: nothing (`here`): in ordinary memory of the application.
struct Found {
  bool here = false;
  copy::Rows rows;
};

CUresult find(Session& session, CUmemorytype type, const copy::Part& part, const copy::Shape& shape,
              Found* found) {
  const uint64_t span = place(part, shape, &found->rows) ? span_of(shape, found->rows) : 0;
  if (span == 0) return CUDA_ERROR_INVALID_VALUE;
  const Endpoint end = end_of(session, type, found->rows);
  if (end.device) {
    if (const CUresult result = check_range(session, end, span); result != CUDA_SUCCESS)
      return result;
    return expose_operands(session, {found->rows.address});
  }
  found->here = true;
  uint64_t device_pointer = 0;
  if (!end.region || span > end.known ||
      expose(session, *end.region, &device_pointer) != CUDA_SUCCESS)
    return CUDA_SUCCESS;
  found->here = false;
  found->rows.address = device_pointer + (found->rows.address - end.region->base);
  return CUDA_SUCCESS;
}

void put_source(CUDA_MEMCPY3D& copy, const copy::Rows& rows) {
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = rows.address;
  copy.srcPitch = rows.pitch;
  copy.srcHeight = rows.pitch == 0 ? 0 : rows.slice / rows.pitch;
  copy.srcXInBytes = copy.srcY = copy.srcZ = 0;
  copy.srcHost = nullptr;
}

void put_destination(CUDA_MEMCPY3D& copy, const copy::Rows& rows) {
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = rows.address;
  copy.dstPitch = rows.pitch;
  copy.dstHeight = rows.pitch == 0 ? 0 : rows.slice / rows.pitch;
  copy.dstXInBytes = copy.dstY = copy.dstZ = 0;
  copy.dstHost = nullptr;
}

// Between `rows` of the application and staging memory, packed.
CUresult stage(Session& session, const copy::Rows& rows, const copy::Shape& shape, bool fetches,
               const HostCopy* before, std::shared_ptr<HostCopy>* copy) {
  const size_t bytes = std::bit_ceil(shape.bytes());
  std::shared_ptr<Staging> staging = before != nullptr ? before->staging() : nullptr;
  if (staging == nullptr || staging->bytes() != bytes) {
    if (const CUresult result = Staging::take(session, bytes, &staging); result != CUDA_SUCCESS)
      return result;
  }
  const copy::Rows packed = dense(staging->address(), shape);
  *copy = fetches ? std::make_shared<HostCopy>(packed, rows, shape, std::move(staging))
                  : std::make_shared<HostCopy>(rows, packed, shape, std::move(staging));
  return CUDA_SUCCESS;
}

}  // namespace

void HostCopy::run(void* pointer) {
  const auto& copy = *static_cast<const HostCopy*>(pointer);
  for (uint64_t z = 0; z < copy.shape_.depth; ++z) {
    for (uint64_t y = 0; y < copy.shape_.height; ++y) {
      std::memmove(reinterpret_cast<void*>(copy.to_.at(0, y, z).address),
                   reinterpret_cast<const void*>(copy.from_.at(0, y, z).address),
                   copy.shape_.width);
    }
  }
}

copy::Part source_part(const CUDA_MEMCPY3D& copy) {
  const bool host = copy.srcMemoryType == CU_MEMORYTYPE_HOST;
  return {host ? reinterpret_cast<uint64_t>(copy.srcHost) : uint64_t{copy.srcDevice},
          copy.srcXInBytes,
          copy.srcY,
          copy.srcZ,
          copy.srcPitch,
          copy.srcHeight};
}

copy::Part destination_part(const CUDA_MEMCPY3D& copy) {
  const bool host = copy.dstMemoryType == CU_MEMORYTYPE_HOST;
  return {host ? reinterpret_cast<uint64_t>(copy.dstHost) : uint64_t{copy.dstDevice},
          copy.dstXInBytes,
          copy.dstY,
          copy.dstZ,
          copy.dstPitch,
          copy.dstHeight};
}

CUresult plan_copy(Session& session, const CUDA_MEMCPY3D& given, bool calls_host,
                   const HostCopy* before, NodeCopy* plan) {
  const copy::Shape shape{given.WidthInBytes, given.Height, given.Depth};
  CUDA_MEMCPY3D& driver = plan->driver = given;
  copy::Rows to, from;
  if (calls_host && is_on_host(session, given.srcMemoryType, source_part(given), shape, &from) &&
      is_on_host(session, given.dstMemoryType, destination_part(given), shape, &to)) {
    plan->way = NodeCopy::Way::kHost;
    plan->host = std::make_shared<HostCopy>(to, from, shape, nullptr);
    return CUDA_SUCCESS;
  }
  Found source, destination;
  if (given.srcMemoryType != CU_MEMORYTYPE_ARRAY) {
    const CUresult result = find(session, given.srcMemoryType, source_part(given), shape, &source);
    if (result != CUDA_SUCCESS) return result;
    put_source(driver, source.rows);
  }
  if (given.dstMemoryType != CU_MEMORYTYPE_ARRAY) {
    const CUresult result =
        find(session, given.dstMemoryType, destination_part(given), shape, &destination);
    if (result != CUDA_SUCCESS) return result;
    put_destination(driver, destination.rows);
  }
  if (!source.here && !destination.here) return CUDA_SUCCESS;
  if (source.here && destination.here) {
    plan->way = NodeCopy::Way::kHost;
    plan->host = std::make_shared<HostCopy>(destination.rows, source.rows, shape, nullptr);
    return CUDA_SUCCESS;
  }
  plan->way = source.here ? NodeCopy::Way::kHostThenDriver : NodeCopy::Way::kDriverThenHost;
  if (const CUresult result = stage(session, source.here ? source.rows : destination.rows, shape,
                                    source.here, before, &plan->host);
      result != CUDA_SUCCESS)
    return result;
  Found staged;
  const CUresult result =
      find(session, CU_MEMORYTYPE_HOST, {plan->host->staging()->address()}, shape, &staged);
  if (result != CUDA_SUCCESS) return result;
  if (staged.here) return CUDA_ERROR_NOT_SUPPORTED;  // the worker cannot have that memory
  source.here ? put_source(driver, staged.rows) : put_destination(driver, staged.rows);
  return CUDA_SUCCESS;
}

}  // namespace fargpu::client
