#include "common/transport/shm/shm_socket.h"

#include <fmt/core.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "common/base/descriptors.h"
#include "common/transport/poll.h"

namespace fargpu::transport {
namespace {

constexpr std::byte kBell{1}, kDescriptor{2};
constexpr size_t kMostDescriptors = 2;  // in one message
constexpr int kDrainRounds = 64;        // one drain() ends, however much a peer sends

// A sendmsg or recvmsg with descriptors. Receiving, what came is in `descriptors`, never more than
// kMostDescriptors.
struct Message {
  explicit Message(std::span<const std::byte> bytes)
      : piece{const_cast<std::byte*>(bytes.data()), bytes.size()} {
    header.msg_iov = &piece;
    header.msg_iovlen = 1;
  }

  ssize_t send(int socket, std::span<const int> descriptors) {
    if (!descriptors.empty()) {
      header.msg_control = control;
      header.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
      cmsghdr* entry = CMSG_FIRSTHDR(&header);
      entry->cmsg_level = SOL_SOCKET;
      entry->cmsg_type = SCM_RIGHTS;
      entry->cmsg_len = CMSG_LEN(descriptors.size_bytes());
      std::memcpy(CMSG_DATA(entry), descriptors.data(), descriptors.size_bytes());
    }
    return ::sendmsg(socket, &header, MSG_DONTWAIT | MSG_NOSIGNAL);
  }

  ssize_t receive(int socket) {
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    const ssize_t got = ::recvmsg(socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0) return got;
    for (cmsghdr* entry = CMSG_FIRSTHDR(&header); entry != nullptr;
         entry = CMSG_NXTHDR(&header, entry)) {
      if (entry->cmsg_level != SOL_SOCKET || entry->cmsg_type != SCM_RIGHTS) continue;
      const size_t count = (entry->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (size_t i = 0; i < count; ++i) {
        int number;
        std::memcpy(&number, CMSG_DATA(entry) + i * sizeof number, sizeof number);
        Fd descriptor = descriptors::place(Fd(number));
        if (came < kMostDescriptors) descriptors[came++] = std::move(descriptor);
      }
    }
    return got;
  }
  // Some were cut off: more than we take, or no number was free in this process.
  bool truncated() const { return (header.msg_flags & MSG_CTRUNC) != 0; }

  iovec piece;
  msghdr header{};
  alignas(cmsghdr) std::byte control[CMSG_SPACE(kMostDescriptors * sizeof(int))];
  Fd descriptors[kMostDescriptors];
  size_t came = 0;
};

Status lost_while(const char* doing) {
  return Status(StatusCode::kLost,
                system_error(fmt::format("connection lost while {}", doing), errno).message());
}

Status wait_for(int socket, short events, Deadline deadline) {
  pollfd entry{socket, events, 0};
  FARGPU_ASSIGN_OR_RETURN(const int ready, poll_until(std::span(&entry, 1), deadline));
  return ready > 0 ? Status() : Status(StatusCode::kTimeout, "the peer did not answer in time");
}

}  // namespace

ShmSocket::ShmSocket(Fd session, Fd room) : session_(std::move(session)), room_(std::move(room)) {
  waiting_.reserve(DescriptorPassing::kMaxWaiting);
}

// A bell that does not fit is not needed, because earlier bells are still unread. A dead peer is
// noticed by the next wait.
void ShmSocket::ring_consumer() {
  send_calls.add(1);
  (void)::send(descriptors::own(session_.get()), &kBell, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

void ShmSocket::ring_producer() {
  receive_calls.add(1);
  (void)::send(descriptors::own(room_.get()), &kBell, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

bool ShmSocket::drain_room_bells() {
  std::byte bells[64];
  send_calls.add(1);
  const ssize_t got = ::recv(descriptors::own(room_.get()), bells, sizeof bells, MSG_DONTWAIT);
  return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
}

Status ShmSocket::send_descriptor(uint64_t number, int descriptor) {
  std::byte record[sizeof record_];
  record[0] = kDescriptor;
  std::memcpy(record + 1, &number, sizeof number);
  Message message(record);
  send_calls.add(1);
  const ssize_t sent = message.send(descriptors::own(session_.get()), std::span(&descriptor, 1));
  if (sent == sizeof record) return Status();
  if (sent >= 0)
    return Status(StatusCode::kLost, "connection lost: half of a descriptor's record was sent");
  switch (errno) {
    case EAGAIN:
    case ETOOMANYREFS:
      return Status(StatusCode::kNoCapacity,
                    "the peer does not take the descriptors that were sent");
    case EBADF:
      return Status(StatusCode::kInvalidArgument,
                    fmt::format("{} is not a descriptor", descriptor));
    default:
      return lost_while("sending a descriptor");
  }
}

Status ShmSocket::drain() {
  for (int round = 0; round < kDrainRounds && !ended_; ++round) {
    std::byte bytes[256];
    Message message(bytes);
    receive_calls.add(1);
    const ssize_t got = message.receive(descriptors::own(session_.get()));
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
      ended_ = true;
      return Status();
    }
    if (got < 0) {
      if (errno == EINTR) continue;
      return Status();
    }
    if (message.truncated()) {
      return Status(StatusCode::kProtocol,
                    "descriptors from the peer were cut off: too many at once, or this "
                    "process has no number left");
    }
    // One recvmsg never returns bytes from both sides of a message with descriptors. So a record's
    // descriptor arrives with its last byte or earlier, and one at a time.
    if (message.came > 1 || (message.came == 1 && arriving_.valid())) {
      return Status(StatusCode::kProtocol, "the peer sent descriptors without a record");
    }
    if (message.came == 1) arriving_ = std::move(message.descriptors[0]);
    FARGPU_RETURN_IF_ERROR(parse(std::span(bytes).first(static_cast<size_t>(got))));
  }
  return Status();
}

Status ShmSocket::parse(std::span<const std::byte> bytes) {
  for (const std::byte value : bytes) {
    if (record_bytes_ == 0 && value == kBell) continue;
    record_[record_bytes_++] = value;
    if (record_[0] != kDescriptor) {
      return Status(StatusCode::kProtocol, fmt::format("the peer sent {:#04x} beside the rings",
                                                       static_cast<unsigned>(record_[0])));
    }
    if (record_bytes_ < sizeof record_) continue;
    record_bytes_ = 0;
    if (!arriving_.valid())
      return Status(StatusCode::kProtocol, "a descriptor's record came without one");
    if (waiting_.size() == DescriptorPassing::kMaxWaiting) {
      return Status(StatusCode::kProtocol, fmt::format("more than {} descriptors wait to be taken",
                                                       DescriptorPassing::kMaxWaiting));
    }
    uint64_t number;
    std::memcpy(&number, record_ + 1, sizeof number);
    waiting_.push_back({number, std::move(arriving_)});
  }
  if (record_bytes_ == 0 && arriving_.valid()) {
    return Status(StatusCode::kProtocol, "the peer sent a descriptor without a record");
  }
  return Status();
}

Result<Fd> ShmSocket::take(uint64_t number) {
  for (Waiting& one : waiting_) {
    if (one.number != number) continue;
    Fd descriptor = std::move(one.descriptor);
    if (&one != &waiting_.back()) one = std::move(waiting_.back());
    waiting_.pop_back();
    return descriptor;
  }
  return Status(StatusCode::kNotFound,
                fmt::format("no descriptor with number {} has come", number));
}

void ShmSocket::shut_down() {
  ::shutdown(descriptors::own(session_.get()), SHUT_RDWR);
  ::shutdown(descriptors::own(room_.get()), SHUT_RDWR);
}

void ShmSocket::abandon() {
  session_.reset();
  room_.reset();
}

Status send_with_descriptors(int socket, std::span<const std::byte> bytes,
                             std::span<const int> descriptors, Deadline deadline) {
  while (!bytes.empty()) {
    Message message(bytes);
    const ssize_t sent = message.send(socket, descriptors);
    if (sent >= 0) {
      bytes = bytes.subspan(static_cast<size_t>(sent));
      descriptors = {};  // they went with the first byte
    } else if (errno == EAGAIN) {
      FARGPU_RETURN_IF_ERROR(wait_for(socket, POLLOUT, deadline));
    } else if (errno != EINTR) {
      return lost_while("sending");
    }
  }
  return Status();
}

Status receive_with_descriptors(int socket, std::span<std::byte> bytes,
                                std::vector<Fd>& descriptors, Deadline deadline) {
  while (!bytes.empty()) {
    const descriptors::StandardTaken taken;
    Message message(bytes);
    const ssize_t got = message.receive(socket);
    if (got > 0) {
      if (message.truncated())
        return Status(StatusCode::kProtocol, "descriptors from the peer were cut off");
      for (size_t i = 0; i < message.came; ++i)
        descriptors.push_back(std::move(message.descriptors[i]));
      if (descriptors.size() > kMostDescriptors) {
        return Status(StatusCode::kProtocol, "the peer sent too many descriptors");
      }
      bytes = bytes.subspan(static_cast<size_t>(got));
    } else if (got == 0) {
      return Status(StatusCode::kLost, "the peer closed the connection");
    } else if (errno == EAGAIN) {
      FARGPU_RETURN_IF_ERROR(wait_for(socket, POLLIN, deadline));
    } else if (errno != EINTR) {
      return lost_while("receiving");
    }
  }
  return Status();
}

}  // namespace fargpu::transport
