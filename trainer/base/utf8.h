// Text from outside, before it goes into JSON, a log or a message.
#ifndef TRAINYARD_TRAINER_BASE_UTF8_H_
#define TRAINYARD_TRAINER_BASE_UTF8_H_

#include <string>
#include <string_view>

namespace trainyard {

// The text with every byte that is not part of well-formed UTF-8 replaced by U+FFFD.
std::string ValidUtf8(std::string_view text);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_BASE_UTF8_H_
