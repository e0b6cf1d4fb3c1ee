// Which calls would help most to change, over a link. Pure functions.
#pragma once

#include "client/bench/predict/predict.h"

namespace fargpu::bench {

struct Advice {
  FunctionCalls function;
  double waits_ns = 0, bytes_ns = 0;  // what its round trips and its data take over the link
  double share = 0;                   // of the predicted time, both
};

// The longest first; those from 1 % on, at most `most`. Where waits of threads overlapped, each
// function has its part of the ones in a row.
std::vector<Advice> advise(const Run& run, const Link& link, const Shares& shares, size_t most);

// "512 waits in cuMemcpyDtoH_v2, 4 bytes each: 31 % of the time"
std::string to_text(const Advice& advice);
// What a program could do instead; empty where there is no advice.
std::string instead_of(const std::string& function);

}  // namespace fargpu::bench
