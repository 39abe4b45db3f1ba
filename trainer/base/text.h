// Text for people: nearest names, numbers, sizes, durations.
#ifndef TRAINYARD_TRAINER_BASE_TEXT_H_
#define TRAINYARD_TRAINER_BASE_TEXT_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trainyard {

// printf into a string.
std::string Format(const char* format, ...) __attribute__((format(printf, 1, 2)));

// The candidate with the smallest edit distance to `word`; empty when none is close enough to be
// what was meant (more than half of the word differs).
std::string NearestName(std::string_view word, std::span<const std::string> candidates);

// ", " between the parts.
std::string Join(std::span<const std::string> parts, std::string_view separator = ", ");
std::vector<std::string> Split(std::string_view text, char separator);

// 1536 -> "1.5 KiB".
std::string HumanBytes(double bytes);
// 3725 -> "1h02m"; 65 -> "1m05s"; 2.5 -> "2.5s".
std::string HumanSeconds(double seconds);
// A float32 that reads back to the same bits; non-finite values as quoted strings ("nan", "inf").
std::string JsonFloat(double value);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_BASE_TEXT_H_
