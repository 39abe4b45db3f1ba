#include "operator/net/proxy.h"

#include <algorithm>
#include <cctype>
#include <charconv>

#include "operator/net/address.h"
#include "operator/net/base64.h"

namespace trainyard::net {
namespace {

std::string Lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

// "%40" -> "@"
std::string Decoded(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned char byte = 0;
    if (text[i] == '%' && i + 2 < text.size() &&
        std::from_chars(text.data() + i + 1, text.data() + i + 3, byte, 16).ptr == text.data() + i + 3) {
      out += static_cast<char>(byte);
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

// Takes ":port" off a host, with or without brackets. False for what is no port.
bool SplitPort(std::string& host, int& port) {
  std::string digits;
  if (host.starts_with("[")) {
    const size_t close = host.find(']');
    if (close == std::string::npos || (close + 1 < host.size() && host[close + 1] != ':')) return false;
    if (close + 1 < host.size()) digits = host.substr(close + 2);
    host = host.substr(1, close - 1);
  } else if (std::count(host.begin(), host.end(), ':') == 1) {
    const size_t colon = host.find(':');
    digits = host.substr(colon + 1);
    host.resize(colon);
  }
  if (digits.empty()) return true;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  return error == std::errc() && end == digits.data() + digits.size() && port >= 1 && port <= 65535;
}

// The bytes of an address; empty when it is none.
std::string AddressBytes(const std::string& text) {
  const std::optional<Address> address = ParseAddress(text, 0);
  if (!address) return "";
  if (address->family() == AF_INET) {
    const auto* four = reinterpret_cast<const sockaddr_in*>(&address->storage);
    return std::string(reinterpret_cast<const char*>(&four->sin_addr), sizeof four->sin_addr);
  }
  const auto* six = reinterpret_cast<const sockaddr_in6*>(&address->storage);
  return std::string(reinterpret_cast<const char*>(&six->sin6_addr), sizeof six->sin6_addr);
}

bool InNetwork(const std::string& host, const std::string& network) {
  const size_t slash = network.find('/');
  const std::string bytes = AddressBytes(host), base = AddressBytes(network.substr(0, slash));
  unsigned bits = 0;
  const char* end = network.data() + network.size();
  const auto [behind, error] = std::from_chars(network.data() + slash + 1, end, bits);
  if (bytes.empty() || bytes.size() != base.size() || error != std::errc() || behind != end || bits > bytes.size() * 8)
    return false;
  for (unsigned bit = 0; bit < bits; ++bit) {
    const int mask = 0x80 >> (bit % 8);
    if ((bytes[bit / 8] & mask) != (base[bit / 8] & mask)) return false;
  }
  return true;
}

bool IsThisMachine(const std::string& host) {
  const std::string bytes = AddressBytes(host);
  return host == "localhost" || (bytes.size() == 4 && bytes[0] == 127) || bytes == AddressBytes("::1");
}

bool Excepts(std::string entry, const std::string& host, int port) {
  if (entry == "*") return true;
  if (entry.find('/') != std::string::npos) return InNetwork(host, entry);
  int only = port;
  if (!SplitPort(entry, only) || only != port || entry.empty()) return false;
  if (const std::string bytes = AddressBytes(entry); !bytes.empty()) return bytes == AddressBytes(host);
  if (entry.starts_with("*.")) entry.erase(0, 1);
  if (entry.starts_with(".")) return host.ends_with(entry);
  return host == entry || host.ends_with("." + entry);
}

bool Excepted(const std::string& list, const std::string& host, int port) {
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    std::string entry = list.substr(begin, end - begin);
    std::erase_if(entry, [](unsigned char c) { return std::isspace(c); });
    if (Excepts(Lower(entry), host, port)) return true;
    begin = end + 1;
  }
  return false;
}

}  // namespace

Result<Proxy> ParseProxy(const std::string& url) {
  std::string rest = url;
  if (const size_t scheme = rest.find("://"); scheme != std::string::npos) {
    if (Lower(rest.substr(0, scheme)) != "http")
      return Status(Code::kInvalid,
                    "a proxy " + rest.substr(0, scheme) + "://... is not supported; allowed: http://host:port");
    rest.erase(0, scheme + 3);
  }
  if (const size_t slash = rest.find('/'); slash != std::string::npos) rest.resize(slash);
  Proxy proxy;
  if (const size_t at = rest.rfind('@'); at != std::string::npos) {
    proxy.authorization = "Basic " + EncodeBase64(Decoded(rest.substr(0, at)));
    rest.erase(0, at + 1);
  }
  // Not the whole URL in the message: it may hold a password.
  if (!SplitPort(rest, proxy.port) || rest.empty())
    return Status(Code::kInvalid, "a proxy at \"" + rest + "\" is not allowed; allowed: http://host:port");
  proxy.host = rest;
  return proxy;
}

Result<std::optional<Proxy>> ProxyOfEnvironment(const std::string& host, int port,
                                                const std::function<const char*(const char*)>& get) {
  const auto variable = [&](const char* upper, const char* lower) {
    const char* text = get(upper);
    if (!text || !*text) text = get(lower);
    return std::string(text ? text : "");
  };
  const std::string url = variable("HTTPS_PROXY", "https_proxy");
  const std::string name = Lower(host);
  if (url.empty() || IsThisMachine(name) || Excepted(variable("NO_PROXY", "no_proxy"), name, port))
    return std::optional<Proxy>();
  Result<Proxy> proxy = ParseProxy(url);
  if (!proxy.ok()) return proxy.status().With("HTTPS_PROXY");
  return std::optional<Proxy>(*proxy);
}

}  // namespace trainyard::net
