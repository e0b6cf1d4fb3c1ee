#include <barrier>
#include <cstring>
#include <thread>

#include "client/bench/figures/participants.h"
#include "client/bench/figures/timing.h"
#include "client/bench/measure/bare.h"
#include "client/bench/measure/bare_io.h"
#include "client/bench/measure/driver.h"

namespace fargpu::bench {

namespace {

constexpr unsigned kMostConnections = 256;

// A connection on which it is said already what goes there and back.
class Conversation {
 public:
  Conversation(Fd socket, uint64_t there, uint64_t back)
      : socket_(std::move(socket)), out_(there, 1), in_(back, 1) {
    Setup setup;
    setup.there = there;
    setup.back = back;
    char bytes[sizeof setup];
    std::memcpy(bytes, &setup, sizeof setup);
    if (!send_all(socket_.get(), bytes)) fail();
  }
  void exchange() {
    if (!send_all(socket_.get(), out_) || !receive_all(socket_.get(), in_)) fail();
  }

 private:
  [[noreturn]] static void fail() { throw Failed("the other end of the bare sockets has gone"); }
  Fd socket_;
  std::vector<char> out_, in_;
};

using Conversations = std::vector<Conversation>;

// All start each exchange together, and it ends when all have ended.
Histogram together(Conversations& all, Clock::time_point end) {
  if (all.size() == 1) return repeat(end, 1, [&] { all.front().exchange(); });
  bool over = false, failed = false;
  std::barrier gate(static_cast<std::ptrdiff_t>(all.size()) + 1);
  std::vector<std::thread> threads;
  for (Conversation& one : all) {
    threads.emplace_back([&] {
      for (;;) {
        gate.arrive_and_wait();
        if (over) return;
        try {
          one.exchange();
        } catch (const Failed&) {
          __atomic_store_n(&failed, true, __ATOMIC_RELAXED);
        }
        gate.arrive_and_wait();
      }
    });
  }
  const Histogram times = repeat(end, 1, [&] {
    gate.arrive_and_wait();
    gate.arrive_and_wait();
  });
  over = true;
  gate.arrive_and_wait();
  for (std::thread& thread : threads) thread.join();
  if (failed) throw Failed("the other end of the bare sockets has gone");
  return times;
}

// Each at its own pace.
std::vector<Histogram> side_by_side(Conversations& all, Clock::time_point end) {
  std::vector<Histogram> times(all.size());
  std::vector<std::string> errors(all.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < all.size(); ++i) {
    threads.emplace_back([&, i] {
      try {
        times[i] = repeat(end, 1, [&] { all[i].exchange(); });
      } catch (const Failed& failure) {
        errors[i] = failure.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& error : errors)
    if (!error.empty()) throw Failed(error);
  return times;
}

}  // namespace

Answer BareSockets::measure(const Question& question) {
  const bool there = question.name == "to_server", back = question.name == "to_client";
  const bool round_trip = !there && !back;
  const unsigned count = std::max(1U, round_trip ? question.count : connections_);
  if (count > kMostConnections) throw Failed("more than 256 connections");
  Conversations all;
  for (unsigned i = 0; i < count; ++i) {
    const uint64_t part =
        round_trip ? question.bytes : std::max<uint64_t>(1, question.bytes / count);
    all.emplace_back(connect_(), back ? 1 : part, there ? 1 : part);
    all.back().exchange();
  }
  if (round_trip && count > 1)
    return shared_record(question.name, side_by_side(all, after(question.seconds)));
  return one_record(question.name, together(all, after(question.seconds)));
}

}  // namespace fargpu::bench
