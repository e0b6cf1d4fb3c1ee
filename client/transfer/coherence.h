// When the application's mapped memory and the worker's mirrors of it (Pages) are made equal.
//
// Before work is sent: a Submission object lives around the call that sends it. After a call that
// reports work as done: after_synchronisation(). Both cost one relaxed load while no memory is
// exposed (exposure.h). Any thread; no context is needed.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <optional>

namespace fargpu::client {

struct Context;
class Session;

// Around a call that sends work which may use host memory: what the application wrote by now goes
// first. `stream`: the work's, where it has one, in which it meets deliveries (ordered_copy.h).
class Submission {
 public:
  explicit Submission(Session& session, std::optional<CUstream> stream = std::nullopt);
  ~Submission();
  Submission(const Submission&) = delete;
  Submission& operator=(const Submission&) = delete;
  // Not CUDA_SUCCESS: the work must not be sent.
  CUresult result() const { return result_; }

 private:
  Session& session_;
  bool counted_ = false;
  CUresult result_ = CUDA_SUCCESS;
};

// Before a call that waits for work: a stream may wait for a value that the application has stored.
CUresult before_wait(Session& session);
// What device code wrote comes back. `done`: as idle_mark() gave it before the wait.
CUresult after_synchronisation(Session& session, std::optional<uint64_t> done = std::nullopt);
// Before a context ends: what its work wrote would go with it. Waits for that work.
void before_context_ends(Session& session, const Context& context);
// Before a wait for everything in a context: all work that is awaited then. nullopt when other work
// may run on.
std::optional<uint64_t> idle_mark(Session& session);

}  // namespace fargpu::client
