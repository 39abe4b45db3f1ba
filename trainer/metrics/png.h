// Images as PNG files.
#ifndef TRAINYARD_TRAINER_METRICS_PNG_H_
#define TRAINYARD_TRAINER_METRICS_PNG_H_

#include <string>

#include "trainer/metrics/event.h"

namespace trainyard {

// Throws std::invalid_argument when the pixels do not fill height x width x channels, or the sizes
// are not ones that PNG has.
std::string EncodePng(const Image& image);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_METRICS_PNG_H_
