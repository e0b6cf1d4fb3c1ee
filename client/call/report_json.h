// The report as JSON, for programs: docs/tools.md lists the members.
#pragma once

#include <cstdint>
#include <string>

#include "client/call/report_call_sites.h"
#include "client/call/report_counts.h"
#include "common/rpc/link_estimate.h"

namespace fargpu::client::report {

struct AboutProcess {
  std::string name;
  int64_t id;
  int64_t begin_ns, nanoseconds;  // steady clock
};

// One object on one line, with the line's end. Empty without any call. `sites`: null where they
// were not asked for.
std::string json(const Counts& counts, const rpc::LinkTimes& link, const AboutProcess& process,
                 const call_sites::Found* sites);

}  // namespace fargpu::client::report
