// What a cascade is worth: its loss on fixed noise, and sampled volumes beside the true ones and two baselines.
#ifndef TRAINYARD_TRAINER_TASK_HYBRID_VIT_CASCADE_CASCADE_EVALUATION_H_
#define TRAINYARD_TRAINER_TASK_HYBRID_VIT_CASCADE_CASCADE_EVALUATION_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "trainer/task/hybrid_vit_cascade/cascade_data.h"
#include "trainer/task/hybrid_vit_cascade/cascade_model.h"
#include "trainer/task/task.h"

namespace trainyard::hvc {

// The mean of the training part's volumes at the size of a stage: what a model that looks at no X-ray could say. Of
// kMostPatients at most. Keeps the stage that was asked for last. Thread-safe.
class MeanVolumes {
 public:
  static constexpr int64_t kMostPatients = 256;
  // `patients` must outlive it. `skip_bad`: who cannot be read is left out (faults.bad_sample), which it says.
  MeanVolumes(const Patients& patients, bool skip_bad) : patients_(patients), skip_bad_(skip_bad) {}
  int64_t count() const;  // of the patients that it is the mean of
  // Reads the first so many, unless it has: whoever must not wait long asks for some more each time.
  void Read(size_t stage, int64_t patients) const;
  // Reads those that are still missing. Throws DataError when none can be read.
  at::Tensor At(size_t stage) const;  // (1, S, S, S)

 private:
  void ReadLocked(size_t stage, int64_t patients) const;

  const Patients& patients_;
  const bool skip_bad_;
  mutable std::mutex mutex_;
  mutable std::optional<size_t> stage_;
  mutable int64_t read_ = 0, summed_ = 0;
  mutable at::Tensor sum_, mean_;
};

struct EvaluationSetup {
  const CascadeModel& model;
  Weights& weights;
  const Patients& patients;
  const MeanVolumes& means;
  const Options& options;
  size_t stage = 0;
  bool thorough = false;  // all volumes are sampled, those of the test part too, and once more with another's X-rays
  // faults.bad_sample: skip. Of the test part, whom nothing is decided by, who cannot be read is left out, which it
  // says.
  bool skip_bad = false;
  uint64_t seed = 0;
  int rank = 0, world = 1;
};

// A volume (1, S, S, S) in pictures: its three middle planes side by side, (cell, 3 cell) of [0, 1], each of every
// so-manyeth voxel where S is large.
at::Tensor MiddlePlanes(const at::Tensor& volume);
int64_t CellOf(int64_t size);

// `setup`'s references must outlive it.
std::unique_ptr<Evaluation> MakeCascadeEvaluation(const EvaluationSetup& setup);

// Volumes (B, 1, S, S, S) of `stage`, sampled from the X-rays (B, 2, 1, P, P) through all stages before it; `previous`
// gets what it was given of the stage before, up-sampled, if wanted. The noise of each stage follows from `key` alone.
at::Tensor SampleVolumes(const CascadeModel& model, Weights& weights, size_t stage, const at::Tensor& xrays,
                         int64_t steps, uint64_t key, at::Tensor* previous = nullptr);

}  // namespace trainyard::hvc

#endif  // TRAINYARD_TRAINER_TASK_HYBRID_VIT_CASCADE_CASCADE_EVALUATION_H_
