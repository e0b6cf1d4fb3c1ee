// A link that is being made: the driver's link state, which the client knows by its id.
//
// The driver writes its logs into memory that it was given when the link state was made, so that
// memory and the state stay together. Drivers crash where one thread has made a state and another
// one completes it (580 does), so that a Link has a thread of its own for the driver's calls. A
// Link may be used by several threads, one call at a time. It lives until its object has ended
// (server/object/kept_objects.h), and as long as a call on it.
#pragma once

#include <cuda.h>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "server/image/jit_options.h"

namespace fargpu::server {

class Image;
struct DriverTable;

// The result of a call on a link.
struct LinkOutcome {
  CUresult result = CUDA_SUCCESS;  // the driver's
  std::string info, errors;        // the present contents of the logs
  std::vector<std::byte> image;    // of complete()
};

// A thread that does one thing after the other. Its functions: one thread at a time.
class OwnThread {
 public:
  OwnThread() = default;
  ~OwnThread();
  OwnThread(const OwnThread&) = delete;
  OwnThread& operator=(const OwnThread&) = delete;

  // Runs the job there and waits for it; starts the thread if there is none. False: the system has
  // no more threads.
  bool run(std::function<void()> job);

 private:
  void serve();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> job_;  // guarded by mutex_; null: none, or it is done
  bool ending_ = false;        // likewise
  std::thread thread_;
};

class Link : public std::enable_shared_from_this<Link> {
 public:
  static constexpr unsigned kMaxInputs = 1024;
  static constexpr size_t kMaxLinks = 512;  // of one session; each has a thread

  // `driver` outlives the link and has the functions of linking. Log sizes in bytes; 0: no such
  // log.
  Link(const DriverTable& driver, uint16_t context, JitOptions options, size_t info_bytes,
       size_t error_bytes);
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  // These may compile, which takes its time: on a helper thread, with the link's context current.
  // create() is the first.
  CUresult create();
  LinkOutcome add(CUjitInputType type, const Image& input, const std::string& name,
                  JitOptions options);
  LinkOutcome complete();

  uint16_t context() const { return context_; }
  // Its context has ended, and the driver's state with it.
  void context_has_gone();

 private:
  LinkOutcome outcome(CUresult result) const;
  // The result of the call, made by the link's own thread in the caller's context.
  CUresult there(const std::function<CUresult()>& call);

  const DriverTable& driver_;
  const uint16_t context_;
  std::mutex mutex_;  // the rest
  std::vector<char> info_, errors_;
  JitOptions options_;  // the driver writes into its values
  CUlinkState state_ = nullptr;
  OwnThread thread_;
  unsigned inputs_ = 0;
};

}  // namespace fargpu::server
