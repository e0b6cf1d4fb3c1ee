#include "client/process/managed_way.h"

#include "client/memory/user_faults.h"
#include "client/settings/managed_mode.h"
#include "client/settings/mapped_mode.h"

namespace fargpu::client {

Result<ManagedWay> choose_managed_way() {
  FARGPU_ASSIGN_OR_RETURN(const ManagedMode mode, read_managed_mode());
  ManagedWay way;
  if (mode == ManagedMode::kEager || mode == ManagedMode::kSignal) {
    way.is_eager = mode == ManagedMode::kEager;
    way.why = way.is_eager ? "FARGPU_MANAGED=eager" : "FARGPU_MANAGED=signal";
    return way;
  }
  const Status faults = UserFaults::probe(UserFaults::Mode::kWrites);
  if (!faults.ok() && mode == ManagedMode::kUserfaultfd)
    return Status(StatusCode::kUnsupported,
                  "FARGPU_MANAGED=userfaultfd: the system does not let this process serve its "
                  "faults: " +
                      faults.message());
  way.by_messages = faults.ok() && (mode != ManagedMode::kAuto || !has_adapter());
  way.why = way.by_messages ? "userfaultfd"
            : faults.ok() ? "this host has an adapter; set FARGPU_MANAGED=touched if system calls "
                            "use managed memory"
                          : "set FARGPU_MANAGED=eager if system calls use managed memory; " +
                                faults.message();
  return way;
}

Status check_managed_way() {
  FARGPU_ASSIGN_OR_RETURN(const ManagedMode mode, read_managed_mode());
  return mode == ManagedMode::kUserfaultfd ? choose_managed_way().status() : Status();
}

}  // namespace fargpu::client
