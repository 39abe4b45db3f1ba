#include "operator/net/connection.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>

#include <cerrno>

#include "operator/net/dial.h"
#include "operator/net/http.h"
#include "operator/net/resolve.h"

namespace trainyard::net {

void Connection::FreeTls::operator()(SSL* tls) const { SSL_free(tls); }

// Without a word of farewell: it could wait.
Connection::~Connection() = default;

Result<std::unique_ptr<Connection>> Connection::Open(const Destination& to, const TlsContext* tls, const Wait& wait) {
  std::unique_ptr<Connection> connection(new Connection());
  const std::string& host = to.proxy ? to.proxy->host : to.host;
  const int port = to.proxy ? to.proxy->port : to.port;
  const Result<std::vector<Address>> addresses = Resolve(host, port, wait);
  Status dialled = addresses.ok() ? Dial(*addresses, wait, connection->socket_) : addresses.status();
  if (!dialled.ok()) return dialled.With((to.proxy ? "proxy " : "") + HostPort(host, port));
  if (to.proxy) {
    if (Status status = connection->Tunnel(to, wait); !status.ok()) return status.With("proxy " + HostPort(host, port));
  }
  if (tls) {
    const std::string& name = to.server_name.empty() ? to.host : to.server_name;
    if (Status status = connection->BeginTls(name, *tls, wait); !status.ok())
      return status.With(HostPort(to.host, to.port));
  }
  return connection;
}

Status Connection::Tunnel(const Destination& to, const Wait& wait) {
  const std::string where = HostPort(to.host, to.port);
  HttpRequest request{.method = "CONNECT", .target = where, .host = where};
  if (!to.proxy->authorization.empty()) request.fields.emplace_back("Proxy-Authorization", to.proxy->authorization);
  if (Status status = SendRequest(*this, request, wait); !status.ok()) return status;
  HttpReader reader(*this, wait);
  const Result<HttpHead> head = reader.Head();
  if (!head.ok()) return head.status();
  if (head->code / 100 != 2)
    return Status(Code::kUnavailable, "CONNECT " + where + ": HTTP " + std::to_string(head->code));
  return Status::Ok();
}

Status Connection::BeginTls(const std::string& name, const TlsContext& context, const Wait& wait) {
  tls_.reset(SSL_new(context.get()));
  if (!tls_ || SSL_set_fd(tls_.get(), socket_.get()) != 1) return Status(Code::kInternal, "TLS: " + TlsErrorText());
  if (ParseAddress(name, 0)) {
    X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(tls_.get()), name.c_str());
  } else {
    SSL_set_tlsext_host_name(tls_.get(), name.c_str());
    // A subject that is no list of names is none (RFC 9525, 2), as for kubectl.
    SSL_set_hostflags(tls_.get(), X509_CHECK_FLAG_NEVER_CHECK_SUBJECT | X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    SSL_set1_host(tls_.get(), name.c_str());
  }
  for (;;) {
    ERR_clear_error();
    const int result = SSL_connect(tls_.get());
    if (result == 1) return Status::Ok();
    const long verified = SSL_get_verify_result(tls_.get());
    if (verified != X509_V_OK) {
      ERR_clear_error();
      return Status(Code::kUnavailable, std::string("TLS: the certificate of the server, looked at as ") + name + ": " +
                                            X509_verify_cert_error_string(verified));
    }
    if (Status status = WaitForTls(result, wait); !status.ok()) return status.With("TLS");
  }
}

Status Connection::WaitForTls(int result, const Wait& wait) {
  switch (SSL_get_error(tls_.get(), result)) {
    case SSL_ERROR_WANT_READ:
      return WaitFor(socket_.get(), POLLIN, wait);
    case SSL_ERROR_WANT_WRITE:
      return WaitFor(socket_.get(), POLLOUT, wait);
    default:
      return Status(Code::kUnavailable, TlsErrorText());
  }
}

Result<size_t> Connection::Read(char* data, size_t size, const Wait& wait) {
  for (;;) {
    if (wait.stop) return Status(Code::kStopped, "the operator stops");
    // Also of a peer that never lets the socket run empty.
    if (SteadyNow() >= wait.deadline) return Status(Code::kDeadline, "no end before the deadline");
    if (!tls_) {
      const ssize_t got = recv(socket_.get(), data, size, 0);
      if (got >= 0) return static_cast<size_t>(got);
      if (errno != EAGAIN && errno != EINTR) return SocketFailed("read", errno);
      if (Status status = WaitFor(socket_.get(), POLLIN, wait); !status.ok()) return status;
      continue;
    }
    ERR_clear_error();
    size_t got = 0;
    const int result = SSL_read_ex(tls_.get(), data, size, &got);
    if (result == 1) return got;
    if (SSL_get_error(tls_.get(), result) == SSL_ERROR_ZERO_RETURN) return size_t{0};
    if (Status status = WaitForTls(result, wait); !status.ok()) return status.With("read");
  }
}

Status Connection::Write(std::string_view data, const Wait& wait) {
  while (!data.empty()) {
    if (!tls_) {
      const ssize_t sent = send(socket_.get(), data.data(), data.size(), MSG_NOSIGNAL);
      if (sent > 0) data.remove_prefix(static_cast<size_t>(sent));
      if (sent >= 0 || errno == EINTR) continue;
      if (errno != EAGAIN) return SocketFailed("write", errno);
      if (Status status = WaitFor(socket_.get(), POLLOUT, wait); !status.ok()) return status.With("write");
      continue;
    }
    ERR_clear_error();
    size_t sent = 0;
    const int result = SSL_write_ex(tls_.get(), data.data(), data.size(), &sent);
    if (result == 1) {
      data.remove_prefix(sent);
    } else if (Status status = WaitForTls(result, wait); !status.ok()) {
      return status.With("write");
    }
  }
  return Status::Ok();
}

bool Connection::Quiet() {
  char byte;
  if (!tls_) return recv(socket_.get(), &byte, 1, MSG_PEEK) < 0 && errno == EAGAIN;
  // Session tickets come unasked for; looking takes them in.
  ERR_clear_error();
  size_t got = 0;
  const int result = SSL_peek_ex(tls_.get(), &byte, 1, &got);
  const bool quiet = result != 1 && SSL_get_error(tls_.get(), result) == SSL_ERROR_WANT_READ;
  ERR_clear_error();
  return quiet;
}

}  // namespace trainyard::net
