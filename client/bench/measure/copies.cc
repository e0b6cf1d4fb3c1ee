// Copies: the time from the call to the end of the copy, as the caller sees it.
#include <algorithm>
#include <atomic>
#include <string>
#include <thread>

#include "client/bench/figures/timing.h"
#include "client/bench/measure/cases.h"
#include "client/bench/measure/streams.h"
#include "client/bench/measure/waiting_calls.h"

namespace fargpu::bench {

namespace {

constexpr uint64_t kLarge = 16 << 20;  // one copy warms up as much as any other

template <typename Copy>
Answer copied(const Question& question, const Copy& copy) {
  if (question.bytes < kLarge) return timed(question, 1, copy);
  return one_record(question.name, repeat(after(question.seconds), 1, copy));
}

Answer to_device(Gpu& gpu, const Question& question) {
  char* const from = gpu.host(question.memory);
  const CUdeviceptr to = gpu.device();
  return copied(question, [&] {
    NEED(cuMemcpyHtoDAsync(to, from, question.bytes, gpu.stream()));
    gpu.synchronize();
  });
}

Answer to_host(Gpu& gpu, const Question& question) {
  char* const to = gpu.host(question.memory);
  const CUdeviceptr from = gpu.device();
  return copied(question, [&] {
    NEED(cuMemcpyDtoHAsync(to, from, question.bytes, gpu.stream()));
    gpu.synchronize();
  });
}

Answer on_device(Gpu& gpu, const Question& question) {
  const CUdeviceptr from = gpu.device(0), to = gpu.device(1);
  return copied(question, [&] {
    NEED(cuMemcpyDtoDAsync(to, from, question.bytes, gpu.stream()));
    gpu.synchronize();
  });
}

// A copy in one direction while two of the same size go in the other one.
template <typename Copy, typename Opposite>
Answer against(Gpu& gpu, const Question& question, const Copy& copy, const Opposite& opposite) {
  const Streams others(1);
  const CUstream other = others[0];
  Histogram times;
  const Clock::time_point end = after(question.seconds);
  do {
    opposite(other);
    opposite(other);
    const Clock::time_point begin = Clock::now();
    copy(gpu.stream());
    gpu.synchronize();
    times.add(since(begin));
    NEED(cuStreamSynchronize(other));
  } while (Clock::now() < end);
  return one_record(question.name, times);
}

// Both at once: the two measurements differ in which of them is timed.
template <typename Measure>
Answer both_ways(Gpu& gpu, const Question& question, const Measure& measure) {
  char* const out = gpu.host(question.memory, 0);
  char* const in = gpu.host(question.memory, 1);
  const CUdeviceptr there = gpu.device(0), from_there = gpu.device(1);
  const auto to_device = [=](CUstream stream) {
    NEED(cuMemcpyHtoDAsync(there, out, question.bytes, stream));
  };
  const auto to_host = [=](CUstream stream) {
    NEED(cuMemcpyDtoHAsync(in, from_there, question.bytes, stream));
  };
  return measure(to_device, to_host);
}

// A thread that keeps two copies under way in a stream of its own, until it is asked to end.
class CopyingThread {
 public:
  template <typename Copy>
  explicit CopyingThread(const Copy& copy) {
    CUcontext context = nullptr;
    NEED(cuDevicePrimaryCtxRetain(&context, CUdevice{0}));
    thread_ = std::thread([this, context, copy] { run(context, copy); });
    while (!copying_.load(std::memory_order_acquire)) std::this_thread::yield();
  }
  ~CopyingThread() { join(); }
  CopyingThread(const CopyingThread&) = delete;
  CopyingThread& operator=(const CopyingThread&) = delete;

  void end() {
    join();
    if (!error_.empty()) throw Failed(error_);
  }

 private:
  template <typename Copy>
  void run(CUcontext context, const Copy& copy) try {
    NEED(cuCtxSetCurrent(context));
    const Streams streams(2);
    for (size_t i = 0; !end_.load(std::memory_order_relaxed); ++i) {
      copy(streams[i]);
      copying_.store(true, std::memory_order_release);
      NEED(cuStreamSynchronize(streams[i + 1]));
    }
    streams.synchronize();
  } catch (const Failed& failure) {
    error_ = failure.what();
    copying_.store(true, std::memory_order_release);
  }
  void join() {
    end_.store(true, std::memory_order_relaxed);
    if (thread_.joinable()) thread_.join();
  }

  std::atomic<bool> copying_{false}, end_{false};
  std::string error_;  // by the thread, until it has ended
  std::thread thread_;
};

// Copies of pinned memory that the question says nothing of: its figures are those of the call.
Question copies_beside(Gpu& gpu, const Question& question) {
  Question copies = question;
  copies.memory = "pinned";
  copies.bytes = std::min<uint64_t>(gpu.largest(), kLarge);
  return copies;
}

template <typename Copy, typename Call>
Answer call_beside(const Question& question, const Copy& copy, const Call& call) {
  CopyingThread copies(copy);
  Answer answer = timed(question, 1, call);
  copies.end();
  return answer;
}

template <typename Call>
Answer beside_to_device(Gpu& gpu, const Question& question, const Call& call) {
  return both_ways(gpu, copies_beside(gpu, question), [&](const auto& to_device, const auto&) {
    return call_beside(question, to_device, call);
  });
}

template <typename Call>
Answer beside_to_host(Gpu& gpu, const Question& question, const Call& call) {
  return both_ways(gpu, copies_beside(gpu, question), [&](const auto&, const auto& to_host) {
    return call_beside(question, to_host, call);
  });
}

Answer to_device_against(Gpu& gpu, const Question& question) {
  return both_ways(gpu, question, [&](const auto& to_device, const auto& to_host) {
    return against(gpu, question, to_device, to_host);
  });
}

Answer to_host_against(Gpu& gpu, const Question& question) {
  return both_ways(gpu, question, [&](const auto& to_device, const auto& to_host) {
    return against(gpu, question, to_host, to_device);
  });
}

}  // namespace

void add_copies(Cases& cases) {
  cases["host_to_device_memcpy_ce"] = to_device;
  cases["device_to_host_memcpy_ce"] = to_host;
  cases["device_local_copy"] = on_device;
  cases["host_to_device_bidirectional_memcpy_ce"] = to_device_against;
  cases["device_to_host_bidirectional_memcpy_ce"] = to_host_against;
  cases["call_sync_beside_host_to_device"] = [](Gpu& gpu, const Question& question) {
    return beside_to_device(gpu, question, [&] { query_stream(gpu); });
  };
  cases["call_sync_beside_device_to_host"] = [](Gpu& gpu, const Question& question) {
    return beside_to_host(gpu, question, [&] { query_stream(gpu); });
  };
  cases["call_get_beside_host_to_device"] = [](Gpu& gpu, const Question& question) {
    return beside_to_device(gpu, question, get_limit);
  };
  cases["call_get_beside_device_to_host"] = [](Gpu& gpu, const Question& question) {
    return beside_to_host(gpu, question, get_limit);
  };
}

}  // namespace fargpu::bench
