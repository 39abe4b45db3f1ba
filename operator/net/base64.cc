#include "operator/net/base64.h"

#include <openssl/evp.h>

#include <vector>

namespace trainyard::net {
namespace {

const unsigned char* Bytes(const std::string& text) { return reinterpret_cast<const unsigned char*>(text.data()); }

}  // namespace

std::string EncodeBase64(const std::string& text) {
  std::vector<unsigned char> out(text.size() * 4 / 3 + 8);
  const int length = EVP_EncodeBlock(out.data(), Bytes(text), static_cast<int>(text.size()));
  return std::string(reinterpret_cast<char*>(out.data()), static_cast<size_t>(length));
}

Result<std::string> DecodeBase64(std::string text) {
  std::erase_if(text, [](char c) { return c == '\r' || c == '\n'; });
  std::vector<unsigned char> out(text.size() + 4);
  const int length = EVP_DecodeBlock(out.data(), Bytes(text), static_cast<int>(text.size()));
  const size_t padding = text.ends_with("==") ? 2 : text.ends_with("=") ? 1 : 0;
  if (length < 0 || text.find('=') < text.size() - padding) return Status(Code::kInvalid, "is no base64");
  return std::string(reinterpret_cast<char*>(out.data()), static_cast<size_t>(length) - padding);
}

}  // namespace trainyard::net
