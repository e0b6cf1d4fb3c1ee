#include "sim/exec/memory.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "sim/exec/program_code.h"

namespace fargpu::sim {

namespace {

// From here on memory comes straight from the kernel, zeroed when it is first touched.
constexpr size_t kMapFrom = size_t{1} << 20;

}  // namespace

AlignedBuffer::~AlignedBuffer() { drop(); }

void AlignedBuffer::drop() {
  if (size_ >= kMapFrom) {
    munmap(data_, size_);
  } else {
    std::free(data_);
  }
}

bool AlignedBuffer::reserve(size_t bytes) {
  if (bytes <= size_) return true;
  const size_t size = (bytes + 4095) / 4096 * 4096;
  uint8_t* fresh = nullptr;
  if (size >= kMapFrom) {
    void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return false;
    fresh = static_cast<uint8_t*>(memory);
  } else {
    fresh = static_cast<uint8_t*>(std::aligned_alloc(128, size));
    if (fresh == nullptr) return false;
    std::memset(fresh + size_, 0, size - size_);
  }
  if (size_ != 0) std::memcpy(fresh, data_, size_);
  drop();
  data_ = fresh;
  size_ = size;
  return true;
}

const MemoryMap::Range* RangeCache::find(uint64_t address, size_t bytes) {
  const auto covers = [&](const MemoryMap::Range& r) {
    return bytes <= r.bytes && address - r.base <= r.bytes - bytes;
  };
  if (covers(ranges_[last_])) return &ranges_[last_];
  for (size_t i = 0; i < kEntries; ++i) {
    if (covers(ranges_[i])) {
      last_ = i;
      return &ranges_[i];
    }
  }
  const auto found = map_->find(address, bytes);
  if (!found) return nullptr;
  last_ = victim_;
  victim_ = (victim_ + 1) % kEntries;
  ranges_[last_] = *found;
  return &ranges_[last_];
}

uint8_t* local_base(Exec& x, uint32_t lane) {
  return x.block->locals.data() + size_t{x.grid->local_bytes} * (x.warp->index * kLanes + lane);
}

uint8_t* resolve_lane(Exec& x, const Instr& in, ptx::Space space, uint64_t address, unsigned bytes,
                      bool write, uint32_t lane) {
  return resolve_range(x, in, space, address, bytes, bytes, write, lane);
}

uint8_t* resolve_range(Exec& x, const Instr& in, ptx::Space space, uint64_t address, unsigned bytes,
                       unsigned align, bool write, uint32_t lane) {
  using ptx::Space;
  const uint64_t original = address;
  if (space == Space::kGeneric) {
    const uint64_t window = address & ~(kWindowBytes - 1);
    space = window == kSharedWindow  ? Space::kShared
            : window == kLocalWindow ? Space::kLocal
            : window == kParamWindow ? Space::kParam
                                     : Space::kGlobal;
    if (space != Space::kGlobal) address -= window;
  }
  const auto check = [&](uint8_t* base, uint64_t size) -> uint8_t* {
    if (bytes <= size && address <= size - bytes) return base + address;
    return nullptr;
  };
  uint8_t* place = nullptr;
  switch (space) {
    case Space::kShared:
      place = check(x.block->shared.data(), x.grid->shared_bytes);
      if (place == nullptr) {  // seen from the whole cluster
        const uint64_t rank = address / kClusterStride - 1;
        if (rank >= x.block->cluster->blocks.size()) break;
        address %= kClusterStride;
        place = check(x.block->cluster->blocks[rank]->shared.data(), x.grid->shared_bytes);
      }
      break;
    case Space::kLocal:
      place = check(local_base(x, lane), x.grid->local_bytes);
      break;
    case Space::kParam:
      if (!write) {
        place = check(reinterpret_cast<uint8_t*>(const_cast<std::byte*>(x.grid->parameters.data())),
                      x.grid->parameters.size());
      }
      break;
    default:
      if (const MemoryMap::Range* range = x.ranges.find(address, bytes);
          range != nullptr && (range->writable || !write)) {
        place = reinterpret_cast<uint8_t*>(address);
      }
      break;
  }
  if (place == nullptr) {
    raise_fault(x, in, Fault::Kind::kIllegalAddress, lane, original, bytes);
  } else if (address % align != 0) {
    raise_fault(x, in, Fault::Kind::kMisalignedAddress, lane, original, bytes);
    place = nullptr;
  }
  return place;
}

bool read_string(Exec& x, const Instr& in, uint64_t address, uint32_t lane, std::string& text) {
  constexpr size_t kLongest = size_t{1} << 20;
  for (text.clear(); text.size() < kLongest; ++address) {
    const uint8_t* c = resolve_lane(x, in, ptx::Space::kGeneric, address, 1, false, lane);
    if (c == nullptr) return false;
    if (*c == 0) return true;
    text.push_back(static_cast<char>(*c));
  }
  return true;
}

}  // namespace fargpu::sim
