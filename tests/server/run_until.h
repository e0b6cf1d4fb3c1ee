// Runs an event loop of a test until a condition holds.
#pragma once

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <functional>

namespace fargpu::server {

// Whether it holds within `limit`; it is looked at every 5 ms.
inline bool run_until(boost::asio::io_context& loop, std::chrono::milliseconds limit,
                      const std::function<bool()>& condition) {
  using Clock = std::chrono::steady_clock;
  for (const auto end = Clock::now() + limit; Clock::now() < end;) {
    loop.restart();
    loop.run_for(std::chrono::milliseconds(5));
    if (condition()) return true;
  }
  return condition();
}

}  // namespace fargpu::server
