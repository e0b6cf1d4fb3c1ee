// PrintingCode: whether device code of a session may print (printf in kernels).
//
// A driver writes the output of kernels when their context is synchronised, which adds up to half
// of the wait's own time. Where no code prints it can be left out. Code that prints names the
// function vprintf, so images are looked through for it, by a thread of this object, one after the
// other. An image counts as one that prints until it has been looked through, and for good where it
// cannot be. Behind the first one that prints no other is looked through.
//
// loads() and may_print() on one thread (the executor's).
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <thread>

namespace fargpu::server {

// Whether the image (a cubin, PTX text, or a container of both) names vprintf, or may do so. True
// for unreadable images. `stop` is looked at between the entries of a container.
bool may_print(std::span<const std::byte> image, const std::atomic<bool>& stop);

class PrintingCode {
 public:
  PrintingCode() = default;
  // Ends the thread, behind the entry that it looks through.
  ~PrintingCode();
  PrintingCode(const PrintingCode&) = delete;
  PrintingCode& operator=(const PrintingCode&) = delete;

  // The driver is about to get this image. `owner` keeps the bytes until they were looked through,
  // and may go on that thread.
  void loads(std::span<const std::byte> image, std::shared_ptr<const void> owner);
  bool may_print() const { return suspects_.load(std::memory_order_relaxed) != 0; }

 private:
  struct Image {
    std::span<const std::byte> bytes;
    std::shared_ptr<const void> owner;
  };
  bool looks_quiet(std::span<const std::byte> image) const;
  void run();

  // Images that print, or that were not looked through (yet).
  std::atomic<size_t> suspects_{0};
  std::atomic<bool> prints_{false};  // one of them does
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;
  std::condition_variable more_;
  std::deque<Image> images_;  // guarded by mutex_
  std::thread thread_;        // from the first image on
};

}  // namespace fargpu::server
