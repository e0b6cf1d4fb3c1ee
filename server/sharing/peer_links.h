// PeerLinks: sockets between this worker and those of other sessions of its job, over which
// exported objects are asked for. The daemon makes them (schema/worker.capnp, `connectPeer`), so
// that no worker reaches a session of another job.
//
// take() and arrived() are called on the watch's thread, everything else on the executor's.
#pragma once

#include <cuda.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "common/base/fd.h"
#include "server/core/posted_tasks.h"
#include "server/handover/worker_messages.h"
#include "server/sharing/export_handle.h"

namespace fargpu::server {

// The bodies of messages between workers. Fields are added at their ends.
struct PeerQuestion {
  ShareSecret secret{};
  SharedKind kind{};
  std::array<uint16_t, 3> unused{};
};
struct PeerAnswer {
  int32_t result = CUDA_SUCCESS;  // a CUresult
  int32_t device = 0;             // ordinal in the job
  uint64_t bytes = 0;
  std::array<std::byte, 64> handle{};  // the driver's, of IPC and of memory of pools
};
struct PeerFarewell {
  ShareSecret secret{};  // of an object that its exporter has no more; the answer repeats it
};

class PeerLinks {
 public:
  using LinkId = uint64_t;
  using OnAnswer = std::function<void(const PeerAnswer&, Fd descriptor)>;
  // A request of another session; the descriptor that is returned goes with the answer.
  using OnQuestion = std::function<Fd(LinkId from, const PeerQuestion&, PeerAnswer*)>;
  // The exporting session has ended, or does not have the object of the secret any more.
  using OnEnd = std::function<void(uint64_t session)>;
  using OnFarewell = std::function<void(const ShareSecret&)>;
  // The other end of a link has heard a farewell; without a secret: the link is gone.
  using OnHeard = std::function<void(LinkId, const ShareSecret*)>;

  // `control`: the socket to the daemon, which outlives this; `daemon_version` as it said.
  static Result<std::unique_ptr<PeerLinks>> create(int control, uint16_t daemon_version);
  PeerLinks(const PeerLinks&) = delete;
  PeerLinks& operator=(const PeerLinks&) = delete;

  // Readable when take() has something to do: also when the daemon has said something.
  int descriptor() const { return epoll_.get(); }
  // `take_command` reads one message of the daemon; false: there will be no further one.
  void take(const std::function<bool()>& take_command);
  // The daemon's answer, and a socket that another session has asked for.
  void arrived(const ReceivedMessage& message, Fd socket);

  // From now on, until close(), the executor receives the messages.
  void open(PostedTasks& posted, OnQuestion on_question, OnEnd on_end, OnFarewell on_farewell,
            OnHeard on_heard);
  void close();
  // `on_answer` is called once: INVALID_VALUE: there is no such session (any more), or it does not
  // know the secret.
  void ask(uint64_t session, const PeerQuestion& question, OnAnswer on_answer);
  // False: it cannot be said, since the other session has ended or reads nothing.
  bool say_farewell(LinkId link, const ShareSecret& secret);

 private:
  struct Link {
    Fd socket;
    uint64_t session = 0;
  };
  struct Open {       // a question
    LinkId link = 0;  // 0: there is none yet
    uint64_t session = 0;
    PeerQuestion question;
    OnAnswer on_answer;
  };
  PeerLinks(Fd epoll, int control, uint16_t daemon_version)
      : epoll_(std::move(epoll)), control_(control), daemon_version_(daemon_version) {}
  std::shared_ptr<Link> find(LinkId id);
  void post(std::function<void()> task);
  void take_from(LinkId id);
  bool watch(int descriptor, LinkId id);
  LinkId enter(uint64_t session, Fd socket);
  void connect_answered(uint32_t sequence, Fd socket);
  void received(LinkId id, const ReceivedMessage& message, Fd descriptor);
  void answer(LinkId id, const ReceivedMessage& message);
  void lost(LinkId id, uint64_t session);
  void send_question(uint32_t sequence, Open& open);
  void finish(uint32_t sequence, const PeerAnswer& answer, Fd descriptor);

  const Fd epoll_;
  const int control_;
  const uint16_t daemon_version_;

  std::mutex mutex_;
  std::unordered_map<LinkId, std::shared_ptr<Link>> links_;  // guarded by mutex_
  PostedTasks* posted_ = nullptr;                            // guarded by mutex_

  // The executor's.
  OnQuestion on_question_;
  OnEnd on_end_;
  OnFarewell on_farewell_;
  OnHeard on_heard_;
  LinkId next_link_ = 1;
  uint32_t sequence_ = 0;
  std::unordered_map<uint32_t, Open> open_;            // by sequence
  std::unordered_map<uint64_t, LinkId> asked_for_;     // by session: links that this worker wanted
  std::unordered_map<uint32_t, uint64_t> connecting_;  // asked of the daemon: sequence -> session
  std::unordered_set<uint64_t> refused_;  // sessions to which the daemon gives no socket
};

}  // namespace fargpu::server
