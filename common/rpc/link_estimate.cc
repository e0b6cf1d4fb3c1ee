#include "common/rpc/link_estimate.h"

#include <algorithm>

namespace fargpu::rpc {
namespace {

// As much may wait to be sent before the program waits: about what sockets hold.
constexpr double kBacklogBytes = 4 << 20;

double passing(size_t rate, double bytes) { return bytes * 8e9 / kLinkRates[rate]; }

// `free_at`: of the direction. `lag`: of the process, which waits if too much is under way.
void send_one(ByRate& free_at, ByRate& lag, double now, double bytes) {
  for (size_t i = 0; i < kLinkRates.size(); ++i) {
    const double ready = now + lag[i];
    free_at[i] = std::max(free_at[i], ready) + passing(i, bytes);
    lag[i] += std::max(0.0, free_at[i] - ready - passing(i, std::max(kBacklogBytes, bytes)));
  }
}

// A frame that the server began to send at `begun`, had there been no lag, and that came at `now`.
// The lag that it brings.
double receive_one(double& free_at, double server_lag, double begun, double now, double passes) {
  free_at = std::max(free_at, begun + server_lag) + passes;
  return std::max(free_at, now + server_lag) - now;
}

struct Lags {
  double in_order, overlapped;
};

Lags receive(LinkUse& link, const LinkMark& mark, size_t i, double now, double bytes) {
  const double passes = passing(i, bytes);
  const double late = mark.in_order[i] - mark.sent;
  const double little = std::max(mark.first_lag[i], mark.overlapped[i] - now);
  return {receive_one(link.to_client.in_order[i], late, now, now, passes),
          receive_one(link.to_client.overlapped[i], little, std::min(mark.sent, now), now, passes)};
}

}  // namespace

void LinkEstimate::send(LinkUse& link, double now, uint64_t bytes) {
  send_one(link.to_server.in_order, times_.in_order, now, static_cast<double>(bytes));
  send_one(link.to_server.overlapped, times_.overlapped, now, static_cast<double>(bytes));
  LinkMark& mark = link.last;
  mark.sent = now;
  mark.in_a_row = times_.in_a_row;
  mark.in_order = link.to_server.in_order;
  mark.overlapped = link.to_server.overlapped;
  if (!link.awaits_answer) {
    for (size_t i = 0; i < kLinkRates.size(); ++i) mark.first_lag[i] = mark.overlapped[i] - now;
  }
  link.awaits_answer = true;
}

void LinkEstimate::count(uint64_t in_a_row, uint64_t of_thread) {
  ++times_.round_trips;
  times_.in_a_row = std::max(times_.in_a_row, in_a_row + 1);
  times_.most_of_a_thread = std::max(times_.most_of_a_thread, of_thread);
}

void LinkEstimate::answer(LinkUse& link, const LinkMark& mark, double now, uint64_t bytes,
                          bool round_trip, uint64_t of_thread) {
  for (size_t i = 0; i < kLinkRates.size(); ++i) {
    const Lags lags = receive(link, mark, i, now, static_cast<double>(bytes));
    times_.in_order[i] = std::max(times_.in_order[i], lags.in_order);
    times_.overlapped[i] = std::max(times_.overlapped[i], lags.overlapped);
  }
  link.awaits_answer = false;
  if (round_trip) count(mark.in_a_row, of_thread);
}

void LinkEstimate::notice(LinkUse& link, double now, uint64_t bytes) {
  for (size_t i = 0; i < kLinkRates.size(); ++i) {
    const Lags lags = receive(link, link.last, i, now, static_cast<double>(bytes));
    link.noticed.in_order[i] = lags.in_order;
    link.noticed.overlapped[i] = lags.overlapped;
  }
}

void LinkEstimate::see_notice(LinkUse& link, uint64_t in_a_row, bool round_trip,
                              uint64_t of_thread) {
  for (size_t i = 0; i < kLinkRates.size(); ++i) {
    times_.in_order[i] = std::max(times_.in_order[i], link.noticed.in_order[i]);
    times_.overlapped[i] = std::max(times_.overlapped[i], link.noticed.overlapped[i]);
  }
  if (round_trip) count(in_a_row, of_thread);
  link.awaits_answer = false;
}

}  // namespace fargpu::rpc
