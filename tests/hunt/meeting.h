// What the two processes of a program share: a page of plain memory with tokens, IPC handles and
// the first failure; and the second process itself, which runs program after program.
//
// Any thread of either process, but for start() and the ends.
#pragma once

#include <cuda.h>
#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

namespace fargpu::hunt {

// All zero at the beginning of a program.
struct SharedPage {
  static constexpr size_t kMost = 96, kMostTokens = 1024;
  std::array<std::atomic<bool>, kMostTokens> tokens;
  std::array<CUipcMemHandle, kMost> memory;  // by buffer
  std::array<CUipcEventHandle, kMost> events;
  std::atomic<int> arrived;  // at all meetings so far
  std::atomic<bool> failed;
  std::array<char, 2000> failure;  // by the process that set `failed` first
};

// What the second process is asked to run.
struct Request {
  uint64_t seed;
  uint32_t mistake, without;  // how many numbers follow
};

class Meeting {
 public:
  // Of the second process, with the descriptors that it was started with.
  Meeting(int page, int socket);
  // Starts the second process: this program, with --second.
  static Meeting start();
  Meeting(Meeting&& other) noexcept;
  Meeting& operator=(Meeting&&) = delete;
  ~Meeting();

  SharedPage& page() const { return *page_; }

  // First process: the second one runs this program, too.
  void begin(uint64_t seed, uint32_t mistake, const std::vector<size_t>& without);
  // Second process: false when there is nothing more to do.
  bool next(uint64_t& seed, uint32_t& mistake, std::vector<size_t>& without) const;

  // Returns when both processes are here for the `count`th time, or when one has failed.
  void meet(int count) const;
  void fail(const std::string& why) const;
  bool failed() const { return page_->failed; }
  // First process: fails if the other one is no more.
  void look_after_other() const;
  // First process: waits for its end.
  void await_end();
  bool has_ended() const { return child_ < 0; }

 private:
  Meeting(SharedPage* page, int socket, pid_t child)
      : page_(page), socket_(socket), child_(child) {}

  SharedPage* page_;
  int socket_;
  pid_t child_;  // 0: this is the second process; -1: it has ended
};

}  // namespace fargpu::hunt
