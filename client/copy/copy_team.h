// CopyTeam: memcpy with several threads, for large copies between the application's memory and
// staging memory. One thread copies about 10 GB/s, less than a native copy of pageable memory.
//
// The helpers serve one copy at a time; a copy that another thread starts meanwhile runs on that
// thread alone. Helpers are started by the first large copy, sleep while there is no work, block
// all signals and end with the process. Machines with few cores have no helpers. Any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace fargpu::client {

class CopyTeam {
 public:
  // Below this the helpers' wake-up costs more than they bring.
  static constexpr size_t kAlone = 512u << 10;
  // What a thread takes at a time: small enough that all end at about the same time.
  static constexpr size_t kChunk = 128u << 10;

  // The process' team; never destroyed.
  static CopyTeam& get();
  // FARGPU_COPY_THREADS; otherwise a quarter of the cores, four at most.
  static unsigned usual_threads();

  // `threads`: how many copy, with the caller.
  explicit CopyTeam(unsigned threads) : helpers_(threads > 0 ? threads - 1 : 0) {}
  ~CopyTeam();
  CopyTeam(const CopyTeam&) = delete;
  CopyTeam& operator=(const CopyTeam&) = delete;

  void copy(void* to, const void* from, size_t bytes);

 private:
  void start();
  void help();
  // Copies chunks of the job of `round` until none is left.
  void work(uint32_t round);

  const unsigned helpers_;
  std::mutex one_at_a_time_;
  bool started_ = false;  // guarded by one_at_a_time_
  // The job. A thread that got one of its chunks from ticket_ may read these fields: they do not
  // change before all its chunks are done.
  std::byte* to_ = nullptr;
  const std::byte* from_ = nullptr;
  size_t bytes_ = 0;
  std::atomic<uint32_t> chunks_{0};
  // Round in the upper half, next chunk in the lower: a helper that is late cannot take a chunk of
  // a job that it does not know. Released by copy(), acquired by work().
  std::atomic<uint64_t> ticket_{0};
  std::atomic<uint32_t> done_{0};   // chunks copied; released by work(), acquired by copy()
  std::atomic<uint32_t> round_{0};  // what helpers sleep on; written after ticket_
  std::atomic<bool> stop_{false};
  std::atomic<unsigned> running_{0};
};

}  // namespace fargpu::client
