// Placement: which job gets which units of this host. Jobs know this interface alone;
// host_placement.h is the host's own ledger.
//
// A grant belongs to the job that it was placed for until release(). One thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "server/placement/unit.h"

namespace fargpu::server {

struct UnitLoad {
  uint32_t jobs = 0;
  uint64_t reserved_bytes = 0;
  std::string out_of_service{};  // why no further job gets it; empty: it is in service
};

class Placement {
 public:
  virtual ~Placement() = default;

  // The units of this host: always the same, in the same order.
  virtual const std::vector<Unit>& units() const = 0;
  virtual UnitLoad load(size_t unit) const = 0;

  // Reserves units for `job` (an id not in use), in the order asked for, else ascending.
  // kInvalidArgument: no such unit, or a wish that can never be fulfilled. kNoCapacity: not now.
  virtual Result<Grant> place(uint64_t job, const PlacementRequest& request) = 0;
  // The grant that place() would return; without free space, the grant that it would return with
  // space. Reserves nothing. kInvalidArgument as above.
  virtual Result<Grant> preview(const PlacementRequest& request) const = 0;
  // Whether place() would succeed if `others` had given back their grants.
  virtual bool fits_without(std::span<const uint64_t> others,
                            const PlacementRequest& request) const = 0;
  // Gives back the grant of `job`; an unknown one is nothing.
  virtual void release(uint64_t job) = 0;
};

// Of units of a placement, in the given order: "GPU-1...,GPU-2..." when joined.
std::vector<std::string> uuids_of(const std::vector<Unit>& units, std::span<const size_t> chosen);

}  // namespace fargpu::server
