// What a TLS client trusts and shows.
// Sources: RFC 8446; RFC 6125 for the server's name.
#ifndef TRAINYARD_OPERATOR_NET_TLS_H_
#define TRAINYARD_OPERATOR_NET_TLS_H_

#include <openssl/types.h>

#include <memory>
#include <string>

#include "operator/base/status.h"

namespace trainyard::net {

// Each in PEM form.
struct TlsIdentity {
  std::string authorities;  // empty: this machine's own
  std::string chain;        // our certificate, then those between it and an authority; empty: none is shown
  std::string key;          // of the first certificate of the chain
};

// Which part of an identity cannot be used.
enum class TlsPart { kNone, kAuthorities, kChain, kKey };

class TlsContext {
 public:
  // kInvalid, and `wrong`, for what is no PEM, or a key that is not the certificate's.
  static Result<std::shared_ptr<const TlsContext>> Make(const TlsIdentity& identity, TlsPart& wrong);

  SSL_CTX* get() const { return context_.get(); }

 private:
  explicit TlsContext(std::shared_ptr<SSL_CTX> context) : context_(std::move(context)) {}
  std::shared_ptr<SSL_CTX> context_;
};

// The newest error of the library on this thread, as text, and clears its queue.
std::string TlsErrorText();

}  // namespace trainyard::net

#endif  // TRAINYARD_OPERATOR_NET_TLS_H_
