// ThreadTeam: large work on memory with several threads: copies between the application's memory
// and staging memory, comparisons. One thread copies about 10 GB/s, less than a native copy of
// pageable memory.
//
// The helpers serve one caller at a time; what another thread asks for meanwhile runs on that
// thread alone. Helpers are started by the first large work, sleep while there is none, block all
// signals and end with the process. Machines with few cores have no helpers. Any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>

namespace fargpu {

class ThreadTeam {
 public:
  // Below this the helpers' wake-up costs more than they bring.
  static constexpr size_t kAlone = 512u << 10;
  // What a thread copies at a time: small enough that all end at about the same time.
  static constexpr size_t kChunk = 128u << 10;

  // The process' team; never destroyed.
  static ThreadTeam& get();
  // FARGPU_COPY_THREADS; otherwise a quarter of the cores, four at most.
  static unsigned usual_threads();

  // `threads`: how many copy, with the caller.
  explicit ThreadTeam(unsigned threads) : helpers_(threads > 0 ? threads - 1 : 0) {}
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  void copy(void* to, const void* from, size_t bytes);
  // Calls work(part) once for each part below `parts`, on several threads at a time, and returns
  // when all have returned. `work` must not throw.
  void run(size_t parts, const std::function<void(size_t part)>& work) { Job(*this, parts, work); }

  // The same, begun: the helpers work while the caller does something else. `work` outlives it.
  class Job {
   public:
    Job(ThreadTeam& team, size_t parts, const std::function<void(size_t part)>& work);
    ~Job() { finish(); }
    Job(const Job&) = delete;
    Job& operator=(const Job&) = delete;
    // The caller does what is left, and waits for the helpers.
    void finish();

   private:
    ThreadTeam& team_;
    const std::function<void(size_t)>& work_;
    size_t parts_;                       // to be finished; 0: none
    std::unique_lock<std::mutex> lock_;  // held: the helpers have it, as this round
    uint32_t round_ = 0;
  };

  unsigned threads() const { return helpers_ + 1; }

 private:
  void start();
  void help();
  // Does parts of the job of `round` until none is left.
  void work(uint32_t round);

  const unsigned helpers_;
  std::mutex one_at_a_time_;
  bool started_ = false;  // guarded by one_at_a_time_
  // The job. A thread that got one of its parts from ticket_ may use it: it does not change before
  // all its parts are done.
  const std::function<void(size_t)>* job_ = nullptr;
  std::atomic<uint32_t> parts_{0};
  // Round in the upper half, next part in the lower: a helper that is late cannot take a part of
  // a job that it does not know. Released by Job, acquired by work().
  std::atomic<uint64_t> ticket_{0};
  std::atomic<uint32_t> done_{0};   // parts; released by work(), acquired by Job
  std::atomic<uint32_t> round_{0};  // what helpers sleep on; written after ticket_
  std::atomic<bool> stop_{false};
  std::atomic<unsigned> running_{0};
};

}  // namespace fargpu
