// Text that is cut stays UTF-8: JSON refuses half a character.
#ifndef TRAINYARD_COMMON_TEXT_H_
#define TRAINYARD_COMMON_TEXT_H_

#include <string>

namespace trainyard {

// The longest beginning of `text` with whole characters and at most `bytes` bytes.
inline std::string Cut(const std::string& text, size_t bytes) {
  if (text.size() <= bytes) return text;
  while (bytes > 0 && (static_cast<unsigned char>(text[bytes]) & 0xc0) == 0x80) --bytes;
  return text.substr(0, bytes);
}

// The same for people: what is left out shows as "...", which counts.
inline std::string Shorten(const std::string& text, size_t bytes) {
  return text.size() <= bytes ? text : Cut(text, bytes - 3) + "...";
}

}  // namespace trainyard

#endif  // TRAINYARD_COMMON_TEXT_H_
