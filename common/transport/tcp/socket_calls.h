// send() and recv() that are no cancellation points: pthread_cancel() of a thread of the
// application does not end it inside of a call, with the channel's locks held. They also take fewer
// instructions than those of the C library. For calls that do not block (MSG_DONTWAIT). Sanitizers
// follow the C library's. Results and errno as of send(2) and recv(2).
#pragma once

#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstddef>

namespace fargpu::transport {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline ssize_t send_at_once(int socket, const void* bytes, size_t size, int flags) {
  return ::send(socket, bytes, size, flags | MSG_DONTWAIT);
}
inline ssize_t receive_at_once(int socket, void* bytes, size_t size) {
  return ::recv(socket, bytes, size, MSG_DONTWAIT);
}
#else
inline ssize_t send_at_once(int socket, const void* bytes, size_t size, int flags) {
  return ::syscall(SYS_sendto, socket, bytes, size, flags | MSG_DONTWAIT, nullptr, 0);
}
inline ssize_t receive_at_once(int socket, void* bytes, size_t size) {
  return ::syscall(SYS_recvfrom, socket, bytes, size, MSG_DONTWAIT, nullptr, nullptr);
}
#endif

}  // namespace fargpu::transport
