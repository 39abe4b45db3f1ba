// A plane: the places of one channel of one sample, side by side.
#ifndef TRAINYARD_TRAINER_MODEL_PLANES_H_
#define TRAINYARD_TRAINER_MODEL_PLANES_H_

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>

#include "trainer/threads/parallel_for.h"

namespace trainyard {

// Of x: (samples, channels, ...), contiguous.
struct Planes {
  explicit Planes(const at::Tensor& x)
      : samples(x.size(0)), channels(x.size(1)), places(x.numel() / std::max<int64_t>(1, samples * channels)) {}

  // run(i) for each plane, i being sample * channels + channel; each by one thread, for which make() has made what
  // it works with: run(i, made).
  template <class Make, class Run>
  void ForEachWith(Make make, Run run) const {
    ParallelFor(0, samples * channels, 1, [&](int64_t begin, int64_t end) {
      auto made = make();
      for (int64_t i = begin; i < end; ++i) run(i, made);
    });
  }
  template <class Run>
  void ForEach(Run run) const {
    ForEachWith([] { return 0; }, [&](int64_t i, int) { run(i); });
  }

  int64_t samples, channels, places;
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_MODEL_PLANES_H_
