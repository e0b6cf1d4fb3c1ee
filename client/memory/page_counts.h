// PageCounts: how many users each page of an address space has. Ranges may overlap in any way. It
// reports which parts got their first user or lost their last one. Pure bookkeeping, not thread
// safe.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

namespace fargpu::client {

class PageCounts {
 public:
  struct Range {
    uint64_t begin = 0, end = 0;
    bool operator==(const Range&) const = default;
  };

  // The parts of [begin, end) that have no user, in order, none touching the next.
  std::vector<Range> unused(uint64_t begin, uint64_t end) const;
  void add(uint64_t begin, uint64_t end) { change(begin, end, +1); }
  // Undoes an add of [begin, end). Returns the parts that have no user any more.
  std::vector<Range> remove(uint64_t begin, uint64_t end);
  bool empty() const { return counts_.empty(); }

 private:
  using Map = std::map<uint64_t, uint32_t>;
  Map::iterator split(uint64_t at);
  void change(uint64_t begin, uint64_t end, int by);

  // The number of users from this address to that of the next entry; 0 before the first entry.
  // Adjacent entries differ.
  Map counts_;
};

}  // namespace fargpu::client
