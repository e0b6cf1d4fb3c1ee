#include "client/timeline/records.h"

#include <cstring>

namespace fargpu::client::timeline {

using wire::TimelineRecord;

Result<std::vector<TimelineRecord>> read_records(std::span<const std::byte> bytes) {
  if (bytes.size() % sizeof(TimelineRecord) != 0)
    return Status(StatusCode::kProtocol, "a part of a timeline record");
  std::vector<TimelineRecord> records(bytes.size() / sizeof(TimelineRecord));
  if (!records.empty()) std::memcpy(records.data(), bytes.data(), bytes.size());
  for (const TimelineRecord& record : records) {
    if (static_cast<uint16_t>(record.kind) >= wire::kTimelineKinds)
      return Status(StatusCode::kProtocol, "a timeline record of no known kind");
    if (record.end < record.begin)
      return Status(StatusCode::kProtocol, "a timeline record that ends before it begins");
  }
  return records;
}

}  // namespace fargpu::client::timeline
