#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "client/bench/figures/timing.h"
#include "client/bench/measure/bare.h"
#include "client/bench/measure/driver.h"
#include "common/transport/shm/shm_segment.h"

namespace fargpu::bench {

namespace {

constexpr unsigned kPausesBeforeYield = 2000;  // some tens of microseconds
constexpr uint64_t kRing = 4 << 20;            // as that of a session

// One end of the two rings. Spins; where there are few cores it lets others run.
class End {
 public:
  End(transport::RingMemory out, transport::RingMemory in, const std::atomic<bool>& stop)
      : out_(out), in_(in), stop_(stop) {}

  bool put(std::span<const char> bytes) {
    std::span<const std::byte> rest = std::as_bytes(bytes);
    while (!rest.empty()) {
      if (!out_.refresh()) return false;
      const size_t written = out_.write(rest);
      if (written == 0 && !pause()) return false;
      if (written > 0) out_.publish();
      rest = rest.subspan(written);
    }
    return true;
  }
  bool take(std::span<char> room) {
    std::span<std::byte> rest = std::as_writable_bytes(room);
    while (!rest.empty()) {
      if (!in_.anything_new()) {
        if (!pause()) return false;
        continue;
      }
      if (!in_.refresh()) return false;
      const size_t part = std::min(rest.size(), in_.available());
      in_.read(rest.first(part));
      (void)in_.publish();
      rest = rest.subspan(part);
    }
    return true;
  }

 private:
  bool pause() {
    if (bare_ends_spin() || ++pauses_ % kPausesBeforeYield != 0) {
      __builtin_ia32_pause();
    } else {
      std::this_thread::yield();
    }
    return !stop_.load(std::memory_order_relaxed);
  }
  transport::RingProducer out_;
  transport::RingConsumer in_;
  const std::atomic<bool>& stop_;
  unsigned pauses_ = 0;
};

}  // namespace

Answer measure_rings(const Question& question) {
  if (question.count > 1) return {{}, "rings are measured between two threads"};
  auto segment = transport::ShmSegment::create({kRing, kRing});
  if (!segment.ok()) throw Failed(segment.status().message());
  const uint64_t bytes = std::max<uint64_t>(1, question.bytes);
  const uint64_t there = question.name == "to_client" ? 1 : bytes;
  const uint64_t back = question.name == "to_server" ? 1 : bytes;
  std::atomic<bool> stop{false};
  std::thread server([&] {
    std::vector<char> in(there, 1), out(back, 1);
    End end(segment->to_client(), segment->to_server(), stop);
    while (end.take(in) && end.put(out)) {
    }
  });
  std::vector<char> out(there, 1), in(back, 1);
  End end(segment->to_server(), segment->to_client(), stop);
  bool whole = true;
  const auto exchange = [&] { whole = end.put(out) && end.take(in) && whole; };
  Answer answer = timed(question, 1, exchange);
  stop = true;
  server.join();
  if (!whole) throw Failed("a ring broke");
  return answer;
}

}  // namespace fargpu::bench
