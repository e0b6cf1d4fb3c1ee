// What is done wrongly on purpose, for the checker to notice.
#pragma once

#include <cstdint>

namespace fargpu::hunt {

enum class Mistake : uint32_t {
  kNone,
  kWaits,      // waits for events are left out
  kEdges,      // graphs are built without their edges, captured without waits between streams
  kParams,     // changes of executable graphs are left out
  kLaunches,   // graphs are launched in a stream of their own
  kHostNodes,  // host nodes write nothing
  kManaged,    // the host writes nothing into managed memory
  kShared,     // waits for events of the other process are left out
};

}  // namespace fargpu::hunt
