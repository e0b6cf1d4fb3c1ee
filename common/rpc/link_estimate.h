// Estimates the time of a process's frames on slower links than the present one. Only sums are
// kept, so any number of calls may pass.
//
// Round trips: a wait for an answer costs one. Waits of several threads that overlap in time cost
// one together: `in_a_row` counts along the longest chain of waits of which each began after the
// one before it had ended. `most_of_a_thread` is the number of waits of the busiest thread.
//
// Bytes: a clock for each of some rates says how far the process would lag behind what happens. In
// each direction frames pass one behind the other, as over an emulated link (transport/link). The
// client cannot see the server's work meanwhile, so there are two assumptions:
//   in order     the server's work begins when all bytes before the question have come
//   overlapped   the server works while bytes come, and they come while it works
// The truth lies between them.
//
// No clock and no lock of its own: times are nanoseconds of any clock. One thread at a time.
#pragma once

#include <array>
#include <cstdint>

namespace fargpu::rpc {

// Bits per second.
inline constexpr std::array kLinkRates{1e9, 2.5e9, 5e9, 10e9, 25e9, 50e9, 100e9, 200e9, 400e9};
using ByRate = std::array<double, kLinkRates.size()>;  // nanoseconds

struct LinkTimes {
  uint64_t round_trips = 0, in_a_row = 0, most_of_a_thread = 0;
  ByRate in_order{}, overlapped{};  // the lag of the process
};

// Where the process and its link stood when a frame was sent.
struct LinkMark {
  double sent = 0;
  uint64_t in_a_row = 0;
  ByRate in_order{};                 // when the frame has passed
  ByRate overlapped{}, first_lag{};  // the same; the lag of the first frame since the last answer
};

// The link of one session, as far as it has been used.
struct LinkUse {
  struct Direction {
    ByRate in_order{}, overlapped{};  // when it is free
  };
  Direction to_server, to_client;
  LinkMark last;               // of the last frame to the server
  LinkTimes noticed;           // the lag at the last frame that answered nothing
  bool awaits_answer = false;  // a frame was sent after the last answer
};

class LinkEstimate {
 public:
  // A frame leaves. The mark holds the earliest time of an answer; it stays in link.last, too.
  void send(LinkUse& link, double now, uint64_t bytes);
  // A wait is over, with an answer of so many bytes to the frame of `mark`. `round_trip`: false for
  // an answer that said "not yet": on a slower link a program asks less often. `of_thread`: how
  // many round trips the waiting thread has made with this one.
  void answer(LinkUse& link, const LinkMark& mark, double now, uint64_t bytes, bool round_trip,
              uint64_t of_thread);
  // A frame that answers no call has come.
  void notice(LinkUse& link, double now, uint64_t bytes);
  // A wait for such a frame is over. `in_a_row`: times().in_a_row when it began.
  void see_notice(LinkUse& link, uint64_t in_a_row, bool round_trip, uint64_t of_thread);

  const LinkTimes& times() const { return times_; }

 private:
  void count(uint64_t in_a_row, uint64_t of_thread);
  LinkTimes times_;
};

}  // namespace fargpu::rpc
