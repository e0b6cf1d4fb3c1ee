// What the process did with its GPUs, told once at its end: FARGPU_REPORT=1 (`fargpu run --report`)
// prints it on stderr, FARGPU_REPORT=/a/path appends it to a file, as a line of JSON
// (report_json.h) where the path ends in .json. A process that made no call
// prints nothing, nor does one that ends by a signal or _exit(). A forked child counts anew.
// FARGPU_REPORT_WHERE=1 adds where in the program calls waited (report_call_sites.h).
//
// Off: a relaxed load for each copy, image, wait, and frame without a reply; entries ask nothing
// that they would not ask for the trace (trace.h). On: relaxed counters of the thread. Any thread.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>

#include "common/rpc/thread_calls.h"

namespace fargpu::client::report {

inline constinit std::atomic<bool> is_on{false};
inline bool enabled() { return is_on.load(std::memory_order_relaxed); }

// Reads FARGPU_REPORT. Once, before anything is counted (trace.cc does it at the first call).
void start_if_asked();

// One call through an entry. `before`: the thread's counts when it began.
void count_call(uint16_t opcode, const rpc::ThreadCalls& before, uint64_t nanoseconds,
                CUresult result);

// How bytes of copies cross between host and device (client/transfer/routes.h).
enum class Route : uint8_t { kMirror, kShared, kFetch, kDeliver, kRemote, kStaged, kFrames };
inline constexpr unsigned kRoutes = 7;
void count_copy(bool to_device, Route route, uint64_t bytes);

// An image that the server had already; one that was sent, as so many bytes.
void count_image_found();
void count_image_sent(uint64_t bytes, uint64_t bytes_sent);

}  // namespace fargpu::client::report
