// TLS 1.3 over a connected TCP socket, as a relay between the encrypted socket and a plain socket
// on this host.
//
// The holder of the plain socket's other end, in any process, needs no knowledge of TLS. An object
// belongs to one thread.
#pragma once

#include <memory>
#include <string>

#include "common/base/fd.h"
#include "common/base/status.h"
#include "common/transport/transport.h"

struct ssl_ctx_st;
struct ssl_st;

namespace fargpu::tls {

class TlsContext {
 public:
  // A server's certificate chain and key, PEM. kInvalidArgument names the file and its fault.
  static Result<TlsContext> server(const std::string& certificate_file,
                                   const std::string& key_file);
  // A client that trusts the authorities of this PEM file, or the system's when it is empty.
  static Result<TlsContext> client(const std::string& authority_file);

 private:
  friend class TlsConnection;
  struct Free {
    void operator()(ssl_ctx_st* context) const;
  };
  explicit TlsContext(ssl_ctx_st* context) : context_(context) {}
  std::unique_ptr<ssl_ctx_st, Free> context_;
};

class TlsConnection {
 public:
  // The handshake. The client's end verifies the server's chain and that its certificate is for
  // `host`, a name or an address. kRefused: not to be trusted, with the reason; kProtocol: the peer
  // does not speak TLS; kLost, kTimeout.
  static Result<TlsConnection> connect(const TlsContext& context, Fd socket,
                                       const std::string& host, transport::Deadline deadline);
  static Result<TlsConnection> accept(const TlsContext& context, Fd socket,
                                      transport::Deadline deadline);

  // Carries bytes both ways until either end is closed, and shuts both down. Bytes written before
  // the end still arrive.
  void relay(const Fd& plain);

  void close() { socket_.reset(); }
  int descriptor() const { return socket_.get(); }

 private:
  struct Free {
    void operator()(ssl_st* session) const;
  };
  static Result<TlsConnection> make(const TlsContext& context, Fd socket);
  Status handshake(int (*step)(ssl_st*), transport::Deadline deadline);

  Fd socket_;
  std::unique_ptr<ssl_st, Free> session_;
};

}  // namespace fargpu::tls
