// What a cascade is worth: its loss on fixed noise, and sampled volumes beside the true ones and two baselines.
#ifndef TRAINYARD_TRAINER_TASK_HYBRID_VIT_CASCADE_CASCADE_EVALUATION_H_
#define TRAINYARD_TRAINER_TASK_HYBRID_VIT_CASCADE_CASCADE_EVALUATION_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "trainer/task/hybrid_vit_cascade/cascade_data.h"
#include "trainer/task/hybrid_vit_cascade/cascade_model.h"
#include "trainer/task/task.h"

namespace trainyard::hvc {

// The mean of the training part's volumes at the size of a stage, made when it is first asked for: what a model that
// looks at no X-ray could say. Of kMostPatients at most.
class MeanVolumes {
 public:
  static constexpr int64_t kMostPatients = 256;
  // `patients` must outlive it.
  explicit MeanVolumes(const Patients& patients) : patients_(patients) {}
  at::Tensor At(size_t stage) const;  // (1, S, S, S)

 private:
  const Patients& patients_;
  mutable std::mutex mutex_;
  mutable std::map<size_t, at::Tensor> made_;
};

struct EvaluationSetup {
  const CascadeModel& model;
  Weights& weights;
  const Patients& patients;
  const MeanVolumes& means;
  const Options& options;
  size_t stage = 0;
  bool thorough = false;  // all volumes are sampled, those of the test part too, and once more with another's X-rays
  uint64_t seed = 0;
  int rank = 0, world = 1;
};

// `setup`'s references must outlive it.
std::unique_ptr<Evaluation> MakeCascadeEvaluation(const EvaluationSetup& setup);

// Volumes (B, 1, S, S, S) of `stage`, sampled from the X-rays (B, 2, 1, P, P) through all stages before it; `previous`
// gets what it was given of the stage before, up-sampled, if wanted. The noise of each stage follows from `key` alone.
at::Tensor SampleVolumes(const CascadeModel& model, Weights& weights, size_t stage, const at::Tensor& xrays,
                         int64_t steps, uint64_t key, at::Tensor* previous = nullptr);

}  // namespace trainyard::hvc

#endif  // TRAINYARD_TRAINER_TASK_HYBRID_VIT_CASCADE_CASCADE_EVALUATION_H_
