// Which calls would help most to change, over a link. Pure functions.
#pragma once

#include "client/bench/predict.h"

namespace fargpu::bench {

struct Advice {
  FunctionCalls function;
  double waits_ns = 0, bytes_ns = 0;  // time of its round trips and its data over the link
  double share = 0;                   // of the predicted time, both
  std::vector<PlaceCalls> places;     // where they were made, most round trips first, if known
};

// The longest first; advice worth at least 1 %, at most `most` pieces. Where waits of threads
// overlapped, each function has its part of the ones in a row.
std::vector<Advice> advise(const Run& run, const Link& link, const Shares& shares, size_t most);

// "512 waits in cuMemcpyDtoH_v2, 4 bytes each: 31 % of the time"
std::string to_text(const Advice& advice);
// "from train.py:88 in step: 500 by torch/_tensor.py:12 in item", of its places that have most
// round trips, at most `most`.
std::vector<std::string> places_to_text(const Advice& advice, size_t most);
// A replacement for the call; empty where there is no advice.
std::string instead_of(const std::string& function);

}  // namespace fargpu::bench
