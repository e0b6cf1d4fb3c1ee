// StreamStock: streams that are made before host functions of the client can hold any.
//
// A driver may wait for host functions in cuStreamCreate while it holds the context's lock (580
// does at times), and the executor, which lets functions go on, then waits for that lock. A program
// may make a stream while a host function waits for a later action of the program. So each context
// gets some streams before the first function enters a stream, and a stream that is wanted while
// functions are outstanding is one of these. The stock is filled again when no function is
// outstanding.
//
// All on the executor's thread.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "server/core/core.h"
#include "server/object/object_end.h"

namespace fargpu::server {

class StreamStock {
 public:
  struct Attributes {
    unsigned flags = 0;
    int priority = 0;
    bool operator==(const Attributes&) const = default;
  };
  static constexpr size_t kMostStreams = 4;
  // Of a context: the two kinds of cuStreamCreate, and kinds that the program has made or
  // requested.
  static constexpr size_t kMostShelves = 4;

  explicit StreamStock(const Core& core) : core_(core) {}
  StreamStock(const StreamStock&) = delete;
  StreamStock& operator=(const StreamStock&) = delete;

  // No function is outstanding, and one is about to be. Leaves the current context as it is.
  void fill();
  // A stream of `context`, which belongs to the caller from now on; nullptr: there is none.
  CUstream take(uint16_t context, const Attributes& attributes);
  void context_ended(const ContextEnd& end);

 private:
  struct Shelf {
    Attributes attributes;
    std::vector<CUstream> streams;
  };
  struct Stock {
    std::vector<Shelf> shelves;
    bool is_filled = false;
  };
  Stock first_stock(uint16_t context) const;
  static void want(Stock& stock, const Attributes& attributes);
  void fill(uint16_t context, Stock& stock) const;
  CUresult make(CUgreenCtx green, const Attributes& attributes, CUstream* stream) const;
  void set_filled(Stock& stock, bool filled);

  const Core core_;
  std::unordered_map<uint16_t, Stock> stocks_;  // by context
  size_t filled_ = 0;                           // how many of them are
};

}  // namespace fargpu::server
