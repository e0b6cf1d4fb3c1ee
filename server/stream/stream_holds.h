// StreamHolds excludes two things from each other that would deadlock in the driver: streams that
// only the executor can release (held by host functions of the client), and driver calls that wait
// for all streams of a device, whichever context made them.
//
// A driver holds its locks while it waits (cuMemFree, cuModuleUnload, cuMemHostUnregister). Any
// further driver call of the executor would wait for such a lock. It would then never read the
// frame that ends the host function for which the driver waits.
//
// So such a call is made only while no stream of the device is held, and a stream is held only
// after the calls that have begun are over. Calls that wait for their turn hold up nothing else.
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

  // Called by the executor before it holds a stream of the device. Waits for calls that have begun;
  // such calls wait at most for work that needs no executor.
  void hold(CUdevice device);
  void release(CUdevice device);
  // Called by a helper thread around such a call. begin_call() waits until no stream of the device
  // is held; false: the session ends, and the call must not be made.
  bool begin_call(CUdevice device);
  void end_call(CUdevice device);
  // Whether a stream is held.
  bool any() const;
  // Ends all waits.
  void close();

 private:
  using Counts = std::map<CUdevice, size_t>;
  static bool concerns(const Counts& counts, CUdevice device);
  static void one_less(Counts& counts, CUdevice device);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Counts holds_, calls_;  // by device; guarded by mutex_
  bool closed_ = false;   // guarded by mutex_
};

}  // namespace fargpu::server
