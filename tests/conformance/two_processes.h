// For conformance programs of two processes, which fork before cuInit: they take turns, and give
// each other bytes and descriptors over a unix socket. What the second one prints comes behind what
// the first one prints, so that the output is always the same.
#pragma once

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/conformance/conformance.h"

class Peer {
 public:
  explicit Peer(int socket) : socket_(socket) {}

  template <typename T>
  void give(const T& value) const {
    if (::write(socket_, &value, sizeof value) != sizeof value) gone();
  }
  template <typename T>
  T get() const {
    T value{};
    if (::recv(socket_, &value, sizeof value, MSG_WAITALL) != sizeof value) gone();
    return value;
  }
  // The other one goes on; this one waits for it.
  void turn() const { give('t'); }
  void await() const { (void)get<char>(); }

  void give_descriptor(int descriptor) const {
    Room room{};
    char byte = 'd';
    iovec piece{&byte, 1};
    msghdr message = room.message(&piece);
    cmsghdr* const attached = CMSG_FIRSTHDR(&message);
    attached->cmsg_level = SOL_SOCKET;
    attached->cmsg_type = SCM_RIGHTS;
    attached->cmsg_len = CMSG_LEN(sizeof descriptor);
    std::memcpy(CMSG_DATA(attached), &descriptor, sizeof descriptor);
    if (::sendmsg(socket_, &message, 0) != 1) gone();
  }
  int get_descriptor() const {
    Room room{};
    char byte = 0;
    iovec piece{&byte, 1};
    msghdr message = room.message(&piece);
    if (::recvmsg(socket_, &message, 0) != 1) gone();
    int descriptor = -1;
    if (const cmsghdr* const attached = CMSG_FIRSTHDR(&message))
      std::memcpy(&descriptor, CMSG_DATA(attached), sizeof descriptor);
    return descriptor;
  }

 private:
  struct Room {
    alignas(cmsghdr) char bytes[CMSG_SPACE(sizeof(int))];
    msghdr message(iovec* piece) {
      msghdr message{};
      message.msg_iov = piece;
      message.msg_iovlen = 1;
      message.msg_control = bytes;
      message.msg_controllen = sizeof bytes;
      return message;
    }
  };
  [[noreturn]] static void gone() {
    std::printf("the other process is gone\n");
    std::exit(4);
  }
  int socket_;
};

// Runs both, each with the other as its peer; main() returns what this returns.
inline int run_two(void (*first)(const Peer&), void (*second)(const Peer&)) {
  int sockets[2];
  const int output = ::memfd_create("second", 0);
  if (output < 0 || ::socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0) return 2;
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(sockets[0]);
    ::dup2(output, STDOUT_FILENO);
    second(Peer(sockets[1]));
    std::exit(0);
  }
  ::close(sockets[1]);
  first(Peer(sockets[0]));
  ::close(sockets[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  std::printf("--- the second process ends with %x\n", static_cast<unsigned>(status));
  std::fflush(stdout);
  std::vector<char> said(static_cast<size_t>(::lseek(output, 0, SEEK_END)));
  if (::pread(output, said.data(), said.size(), 0) == static_cast<ssize_t>(said.size()))
    std::fwrite(said.data(), 1, said.size(), stdout);
  return 0;
}
