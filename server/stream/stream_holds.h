// StreamHolds: keeps two things apart that must not meet in the driver: streams that only the
// executor lets go on (host functions of the client), and driver calls that wait for all streams of
// a device, whichever context made them.
//
// A driver waits while it holds its locks (cuMemFree, cuModuleUnload, cuMemHostUnregister). The
// executor would then stand before such a lock in its next call, whatever that is, and the end of
// the host function that the driver waits for would never be read.
//
// So such a call is made when no stream of the device is held, and a stream is not held before the
// calls that have begun are over. Calls that wait for their turn hold up nobody.
#pragma once

#include <cuda.h>

#include <condition_variable>
#include <cstddef>
#include <map>
#include <mutex>

namespace fargpu::server {

class StreamHolds {
 public:
  // Of calls that wait for every device of the session.
  static constexpr CUdevice kEveryDevice = -1;

  // The executor, before it holds a stream of the device. Waits for calls that have begun, which
  // themselves wait at most for work that goes on by itself.
  void hold(CUdevice device);
  void let_go(CUdevice device);
  // A helper thread, around such a call. Waits until no stream of the device is held; false: the
  // session ends, and the call is not to be made.
  bool begin_call(CUdevice device);
  void end_call(CUdevice device);
  // Nobody waits any more.
  void close();

 private:
  using Counts = std::map<CUdevice, size_t>;
  static bool concerns(const Counts& counts, CUdevice device);
  static void one_less(Counts& counts, CUdevice device);

  std::mutex mutex_;
  std::condition_variable changed_;
  Counts holds_, calls_;  // by device; guarded by mutex_
  bool closed_ = false;   // guarded by mutex_
};

}  // namespace fargpu::server
