// The session's contexts by the 16-bit ids of frame headers: primary contexts are ordinal + 1,
// created ones begin at 256. One thread (the executor's).
#pragma once

#include <cuda.h>

#include <cstdint>
#include <unordered_map>
#include <vector>

namespace fargpu::server {

class ContextTable {
 public:
  struct Entry {
    CUcontext handle = nullptr;
    CUdevice device = 0;
  };

  Entry* find(uint16_t id) {
    const auto found = entries_.find(id);
    return found == entries_.end() ? nullptr : &found->second;
  }
  // Null when the id is in use.
  Entry* add(uint16_t id, CUcontext handle, CUdevice device) {
    const auto [entry, added] = entries_.try_emplace(id, Entry{handle, device});
    return added ? &entry->second : nullptr;
  }
  void remove(uint16_t id) { entries_.erase(id); }
  std::vector<uint16_t> ids() const {
    std::vector<uint16_t> all;
    for (const auto& [id, entry] : entries_) all.push_back(id);
    return all;
  }
  size_t size() const { return entries_.size(); }

 private:
  std::unordered_map<uint16_t, Entry> entries_;
};

}  // namespace fargpu::server
