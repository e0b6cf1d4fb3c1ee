#include "common/tls/tls_connection.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "common/host/no_sigpipe.h"
#include "common/tls/authorities.h"
#include "common/tls/openssl_error.h"
#include "common/tls/tls_relay.h"
#include "common/transport/poll.h"

namespace fargpu::tls {
namespace {

void initialise() {
  // We are in an application's process: use none of its OpenSSL settings, and clean nothing up at
  // its exit, when our threads may still run.
  static const int done =
      OPENSSL_init_ssl(OPENSSL_INIT_NO_ATEXIT | OPENSSL_INIT_NO_LOAD_CONFIG, nullptr);
  (void)done;
}

Result<SSL_CTX*> new_context(const SSL_METHOD* method) {
  initialise();
  ERR_clear_error();
  SSL_CTX* context = SSL_CTX_new(method);
  if (context == nullptr) return Status(StatusCode::kSystem, "TLS: " + openssl_error());
  // Both ends are ours: nothing older is needed.
  SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION);
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  return context;
}

}  // namespace

std::string openssl_error() {
  const unsigned long code = ERR_get_error();
  ERR_clear_error();
  // Of a failed system call the reason is its number.
  if (ERR_GET_LIB(code) == ERR_LIB_SYS) return std::strerror(ERR_GET_REASON(code));
  const char* reason = code == 0 ? nullptr : ERR_reason_error_string(code);
  return reason == nullptr ? "no reason given" : reason;
}

void TlsContext::Free::operator()(ssl_ctx_st* context) const { SSL_CTX_free(context); }
void TlsConnection::Free::operator()(ssl_st* session) const { SSL_free(session); }

Result<TlsContext> TlsContext::server(const std::string& certificate_file,
                                      const std::string& key_file) {
  FARGPU_ASSIGN_OR_RETURN(SSL_CTX * made, new_context(TLS_server_method()));
  TlsContext context(made);
  SSL_CTX_set_num_tickets(made, 0);  // sessions are never resumed
  if (SSL_CTX_use_certificate_chain_file(made, certificate_file.c_str()) != 1) {
    return Status(StatusCode::kInvalidArgument, fmt::format("cannot use the certificate {}: {}",
                                                            certificate_file, openssl_error()));
  }
  if (SSL_CTX_use_PrivateKey_file(made, key_file.c_str(), SSL_FILETYPE_PEM) != 1) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("cannot use the key {}: {}", key_file, openssl_error()));
  }
  return context;
}

Result<TlsContext> TlsContext::client(const std::string& authority_file) {
  FARGPU_ASSIGN_OR_RETURN(SSL_CTX * made, new_context(TLS_client_method()));
  TlsContext context(made);
  SSL_CTX_set_verify(made, SSL_VERIFY_PEER, nullptr);
  FARGPU_RETURN_IF_ERROR(trust_authorities(made, authority_file));
  return context;
}

Result<TlsConnection> TlsConnection::make(const TlsContext& context, Fd socket) {
  TlsConnection connection;
  connection.socket_ = std::move(socket);
  const int descriptor = connection.socket_.get();
  if (::fcntl(descriptor, F_SETFL, ::fcntl(descriptor, F_GETFL) | O_NONBLOCK) != 0)
    return system_error("fcntl", errno);
  ERR_clear_error();
  connection.session_.reset(SSL_new(context.context_.get()));
  if (connection.session_ == nullptr || SSL_set_fd(connection.session_.get(), descriptor) != 1) {
    return Status(StatusCode::kSystem, "TLS: " + openssl_error());
  }
  return connection;
}

Status TlsConnection::handshake(int (*step)(ssl_st*), transport::Deadline deadline) {
  // The thread may be the application's.
  const NoSigpipe quiet;
  for (;;) {
    ERR_clear_error();
    errno = 0;
    const int done = step(session_.get());
    if (done == 1) return Status();
    const int error = SSL_get_error(session_.get(), done);
    const int system = errno;
    if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE) {
      const long verified = SSL_get_verify_result(session_.get());
      if (verified != X509_V_OK)
        return {StatusCode::kRefused, X509_verify_cert_error_string(verified)};
      const bool ended = ERR_GET_REASON(ERR_peek_error()) == SSL_R_UNEXPECTED_EOF_WHILE_READING;
      if (error == SSL_ERROR_SSL && !ended) return {StatusCode::kProtocol, openssl_error()};
      return {StatusCode::kLost, ended || system == 0
                                     ? "the peer closed the connection"
                                     : system_error("connection lost", system).message()};
    }
    pollfd entry{socket_.get(), static_cast<short>(error == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT),
                 0};
    FARGPU_ASSIGN_OR_RETURN(const int ready, transport::poll_until(std::span(&entry, 1), deadline));
    if (ready == 0)
      return {StatusCode::kTimeout, "the peer did not finish the TLS handshake in time"};
  }
}

Result<TlsConnection> TlsConnection::connect(const TlsContext& context, Fd socket,
                                             const std::string& host,
                                             transport::Deadline deadline) {
  FARGPU_ASSIGN_OR_RETURN(TlsConnection connection, make(context, std::move(socket)));
  SSL* session = connection.session_.get();
  // An address must be among the certificate's addresses, a name among its names.
  if (X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(session), host.c_str()) != 1) {
    ERR_clear_error();
    if (SSL_set1_host(session, host.c_str()) != 1 ||
        SSL_set_tlsext_host_name(session, host.c_str()) != 1) {
      return Status(StatusCode::kInvalidArgument,
                    fmt::format("'{}' is not a host that a certificate can be for", host));
    }
  }
  FARGPU_RETURN_IF_ERROR(connection.handshake(&SSL_connect, deadline));
  return connection;
}

Result<TlsConnection> TlsConnection::accept(const TlsContext& context, Fd socket,
                                            transport::Deadline deadline) {
  FARGPU_ASSIGN_OR_RETURN(TlsConnection connection, make(context, std::move(socket)));
  FARGPU_RETURN_IF_ERROR(connection.handshake(&SSL_accept, deadline));
  return connection;
}

void TlsConnection::relay(const Fd& plain) {
  Relay(session_.get(), socket_.get(), plain.get()).run();
}

}  // namespace fargpu::tls
