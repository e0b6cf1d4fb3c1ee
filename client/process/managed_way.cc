#include "client/process/managed_way.h"

#include "client/memory/user_faults.h"
#include "client/settings/fetch_mode.h"

namespace fargpu::client {

Result<ManagedWay> choose_managed_way() {
  FARGPU_ASSIGN_OR_RETURN(const FetchMode mode, read_managed_mode());
  if (mode == FetchMode::kEager) return ManagedWay{false, true, "FARGPU_MANAGED=eager"};
  const Status faults = UserFaults::probe(UserFaults::Mode::kWrites);
  if (!faults.ok())
    return ManagedWay{
        false, false,
        "set FARGPU_MANAGED=eager if system calls use managed memory; " + faults.message()};
  if (wants_touched(mode)) return ManagedWay{true, false, "userfaultfd"};
  return ManagedWay{false, false,
                    "this host has an adapter; set FARGPU_MANAGED=touched if system calls use "
                    "managed memory"};
}

}  // namespace fargpu::client
