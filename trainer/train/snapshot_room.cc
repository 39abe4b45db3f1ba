#include "trainer/train/snapshot_room.h"

#include <algorithm>

namespace trainyard {

bool SnapshotRoom::Has(int64_t bytes) {
  constexpr int64_t kLeft = 20;
  // The last copy may have been there at the peak.
  step_bytes_ = std::max(step_bytes_, device_.TakePeak() - copy_bytes_);
  const DeviceMemory memory = device_.memory();
  const bool fits = memory.free - step_bytes_ - bytes >= memory.total / kLeft;
  copy_bytes_ = fits ? bytes : 0;
  return fits;
}

}  // namespace trainyard
