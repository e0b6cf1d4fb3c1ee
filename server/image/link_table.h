// Links that are being made: the driver's link states by the client's ids.
//
// The driver writes its logs into memory that it was given when the link state was made, so that
// memory and the state stay together. A Link may be used by several threads, one call at a time;
// the table belongs to the executor's thread.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "server/image/jit_options.h"
#include "server/object/object_end.h"

namespace fargpu::server {

class Image;
struct DriverTable;

// What a call on a link brings.
struct LinkOutcome {
  CUresult result = CUDA_SUCCESS;  // the driver's
  std::string info, errors;        // what the logs hold now
  std::vector<std::byte> image;    // of complete()
};

class Link {
 public:
  static constexpr unsigned kMaxInputs = 1024;

  // `driver` outlives the link and has the functions of linking. Log sizes in bytes; 0: no such
  // log.
  Link(const DriverTable& driver, uint16_t context, JitOptions options, size_t info_bytes,
       size_t error_bytes);
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  // These may compile, which takes its time: on a helper thread, with the link's context current.
  // create() is the first.
  CUresult create();
  LinkOutcome add(CUjitInputType type, const Image& input, const std::string& name,
                  JitOptions options);
  LinkOutcome complete();

  uint16_t context() const { return context_; }
  // Its context has ended, and the driver's state with it.
  void context_has_gone();

 private:
  LinkOutcome outcome(CUresult result) const;

  const DriverTable& driver_;
  const uint16_t context_;
  std::mutex mutex_;  // the rest
  std::vector<char> info_, errors_;
  JitOptions options_;  // the driver writes into its values
  CUlinkState state_ = nullptr;
  unsigned inputs_ = 0;
};

class LinkTable {
 public:
  static constexpr size_t kMaxLinks = 4096;

  // CUDA_ERROR_INVALID_VALUE: no id of a link, or in use. CUDA_ERROR_OUT_OF_MEMORY: too many.
  CUresult add(uint64_t id, std::shared_ptr<Link> link);
  std::shared_ptr<Link> find(uint64_t id) const;  // null: unknown
  void linkstate_ended(const ObjectEnd& end) { links_.erase(end.id); }

 private:
  std::unordered_map<uint64_t, std::shared_ptr<Link>> links_;
};

}  // namespace fargpu::server
