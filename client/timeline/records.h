// The records of a worker, which may send anything.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "common/base/status.h"
#include "common/wire/timeline_record.h"

namespace fargpu::client::timeline {

// Whole records of known kinds that do not end before they begin, else kProtocol.
Result<std::vector<wire::TimelineRecord>> read_records(std::span<const std::byte> bytes);

}  // namespace fargpu::client::timeline
