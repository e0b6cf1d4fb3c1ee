// Taking times: every measurement of the program goes through here. One thread each.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

#include "client/bench/figures/exchange.h"

namespace fargpu::bench {

using Clock = std::chrono::steady_clock;

inline uint64_t nanoseconds(Clock::duration time) {
  return static_cast<uint64_t>(
      std::max<int64_t>(0, std::chrono::duration_cast<std::chrono::nanoseconds>(time).count()));
}
inline uint64_t since(Clock::time_point begin) { return nanoseconds(Clock::now() - begin); }

inline Clock::time_point after(double seconds) {
  return Clock::now() +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

inline Answer one_record(const std::string& name, const Histogram& times) {
  return {{{name, times, {}}}, ""};
}

// Calls `work` again and again until `end`, at least once. One call of `work` does `batch` equal
// things, of which each counts with its part of the time: a single one may take less than reading
// the clock does.
template <typename Work>
Histogram repeat(Clock::time_point end, uint64_t batch, const Work& work) {
  Histogram times;
  do {
    const Clock::time_point begin = Clock::now();
    work();
    times.add(since(begin) / batch, batch);
  } while (Clock::now() < end);
  return times;
}

// The same after a first time that does not count.
template <typename Work>
Answer timed(const Question& question, uint64_t batch, const Work& work) {
  work();
  return one_record(question.name, repeat(after(question.seconds), batch, work));
}

// Bursts of `length` calls. Two records: `name`, the caller's time for a call while earlier calls
// are under way; `name`_done, the time per call until `settle` has seen the end of all. Every call
// of a burst counts with its part of the burst's time.
template <typename Work, typename Settle>
Answer bursts(const Question& question, unsigned length, const Work& work, const Settle& settle) {
  Histogram caller, done;
  const auto burst = [&](unsigned calls) {
    const Clock::time_point begin = Clock::now();
    for (unsigned i = 0; i < calls; ++i) work(i);
    const uint64_t sent = since(begin);
    settle();
    return std::pair(sent / calls, since(begin) / calls);
  };
  (void)burst(std::max(1U, length / 10));  // does not count
  const Clock::time_point end = after(question.seconds);
  do {
    const auto [call, all] = burst(length);
    caller.add(call, length);
    done.add(all, length);
  } while (Clock::now() < end);
  return {{{question.name, caller, {}}, {question.name + "_done", done, {}}}, ""};
}

}  // namespace fargpu::bench
