// SharedPool: the shared state of a pool that one process has made for others: a page that says
// which pool it is. cuMemPoolExportToShareableHandle returns its descriptor. Thread safe.
#pragma once

#include <cstdint>

#include "common/host/shared_page.h"

namespace fargpu::sim {

class SharedPool {
 public:
  // `index`: the physical number of the GPU. kSystem: there is no page.
  static Result<SharedPool> create(int index);
  // An export of another process; `descriptor` stays the caller's. kInvalidArgument: it is
  // something else.
  static Result<SharedPool> open(int descriptor);

  uint64_t key() const { return page_->key; }
  int index() const { return page_->index; }
  // Another descriptor of the page, for the program; -1: the process may have no more.
  int duplicate() const;

 private:
  struct Page {
    uint32_t magic;
    int32_t index;
    uint64_t key;
  };
  explicit SharedPool(SharedValue<Page> page) : page_(std::move(page)) {}

  SharedValue<Page> page_;
};

}  // namespace fargpu::sim
