// SharedFile: physical memory that other processes may have, in a memory file of its own.
// cuMemExportToShareableHandle returns the file: it describes itself, and keeps the memory while it
// is open in any process.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "common/base/fd.h"

namespace fargpu::sim {

class SharedFile {
 public:
  // kSystem: there is no file, or not of this size. `index`: the physical number of the GPU.
  static Result<SharedFile> create(uint64_t bytes, int index,
                                   const CUmemAllocationProp& properties);
  // An export of another process; `descriptor` stays the caller's. kInvalidArgument: it is
  // something else.
  static Result<SharedFile> open(int descriptor);

  int descriptor() const { return file_.get(); }
  uint64_t bytes() const { return bytes_; }
  int index() const { return index_; }
  // The properties of its maker, with the maker's device number.
  const CUmemAllocationProp& properties() const { return properties_; }
  // Another descriptor of the same file, for the program; -1: the process may have no more.
  int duplicate() const;

 private:
  SharedFile(Fd file, uint64_t bytes, int index, const CUmemAllocationProp& properties)
      : file_(std::move(file)), bytes_(bytes), index_(index), properties_(properties) {}

  Fd file_;
  uint64_t bytes_;
  int index_;
  CUmemAllocationProp properties_;
};

// The result of importing a descriptor of neither memory nor a pool.
CUresult no_export(int descriptor);

}  // namespace fargpu::sim
