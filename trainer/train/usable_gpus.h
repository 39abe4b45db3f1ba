// Which of the GPUs that the driver names a run can compute with.
#ifndef TRAINYARD_TRAINER_TRAIN_USABLE_GPUS_H_
#define TRAINYARD_TRAINER_TRAIN_USABLE_GPUS_H_

#include "trainer/hardware/hardware.h"

namespace trainyard {

// Puts the GPUs aside, with the reason for people in `unused_gpus`, where the plug-in has no code for one of them, is
// not there, does not open (LibTorch's CUDA libraries are not installed), or sees none. Opens it where there are GPUs.
void PutAsideUnusable(Hardware& hardware);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_TRAIN_USABLE_GPUS_H_
