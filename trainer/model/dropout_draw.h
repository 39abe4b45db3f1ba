#ifndef TRAINYARD_TRAINER_MODEL_DROPOUT_DRAW_H_
#define TRAINYARD_TRAINER_MODEL_DROPOUT_DRAW_H_

#include <cstdint>

namespace trainyard {

// What a dropout draws from (layers.h, Dropout): its mask is a pure function of the key. p = 0 drops nothing.
struct DropoutDraw {
  uint64_t key = 0;
  double p = 0;
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_MODEL_DROPOUT_DRAW_H_
