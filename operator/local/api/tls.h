// A certificate for this machine's loopback, made in memory and told to nobody but the kubeconfig.
#ifndef TRAINYARD_OPERATOR_LOCAL_API_TLS_H_
#define TRAINYARD_OPERATOR_LOCAL_API_TLS_H_

#include <openssl/types.h>

#include <memory>
#include <string>

#include "operator/base/status.h"

namespace trainyard::local {

struct Certificate {
  std::shared_ptr<X509> certificate;
  std::shared_ptr<EVP_PKEY> key;
  std::string pem;  // of the certificate, which is its own authority
};

// P-256, self-signed, for localhost, 127.0.0.1 and ::1, valid for a year.
Result<Certificate> MakeCertificate();

// 32 random bytes as 64 hexadecimal digits.
std::string RandomToken();

// A kubeconfig for https://127.0.0.1:port.
std::string KubeconfigText(int port, const std::string& ca_pem, const std::string& token);

}  // namespace trainyard::local

#endif  // TRAINYARD_OPERATOR_LOCAL_API_TLS_H_
