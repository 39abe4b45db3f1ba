#include "trainer/optim/loss_scale.h"

#include <algorithm>
#include <limits>

namespace trainyard {

void LossScale::Update(bool finite, int64_t interval) {
  if (!finite) {
    factor = std::max(factor / 2, 1.0);
    clean = 0;
  } else if (++clean >= interval) {
    if (factor * 2 <= static_cast<double>(std::numeric_limits<float>::max())) factor *= 2;
    clean = 0;
  }
}

}  // namespace trainyard
