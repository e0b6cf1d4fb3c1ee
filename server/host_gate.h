// HostGate: host functions of the application, which live in the client, in the order of the
// server's streams.
//
// The driver reaches a small function of ours in the stream; it tells the executor, which sends the
// notice hostCall, and holds the stream until the client's hostCallDone. enqueue(), finished(),
// outstanding() and close() belong to the executor's thread. The gate outlives the driver's
// threads: a worker closes it and then leaves the process without tearing the driver down.
#pragma once

#include <cuda.h>

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "common/base/status.h"

namespace fargpu::server {

class Worker;

class HostGate {
 public:
  explicit HostGate(Worker& worker) : worker_(worker) {}
  ~HostGate() { close(); }
  HostGate(const HostGate&) = delete;
  HostGate& operator=(const HostGate&) = delete;

  // Puts host call `id` into `stream`. with_status: as cuStreamAddCallback, which also runs after
  // an error and reports it.
  CUresult enqueue(CUstream stream, uint64_t id, bool with_status);
  // hostCallDone came: the stream goes on. kProtocol for an id that does not wait.
  Status finished(uint64_t id);
  // Some host call is in a stream: calls that make the driver wait for streams must not run on the
  // executor.
  bool outstanding() const { return !calls_.empty(); }
  // The session ends: no stream is held any more.
  void close();

 private:
  struct Call {
    HostGate* gate;
    uint64_t id;
    bool reached = false;   // guarded by mutex_
    bool released = false;  // guarded by mutex_
  };
  static void CUDA_CB reached(void* call);
  static void CUDA_CB reached_with_status(CUstream stream, CUresult status, void* call);
  void hold(Call& call, CUresult status);

  Worker& worker_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool closed_ = false;  // guarded by mutex_
  // Calls stay until finished(); the driver's thread has a reference of its own.
  std::unordered_map<uint64_t, std::shared_ptr<Call>> calls_;
};

}  // namespace fargpu::server
