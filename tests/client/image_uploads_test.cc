#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <span>
#include <stdexcept>
#include <thread>
#include <vector>

#include "client/process/uploads.h"

namespace fargpu::client {
namespace {

Sha256Digest hash_of(char image) { return sha256(std::as_bytes(std::span(&image, 1))); }

void wait_for(const std::function<bool()>& condition) {
  while (!condition()) std::this_thread::yield();
}

TEST(ImageUploadsTest, OneThreadSendsAndTheOthersWait) {
  ImageUploads uploads;
  std::atomic<int> sending{0}, returned{0};
  std::atomic<bool> go_on{false};
  std::vector<uint64_t> numbers(4, 99);
  std::vector<std::thread> threads;
  for (uint64_t& number : numbers) {
    threads.emplace_back([&] {
      EXPECT_EQ(uploads.bring(hash_of('a'), &number,
                              [&](uint64_t) {
                                ++sending;
                                wait_for([&] { return go_on.load(); });
                                return CUDA_SUCCESS;
                              }),
                CUDA_SUCCESS);
      ++returned;
    });
  }
  wait_for([&] { return sending == 1; });
  EXPECT_EQ(returned, 0);
  // Another image does not wait for it.
  uint64_t other = 0;
  EXPECT_EQ(uploads.bring(hash_of('b'), &other, [](uint64_t) { return CUDA_SUCCESS; }),
            CUDA_SUCCESS);
  EXPECT_NE(other, 0u);
  go_on = true;
  for (std::thread& thread : threads) thread.join();
  // A thread that came late has sent it again; the server does not mind.
  EXPECT_EQ(std::count_if(numbers.begin(), numbers.end(), [](uint64_t n) { return n != 0; }),
            sending);
}

TEST(ImageUploadsTest, AFailureIsTheSendersAndEndsTheWait) {
  ImageUploads uploads;
  uint64_t first = 0, second = 0;
  EXPECT_EQ(
      uploads.bring(hash_of('a'), &first, [](uint64_t) { return CUDA_ERROR_DEVICE_UNAVAILABLE; }),
      CUDA_ERROR_DEVICE_UNAVAILABLE);
  EXPECT_THROW(uploads.bring(hash_of('a'), &first,
                             [](uint64_t) -> CUresult { throw std::runtime_error("no"); }),
               std::runtime_error);
  EXPECT_EQ(uploads.bring(hash_of('a'), &second, [](uint64_t) { return CUDA_SUCCESS; }),
            CUDA_SUCCESS);
  EXPECT_NE(second, 0u);
  EXPECT_NE(second, first);
}

TEST(ImageUploadsTest, SoManyAtOnce) {
  ImageUploads uploads;
  std::atomic<size_t> sending{0}, most{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 40; ++i) {
    threads.emplace_back([&, i] {
      uint64_t number = 0;
      uploads.bring(hash_of(static_cast<char>(i)), &number, [&](uint64_t) {
        const size_t now = ++sending;
        for (size_t seen = most; seen < now && !most.compare_exchange_weak(seen, now);) {
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        --sending;
        return CUDA_SUCCESS;
      });
      EXPECT_NE(number, 0u);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(most, ImageUploads::kAtOnce);
}

}  // namespace
}  // namespace fargpu::client
