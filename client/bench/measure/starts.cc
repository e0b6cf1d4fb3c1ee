#include "client/bench/measure/starts.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <new>
#include <thread>

#include "client/bench/figures/participants.h"
#include "client/bench/figures/timing.h"
#include "client/bench/measure/child.h"
#include "client/bench/measure/gpu.h"

namespace fargpu::bench {

namespace {

constexpr double kStartLimit = 60;  // seconds, of one session or of all that start at once
constexpr double kEndLimit = 10;    // of one that was told to stop
constexpr unsigned kImageKernels = 64;
constexpr auto kPause = std::chrono::milliseconds(1);

void load_or_fail() {
  if (const Status status = load_driver(); !status.ok()) throw Failed(status.message());
}

Histogram single(uint64_t time) {
  Histogram times;
  times.add(time);
  return times;
}

// In a fresh process: the load of `image`, the first that it does.
Answer start_and_load(const std::string& image, const std::string& load_name) {
  load_or_fail();
  const Clock::time_point begin = Clock::now();
  enter_context();
  const uint64_t started = since(begin);
  const Clock::time_point before_load = Clock::now();
  CUmodule module = nullptr;
  NEED(cuModuleLoadData(&module, image.c_str()));
  const uint64_t loaded = since(before_load);
  CUfunction kernel = nullptr;
  NEED(cuModuleGetFunction(&kernel, module, "kernel_0"));
  NEED(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  NEED(cuCtxSynchronize());
  const uint64_t first = since(begin);
  return {{{"session_start", single(started), {}},
           {"first_kernel", single(first), {}},
           {load_name, single(loaded), {}}},
          ""};
}

// What the processes of measure_sessions() share. `go`: 0 wait, 1 measure, 2 stop.
struct Board {
  alignas(64) std::atomic<unsigned> ready{0};
  std::atomic<unsigned> failed{0};
  alignas(64) std::atomic<int> go{0};
};

// One session: the times of a call that waits for the server, at least one, while the board says
// so.
Answer call_while_told(Board& board) try {
  load_or_fail();
  enter_context();
  const auto call = [] { NEED(cuStreamQuery(CU_STREAM_LEGACY)); };
  call();
  board.ready.fetch_add(1);
  while (board.go.load() == 0) std::this_thread::sleep_for(kPause);
  Histogram times;
  do {
    const Clock::time_point begin = Clock::now();
    call();
    times.add(since(begin));
  } while (board.go.load(std::memory_order_relaxed) == 1);
  return one_record("session", times);
} catch (const Failed&) {
  board.failed.fetch_add(1);
  throw;
}

class SharedBoard {
 public:
  SharedBoard() {
    void* const memory =
        ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw Failed(system_error("mmap", errno).message());
    board_ = new (memory) Board;
  }
  SharedBoard(const SharedBoard&) = delete;
  SharedBoard& operator=(const SharedBoard&) = delete;
  ~SharedBoard() { ::munmap(board_, sizeof(Board)); }
  Board& operator*() const { return *board_; }
  Board* operator->() const { return board_; }

 private:
  Board* board_ = nullptr;
};

}  // namespace

Answer measure_start() {
  // The image is new to everybody the first time, and known to the server the second time.
  const std::string image =
      image_text(kImageKernels, std::to_string(::getpid()) + " " +
                                    std::to_string(Clock::now().time_since_epoch().count()));
  Child cold([&] { return start_and_load(image, "image_load_cold"); });
  Answer answer = cold.wait(kStartLimit);
  Child cached([&] { return start_and_load(image, "image_load_cached"); });
  for (Record& record : cached.wait(kStartLimit).records)
    if (record.name == "image_load_cached") answer.records.push_back(std::move(record));
  return answer;
}

Answer measure_sessions(const Question& question) {
  const SharedBoard board;
  std::vector<Child> sessions;
  for (unsigned i = 0; i < question.count; ++i)
    sessions.emplace_back([&] { return call_while_told(*board); });
  const Clock::time_point limit = after(kStartLimit);
  while (board->ready.load() < question.count && board->failed.load() == 0 && Clock::now() < limit)
    std::this_thread::sleep_for(kPause);
  const bool all = board->ready.load() == question.count;
  if (all) {
    board->go.store(1);
    std::this_thread::sleep_until(after(question.seconds));
  }
  board->go.store(2);
  std::vector<Histogram> times;
  for (Child& session : sessions) times.push_back(session.wait(kEndLimit).records.at(0).times);
  if (!all) throw Failed("not all sessions had started after a minute");
  return shared_record(question.name, times);
}

}  // namespace fargpu::bench
