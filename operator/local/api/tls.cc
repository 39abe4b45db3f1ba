#include "operator/local/api/tls.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#include "operator/net/base64.h"

namespace trainyard::local {
namespace {

bool AddExtension(X509* certificate, int id, const char* value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, certificate, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, id, value);
  const bool added = extension && X509_add_ext(certificate, extension, -1) == 1;
  X509_EXTENSION_free(extension);
  return added;
}

std::string Pem(X509* certificate) {
  BIO* bio = BIO_new(BIO_s_mem());
  PEM_write_bio_X509(bio, certificate);
  char* data = nullptr;
  const long length = BIO_get_mem_data(bio, &data);
  std::string text(data, static_cast<size_t>(length));
  BIO_free(bio);
  return text;
}

}  // namespace

Result<Certificate> MakeCertificate() {
  Certificate made;
  made.key = std::shared_ptr<EVP_PKEY>(EVP_EC_gen("P-256"), EVP_PKEY_free);
  made.certificate = std::shared_ptr<X509>(X509_new(), X509_free);
  X509* certificate = made.certificate.get();
  if (!made.key || !certificate) return Status(Code::kInternal, "cannot make a key");
  uint64_t serial = 0;
  RAND_bytes(reinterpret_cast<unsigned char*>(&serial), sizeof serial);
  ASN1_INTEGER_set_uint64(X509_get_serialNumber(certificate), serial >> 1);
  X509_set_version(certificate, X509_VERSION_3);
  X509_gmtime_adj(X509_getm_notBefore(certificate), -300);
  X509_gmtime_adj(X509_getm_notAfter(certificate), 365L * 86400);
  X509_set_pubkey(certificate, made.key.get());
  X509_NAME* name = X509_get_subject_name(certificate);
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>("trainyard-local"), -1,
                             -1, 0);
  X509_set_issuer_name(certificate, name);
  const bool good = AddExtension(certificate, NID_basic_constraints, "critical,CA:TRUE") &&
                    AddExtension(certificate, NID_key_usage, "critical,digitalSignature,keyCertSign") &&
                    AddExtension(certificate, NID_ext_key_usage, "serverAuth") &&
                    AddExtension(certificate, NID_subject_key_identifier, "hash") &&
                    AddExtension(certificate, NID_subject_alt_name, "DNS:localhost,IP:127.0.0.1,IP:::1") &&
                    X509_sign(certificate, made.key.get(), EVP_sha256()) > 0;
  if (!good) return Status(Code::kInternal, "cannot make a certificate");
  made.pem = Pem(certificate);
  return made;
}

std::string RandomToken() {
  unsigned char bytes[32];
  RAND_bytes(bytes, sizeof bytes);
  std::string text;
  for (const unsigned char byte : bytes) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

std::string KubeconfigText(int port, const std::string& ca_pem, const std::string& token) {
  return "apiVersion: v1\nkind: Config\ncurrent-context: trainyard-local\nclusters:\n- name: trainyard-local\n  "
         "cluster:\n    server: https://127.0.0.1:" +
         std::to_string(port) + "\n    certificate-authority-data: " + net::EncodeBase64(ca_pem) +
         "\nusers:\n- name: trainyard-local\n  user:\n    token: " + token +
         "\ncontexts:\n- name: trainyard-local\n  context: {cluster: trainyard-local, user: trainyard-local, "
         "namespace: default}\n";
}

}  // namespace trainyard::local
