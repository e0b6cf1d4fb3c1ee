#include "tests/transport/tls_pairs.h"

#include <fmt/core.h>
#include <stdlib.h>
#include <sys/socket.h>

#include <filesystem>
#include <thread>

#include "common/base/check.h"
#include "common/tls/tls_connection.h"
#include "common/tls/tls_tunnel.h"
#include "common/transport/tcp/tcp.h"

namespace fargpu::test {
namespace {

using transport::Clock;

void must_run(const std::string& command) {
  FARGPU_CHECK(std::system((command + " >/dev/null 2>&1").c_str()) == 0);
}

struct Folder {
  Folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "fargpu-tls-XXXXXX").string();
    FARGPU_CHECK(::mkdtemp(pattern.data()) != nullptr);
    path = pattern;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  std::string path;
};

constexpr const char* kKey = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";

void make_authority(const std::string& folder, const std::string& name) {
  must_run(
      fmt::format("cd {} && openssl req -x509 {} -keyout {}.key -out {}.pem -days 2 -subj /CN={}",
                  folder, kKey, name, name, name));
}

void make_server(const std::string& folder, const std::string& name, const std::string& hosts,
                 const std::string& days) {
  must_run(
      fmt::format("cd {0} && openssl req {1} -keyout {2}.key -out {2}.csr -subj /CN={2} && echo "
                  "subjectAltName={3} >{2}.ext && "
                  "openssl x509 -req -in {2}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days "
                  "{4} -extfile {2}.ext -out {2}.pem",
                  folder, kKey, name, hosts, days));
}

}  // namespace

const Certificates& Certificates::get() {
  static const Folder folder;
  static const Certificates made = [] {
    const std::string hosts = "IP:127.0.0.1,DNS:localhost";
    make_authority(folder.path, "ca");
    make_authority(folder.path, "other");
    make_server(folder.path, "server", hosts, "2");
    make_server(folder.path, "elsewhere", "DNS:gpu.example.org", "2");
    make_server(folder.path, "expired", hosts, "-1");
    return Certificates{folder.path};
  }();
  return made;
}

TransportPair make_tls_pair(transport::StreamOptions options) {
  const Certificates& files = Certificates::get();
  auto listener = transport::TcpListener::open({"127.0.0.1", 0});
  FARGPU_CHECK(listener.ok());
  const auto deadline = Clock::now() + std::chrono::seconds(30);
  auto client = transport::tcp_connect({"127.0.0.1", listener->port()}, deadline);
  FARGPU_CHECK(client.ok());
  auto server = listener->accept(deadline);
  FARGPU_CHECK(server.ok());
  int ends[2];
  FARGPU_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  // As fargpu-tls-relay does it. Ends with its connection.
  std::thread([&files, deadline, socket = std::move(*server), plain = Fd(ends[1])]() mutable {
    auto context = tls::TlsContext::server(files.server(), files.server_key());
    FARGPU_CHECK(context.ok());
    auto connection = tls::TlsConnection::accept(*context, std::move(socket), deadline);
    FARGPU_CHECK(connection.ok());
    connection->relay(plain);
  }).detach();
  auto tunnel = tls::open_tunnel(std::move(*client), "localhost", files.authority(), deadline);
  FARGPU_CHECK(tunnel.ok());
  options.behind = "tls 127.0.0.1:1";
  auto at_client = transport::from_fd(std::move(*tunnel), options);
  auto at_server = transport::from_fd(Fd(ends[0]), options);
  FARGPU_CHECK(at_client.ok() && at_server.ok());
  return {std::move(*at_client), std::move(*at_server)};
}

}  // namespace fargpu::test
