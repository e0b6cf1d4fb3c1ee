// QueueMarks: places in the streams of a session that the worker says it has reached.
//
// A mark lies behind the earlier work of its stream. The worker is asked by fgQueueMark and answers
// with a notice. The limits of pending work use marks (client/stream/stream_queue.h). Any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "client/link/link.h"
#include "client/stream/stream_queue.h"

namespace fargpu::client {

class QueueMarks {
 public:
  explicit QueueMarks(Link& link) : link_(link) {}

  // As frames name a stream.
  struct Stream {
    uint16_t context;
    uint64_t id;
  };
  // Until the operation that take() has counted, which is not sent yet, has a place. A mark that
  // the worker cannot be asked for counts as reached. Returns at once when the session is lost.
  void wait_for_place(const std::shared_ptr<StreamQueue>& queue, const Stream& stream) {
    wait(queue, queue->position(), 1, stream);
  }
  // The same for take_ahead().
  void wait_for_places(const std::shared_ptr<StreamQueue>& queue, uint32_t places,
                       const Stream& stream) {
    wait(queue, queue->position() + 1, places, stream);
  }
  // Requests a mark behind the present work of the queue, unless a request is under way; does not
  // wait.
  void follow(const std::shared_ptr<StreamQueue>& queue, const Stream& stream);
  // A mark behind everything submitted so far to the stream.
  std::shared_ptr<StreamQueue> set(const Stream& stream);
  // False: the session is lost.
  bool wait_until(const std::function<bool()>& seen);
  // Called on the receiving thread; does not block.
  void reached(uint64_t ticket);

 private:
  struct Mark {
    std::shared_ptr<StreamQueue> queue;
    uint32_t position;
  };
  // A mark at a position of the queue, which the worker is to be asked for: its ticket.
  uint64_t add(std::shared_ptr<StreamQueue> queue, uint32_t position);
  void ask(uint64_t ticket, const Stream& stream);
  // For an operation that has the last `places` up to `position`, and is not sent yet.
  void wait(const std::shared_ptr<StreamQueue>& queue, uint32_t position, uint32_t places,
            const Stream& stream);

  Link& link_;
  std::mutex mutex_;
  std::map<uint64_t, Mark> marks_;  // by ticket
  uint64_t next_ticket_ = 1;
};

}  // namespace fargpu::client
