// A TLS server on loopback, and the certificates for it and its clients.
#ifndef TRAINYARD_TESTS_OPERATOR_TLS_PEER_H_
#define TRAINYARD_TESTS_OPERATOR_TLS_PEER_H_

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include "operator/kube/kubeconfig.h"
#include "tests/operator/peer.h"

namespace trainyard {

// A certificate and its key; `issuer` null: signed by itself.
class TestCertificate {
 public:
  TestCertificate(const std::string& name, const TestCertificate* issuer, const char* extra_key = nullptr,
                  const std::string& alternatives = "")
      : key_(EVP_EC_gen("P-256"), EVP_PKEY_free), certificate_(X509_new(), X509_free) {
    static int serial = 1;
    X509* x = certificate_.get();
    X509_set_version(x, X509_VERSION_3);
    ASN1_INTEGER_set(X509_get_serialNumber(x), ++serial);
    X509_gmtime_adj(X509_getm_notBefore(x), -300);
    X509_gmtime_adj(X509_getm_notAfter(x), 86400);
    X509_set_pubkey(x, key_.get());
    X509_NAME_add_entry_by_txt(X509_get_subject_name(x), "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
    X509_set_issuer_name(x, X509_get_subject_name(issuer ? issuer->certificate_.get() : x));
    Extend(NID_basic_constraints, extra_key ? extra_key : "CA:FALSE");
    if (!alternatives.empty()) Extend(NID_subject_alt_name, alternatives);
    X509_sign(x, issuer ? issuer->key_.get() : key_.get(), EVP_sha256());
  }
  static TestCertificate Authority(const std::string& name, const TestCertificate* issuer = nullptr) {
    return TestCertificate(name, issuer, "critical,CA:TRUE");
  }

  X509* certificate() const { return certificate_.get(); }
  EVP_PKEY* key() const { return key_.get(); }
  std::string pem() const {
    return Text([&](BIO* bio) { PEM_write_bio_X509(bio, certificate_.get()); });
  }
  std::string key_pem() const {
    return Text([&](BIO* bio) { PEM_write_bio_PrivateKey(bio, key_.get(), nullptr, nullptr, 0, nullptr, nullptr); });
  }

 private:
  void Extend(int id, const std::string& value) {
    X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, nullptr, id, value.c_str());
    X509_add_ext(certificate_.get(), extension, -1);
    X509_EXTENSION_free(extension);
  }
  template <class Write>
  static std::string Text(const Write& write) {
    const std::unique_ptr<BIO, decltype(&BIO_free)> bio(BIO_new(BIO_s_mem()), BIO_free);
    write(bio.get());
    char* data = nullptr;
    const long size = BIO_get_mem_data(bio.get(), &data);
    return std::string(data, static_cast<size_t>(size));
  }
  std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key_;
  std::unique_ptr<X509, decltype(&X509_free)> certificate_;
};

// A server at `port` whose certificate leads to `authority`.
inline kube::Endpoint EndpointOf(int port, const TestCertificate& authority, const std::string& host = "127.0.0.1") {
  kube::Endpoint endpoint;
  endpoint.host = host;
  endpoint.port = port;
  endpoint.ca_pem = authority.pem();
  return endpoint;
}

// One TLS connection, on the server's side.
class TlsStream {
 public:
  explicit TlsStream(SSL* tls) : tls_(tls) {}
  // The next request with its body; empty when the other side has gone.
  std::string ReadRequest() {
    std::string text;
    size_t body = 0, end = std::string::npos;
    for (char byte; SSL_read(tls_, &byte, 1) == 1;) {
      text += byte;
      if (end == std::string::npos && text.ends_with("\r\n\r\n")) {
        end = text.size();
        const size_t length = text.find("Content-Length: ");
        if (length != std::string::npos) body = std::stoul(text.substr(length + 16));
      }
      if (end != std::string::npos && text.size() == end + body) return text;
    }
    return "";
  }
  bool Send(const std::string& text) {
    return SSL_write(tls_, text.data(), static_cast<int>(text.size())) == static_cast<int>(text.size());
  }
  // An answer with a length, so that the connection can be used again.
  bool Answer(const std::string& body, const std::string& first = "200 OK", const std::string& fields = "") {
    return Send("HTTP/1.1 " + first + "\r\n" + fields + "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
                body);
  }
  // The name that the client asked for; the subjects of the certificates that it showed, its own first.
  std::string server_name() const {
    const char* name = SSL_get_servername(tls_, TLSEXT_NAMETYPE_host_name);
    return name ? name : "";
  }
  int shown() const { return sk_X509_num(SSL_get_peer_cert_chain(tls_)) + (SSL_get0_peer_certificate(tls_) ? 1 : 0); }

 private:
  SSL* tls_;
};

class TlsPeer {
 public:
  // `clients` not null: a client must show a certificate that leads to it.
  TlsPeer(const TestCertificate& own, std::function<void(TlsStream&)> serve, const std::string& address = "127.0.0.1",
          const TestCertificate* clients = nullptr)
      : context_(SSL_CTX_new(TLS_server_method()), SSL_CTX_free),
        serve_(std::move(serve)),
        peer_([this](int connection) { Serve(connection); }, address) {
    SSL_CTX_use_certificate(context_.get(), own.certificate());
    SSL_CTX_use_PrivateKey(context_.get(), own.key());
    if (clients) {
      X509_STORE_add_cert(SSL_CTX_get_cert_store(context_.get()), clients->certificate());
      SSL_CTX_set_verify(context_.get(), SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
    }
    std::signal(SIGPIPE, SIG_IGN);
  }
  int port() const { return peer_.port(); }
  int connections() const { return peer_.connections(); }

 private:
  void Serve(int connection) {
    const std::unique_ptr<SSL, decltype(&SSL_free)> tls(SSL_new(context_.get()), SSL_free);
    SSL_set_fd(tls.get(), connection);
    if (SSL_accept(tls.get()) == 1) {
      TlsStream stream(tls.get());
      serve_(stream);
    }
    ERR_clear_error();
  }
  std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context_;
  const std::function<void(TlsStream&)> serve_;
  Peer peer_;
};

}  // namespace trainyard

#endif  // TRAINYARD_TESTS_OPERATOR_TLS_PEER_H_
