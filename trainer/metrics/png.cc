#include "trainer/metrics/png.h"

#include <stdexcept>

#include "trainer/base/png_bytes.h"
#include "trainer/base/text.h"

namespace trainyard {

std::string EncodePng(const Image& image) {
  const PngFormat format{image.height, image.width, image.channels, 8};
  if (!IsPng(format, image.pixels.size()))
    throw std::invalid_argument(Format("image %s: %d x %d x %d pixels, and %zu bytes", image.tag.c_str(), image.height,
                                       image.width, image.channels, image.pixels.size()));
  return PngBytes(format, image.pixels);
}

}  // namespace trainyard
