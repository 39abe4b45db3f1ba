#include "operator/net/tls.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>

#include <vector>

namespace trainyard::net {
namespace {

using CertificatePointer = std::unique_ptr<X509, decltype(&X509_free)>;
using BioPointer = std::unique_ptr<BIO, decltype(&BIO_free)>;

BioPointer Reader(const std::string& text) {
  return {BIO_new_mem_buf(text.data(), static_cast<int>(text.size())), BIO_free};
}

// All certificates; none when one of them is damaged.
std::vector<CertificatePointer> Certificates(const std::string& pem) {
  std::vector<CertificatePointer> out;
  const BioPointer bio = Reader(pem);
  while (X509* certificate = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr))
    out.emplace_back(certificate, X509_free);
  // At the end nothing begins any more; everything else is damage.
  const bool ended = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  ERR_clear_error();
  if (!ended) out.clear();
  return out;
}

// A key with a passphrase is refused, not asked for.
int NoPassphrase(char*, int, int, void*) { return 0; }

Status TrustAuthorities(const std::string& pem, SSL_CTX* context) {
  if (pem.empty()) {
    if (SSL_CTX_set_default_verify_paths(context) != 1)
      return Status(Code::kInvalid, "this machine has no authorities of its own");
    return Status::Ok();
  }
  const std::vector<CertificatePointer> authorities = Certificates(pem);
  if (authorities.empty()) return Status(Code::kInvalid, "holds no certificate in PEM form, or a damaged one");
  X509_STORE* store = SSL_CTX_get_cert_store(context);
  // One that is given is trusted, whoever signed it, as Go does: a cluster's may be an intermediate one.
  X509_STORE_set_flags(store, X509_V_FLAG_PARTIAL_CHAIN);
  for (const CertificatePointer& authority : authorities) X509_STORE_add_cert(store, authority.get());
  return Status::Ok();
}

Status ShowChain(const std::string& pem, SSL_CTX* context) {
  const std::vector<CertificatePointer> chain = Certificates(pem);
  if (chain.empty()) return Status(Code::kInvalid, "holds no certificate in PEM form, or a damaged one");
  if (SSL_CTX_use_certificate(context, chain[0].get()) != 1) return Status(Code::kInvalid, TlsErrorText());
  for (size_t i = 1; i < chain.size(); ++i) SSL_CTX_add1_chain_cert(context, chain[i].get());
  return Status::Ok();
}

Status UseKey(const std::string& pem, SSL_CTX* context) {
  const BioPointer bio = Reader(pem);
  const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(
      PEM_read_bio_PrivateKey(bio.get(), nullptr, NoPassphrase, nullptr), EVP_PKEY_free);
  if (!key)
    return Status(Code::kInvalid, "holds no private key in PEM form without a passphrase (" + TlsErrorText() + ")");
  if (SSL_CTX_use_PrivateKey(context, key.get()) != 1 || SSL_CTX_check_private_key(context) != 1) {
    ERR_clear_error();
    return Status(Code::kInvalid, "is not the key of the certificate");
  }
  return Status::Ok();
}

}  // namespace

std::string TlsErrorText() {
  const unsigned long error = ERR_peek_last_error();
  const char* reason = error == 0 ? nullptr : ERR_reason_error_string(error);
  ERR_clear_error();
  return reason ? reason : "the connection broke";
}

Result<std::shared_ptr<const TlsContext>> TlsContext::Make(const TlsIdentity& identity, TlsPart& wrong) {
  ERR_clear_error();
  const std::shared_ptr<SSL_CTX> context(SSL_CTX_new(TLS_client_method()), SSL_CTX_free);
  if (!context) return Status(Code::kInternal, "TLS: " + TlsErrorText());
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  SSL_CTX_set_mode(context.get(), SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_read_ahead(context.get(), 1);  // else each record is read in two parts
  wrong = TlsPart::kAuthorities;
  if (Status status = TrustAuthorities(identity.authorities, context.get()); !status.ok()) return status;
  if (!identity.chain.empty() || !identity.key.empty()) {
    wrong = TlsPart::kChain;
    if (Status status = ShowChain(identity.chain, context.get()); !status.ok()) return status;
    wrong = TlsPart::kKey;
    if (Status status = UseKey(identity.key, context.get()); !status.ok()) return status;
  }
  wrong = TlsPart::kNone;
  return std::shared_ptr<const TlsContext>(new TlsContext(context));
}

}  // namespace trainyard::net
