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

// A word of a command line, as a person pastes it into a shell: quoted where it holds anything that means something
// there.
inline std::string ForShell(const std::string& word) {
  constexpr char kPlain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+=:,@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

}  // namespace trainyard

#endif  // TRAINYARD_COMMON_TEXT_H_
