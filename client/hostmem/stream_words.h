// StreamWords: words in memory shared with the worker that streams write when they have come so
// far (fgStreamSynchronize), so that a thread which waits for its stream need not wait for the
// worker.
//
// A word belongs to one wait at a time, and gets a value that it does not have. It is reused by
// another wait after a wait that has succeeded: then nothing will write it any more. One whose wait
// failed is never used again, because a write may still be under way. The words belong to one
// context, like every shared segment. Any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "client/hostmem/shared_segment.h"
#include "common/transport/transport.h"

namespace fargpu::client {

class StreamWords {
 public:
  static constexpr unsigned kWords = 64;
  static constexpr size_t kSpacing = 128;  // two lines of the cache: they are fetched in pairs

  // In memory of the caller, of kWords * kSpacing zeros, which is at `on_device` for the GPU.
  StreamWords(std::byte* memory, uint64_t on_device) : memory_(memory), on_device_(on_device) {}
  // In memory that it shares. nullptr: refused.
  static std::shared_ptr<StreamWords> make(Link& link, HostCalls& functions, Context& context);

  // A word for one wait; given back at its end.
  class Word {
   public:
    // `words` may be null.
    explicit Word(StreamWords* words)
        : words_(words), index_(words == nullptr ? -1 : words->take()) {}
    ~Word() {
      if (ended_well_) words_->give_back(index_);
    }
    Word(const Word&) = delete;
    Word& operator=(const Word&) = delete;

    // False: there was none.
    explicit operator bool() const { return index_ >= 0; }
    // Its value after the wait.
    transport::WatchedWord watched() const {
      return {&words_->word(index_), words_->values_[index_]};
    }
    uint64_t address() const { return reinterpret_cast<uint64_t>(&words_->word(index_)); }
    uint64_t device_address() const {
      return words_->on_device_ + static_cast<unsigned>(index_) * kSpacing;
    }
    // It has been written, or will never be.
    void ended_well() { ended_well_ = true; }

   private:
    StreamWords* const words_;
    const int index_;
    bool ended_well_ = false;
  };

 private:
  std::atomic<uint32_t>& word(int index) const {
    return *reinterpret_cast<std::atomic<uint32_t>*>(memory_ +
                                                     static_cast<unsigned>(index) * kSpacing);
  }
  int take();  // -1: none is left
  void give_back(int index) { free_.fetch_or(uint64_t{1} << index, std::memory_order_release); }

  std::byte* const memory_;
  const uint64_t on_device_;
  std::optional<SharedSegment> segment_;  // null: the caller's memory
  std::atomic<uint64_t> free_{~uint64_t{0}};
  std::array<uint32_t, kWords> values_{};  // of the last wait; owned by the word's user
};

// The words of a session, made when a context is waited for again and again.
class SessionStreamWords {
 public:
  SessionStreamWords(Link& link, HostCalls& functions) : link_(link), functions_(functions) {}

  // Null: not possible here, or not yet worth while.
  std::shared_ptr<StreamWords> get(Context& context);
  void context_ended(const Context& context);

 private:
  static constexpr unsigned kFirst = 2;  // the wait from which on there are words
  struct OfContext {
    unsigned waits = 0;
    bool making = false;
    std::shared_ptr<StreamWords> words;
  };
  Link& link_;
  HostCalls& functions_;
  std::mutex mutex_;                              // never held across a call
  std::map<const Context*, OfContext> contexts_;  // guarded by mutex_
};

}  // namespace fargpu::client
