// Whether a device has room for a copy of what is saved, beside the steps that are made meanwhile.
#ifndef TRAINYARD_TRAINER_TRAIN_SNAPSHOT_ROOM_H_
#define TRAINYARD_TRAINER_TRAIN_SNAPSHOT_ROOM_H_

#include <cstdint>

#include "trainer/device/device.h"

namespace trainyard {

class SnapshotRoom {
 public:
  // The device must outlive it.
  explicit SnapshotRoom(Device& device) : device_(device) {}
  // Of a copy of so many bytes, which is made if so, and gone when this is asked again. Between steps, when a device's
  // allocator keeps unused all that a step takes: the most that steps have taken so far has to fit beside the copy, and
  // a 20th of the device is left. Of what no step has taken yet nothing is known.
  bool Has(int64_t bytes);

 private:
  Device& device_;
  int64_t step_bytes_ = 0, copy_bytes_ = 0;
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_TRAIN_SNAPSHOT_ROOM_H_
