// Patients as tensors: what a stage is trained on, and what it is evaluated with.
#ifndef TRAINYARD_TRAINER_TASK_HYBRID_VIT_CASCADE_CASCADE_DATA_H_
#define TRAINYARD_TRAINER_TASK_HYBRID_VIT_CASCADE_CASCADE_DATA_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "trainer/data/batch.h"
#include "trainer/data/dataset.h"
#include "trainer/task/hybrid_vit_cascade/diffusion.h"
#include "trainer/task/hybrid_vit_cascade/options.h"
#include "trainer/task/hybrid_vit_cascade/patients.h"

namespace trainyard::hvc {

// A patient at the size of a stage; float32, values of [-1, 1].
struct PatientTensors {
  at::Tensor volume;    // (1, S, S, S)
  at::Tensor previous;  // (1, s, s, s): the same at the size of the stage before; undefined in the first
  at::Tensor xrays;     // (2, 1, P, P): from the front, from the side
  at::Tensor extent;    // (2): millimetres of the box along D and W
};

struct CascadeSample : Sample {
  PatientTensors patient;
  size_t stage = 0;
  uint64_t key = 0;  // what its noise is drawn from
};

struct CascadeBatch : Batch {
  at::Tensor volume;    // (B, 1, S, S, S)
  at::Tensor previous;  // (B, 1, S, S, S): up-sampled, with noise; undefined in the first stage
  at::Tensor xrays;     // (B, 2, 1, P, P)
  at::Tensor extent;    // (B, 2)
  at::Tensor noise;     // (B, 1, S, S, S), normal
  at::Tensor t;         // (B) int64
  at::Tensor weight;    // (B): 0 for a sample that could not be read
};

// Reads, scales and keeps them. Immutable to its users: safe for any number of threads.
class Patients {
 public:
  // Throws DataError: FindPatients, SplitPatients.
  Patients(const std::string& path, const Options& options);

  const Split& split() const { return split_; }
  const std::vector<PatientFiles>& files() const { return files_; }
  const ModelShape& shape() const { return shape_; }
  // `patient`: an index of the split. Throws DataError.
  PatientTensors At(int64_t patient, size_t stage) const;

 private:
  PatientTensors Load(int64_t patient, size_t stage) const;

  Options options_;
  ModelShape shape_;
  std::vector<PatientFiles> files_;
  Split split_;
  mutable std::mutex mutex_;
  mutable std::map<std::pair<size_t, int64_t>, PatientTensors> kept_;  // by stage and patient
  mutable int64_t kept_bytes_ = 0;
};

// The patients of the training part.
class TrainingSet : public Dataset {
 public:
  // `patients` must outlive it. Stage i of the job is stage `first + i` of the cascade.
  TrainingSet(const Patients& patients, const Options& options, size_t first)
      : patients_(patients), augment_(options.augment), intensity_(options.intensity), first_(first) {}
  int64_t size() const override { return std::ssize(patients_.split().train); }
  std::string fingerprint(const Tick& tick) const override { return FingerprintOf(patients_.files(), tick); }
  std::string glance(const Tick& tick) const override { return GlanceOf(patients_.files(), tick); }
  std::unique_ptr<Sample> Read(const SampleKey& key) const override;
  uint64_t Hash(const Sample& sample) const override;

 private:
  const Patients& patients_;
  bool augment_;
  IntensityMap intensity_;
  size_t first_;
};

// Left and right exchanged, half of the time: the volume and the image from the front; the one from the side stays as
// it is. And another intensity, half of the time: attenuation times U(0.9, 1.1) in the volume and, since they are its
// line integrals, in the images; a voxel or pixel at an end of its window stays there. `map`: of the volume, whose -1
// is hu_low. A pure function of the key.
PatientTensors Augmented(const PatientTensors& patient, const IntensityMap& map, uint64_t key);

// Normal draws that follow from (key, purpose) alone.
at::Tensor NormalDraws(at::IntArrayRef sizes, uint64_t key, const char* purpose);

// Fills a batch of samples of one stage, with the diffusion's steps and noise drawn from each sample's key; null
// samples weigh nothing. Denominators: samples, and the sum of their alpha_bar. Of null samples alone a stage cannot be
// told: the tensors are those of `stage`.
void FillBatch(std::span<const Sample* const> samples, const ModelShape& shape, const NoiseSchedule& schedule,
               double previous_noise, size_t stage, CascadeBatch& batch);

}  // namespace trainyard::hvc

#endif  // TRAINYARD_TRAINER_TASK_HYBRID_VIT_CASCADE_CASCADE_DATA_H_
