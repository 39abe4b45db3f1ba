#include "trainer/task/hybrid_vit_cascade/cascade_data.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/upsample_bilinear2d.h>
#include <ATen/ops/upsample_trilinear3d.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "trainer/base/hash.h"
#include "trainer/base/random.h"
#include "trainer/task/hybrid_vit_cascade/cascade_model.h"
#include "trainer/threads/parallel_for.h"

namespace trainyard::hvc {
namespace {

// A view of its values, in three or two dimensions.
at::Tensor TensorOf(const Volume& volume) {
  return at::from_blob(const_cast<float*>(volume.values.data()), volume.shape, at::kFloat);
}

// (D, H, W) in [-1, 1] -> (1, S, S, S)
at::Tensor Resized(const at::Tensor& volume, int64_t size) {
  const at::Tensor x = volume.unsqueeze(0).unsqueeze(0);
  const bool fits = volume.size(0) == size && volume.size(1) == size && volume.size(2) == size;
  return (fits ? x.clone() : at::upsample_trilinear3d(x, {size, size, size}, false)).squeeze(0);
}

at::Tensor ScaledXray(const Volume& image, int64_t size, bool upside_down) {
  const at::Tensor x = TensorOf(image).unsqueeze(0).unsqueeze(0);
  const at::Tensor scaled = at::upsample_bilinear2d(x, {size, size}, false).squeeze(0) * 2 - 1;
  return upside_down ? scaled.flip({1}) : scaled;
}

int64_t BytesOf(const PatientTensors& patient) {
  int64_t bytes = 0;
  for (const at::Tensor& x : {patient.volume, patient.previous, patient.xrays})
    bytes += x.defined() ? static_cast<int64_t>(x.nbytes()) : 0;
  return bytes;
}

uint64_t HashOf(const at::Tensor& x) {
  const at::Tensor plain = x.contiguous();
  return Xxh3Of(std::span<const float>(plain.data_ptr<float>(), static_cast<size_t>(plain.numel())));
}

}  // namespace

Patients::Patients(const std::string& path, const Options& options)
    : options_(options),
      shape_(options.shape()),
      files_(FindPatients(path)),
      split_(SplitPatients(std::ssize(files_), options.val_fraction, options.test_fraction,
                           static_cast<uint64_t>(options.split_seed))) {}

PatientTensors Patients::At(int64_t patient, size_t stage) const {
  {
    const std::lock_guard lock(mutex_);
    if (const auto it = kept_.find({stage, patient}); it != kept_.end()) return it->second;
  }
  PatientTensors loaded = Load(patient, stage);
  const int64_t bytes = BytesOf(loaded);
  const std::lock_guard lock(mutex_);
  // Of the stage that is trained now: of a former one only its last evaluation is still to come.
  for (auto it = kept_.begin(); it != kept_.end() && it->first.first < stage; it = kept_.erase(it))
    kept_bytes_ -= BytesOf(it->second);
  if (kept_bytes_ + bytes <= options_.cache_mib << 20 && kept_.try_emplace({stage, patient}, loaded).second)
    kept_bytes_ += bytes;
  return loaded;
}

PatientTensors Patients::Load(int64_t patient, size_t stage) const {
  const at::NoGradGuard no_grad;
  const OneLibraryThread one_thread;  // of the loader's
  Patient read = ReadPatient(files_[static_cast<size_t>(patient)]);
  const IntensityMap& map = options_.intensity;
  at::Tensor ct = TensorOf(read.ct);  // in place: a volume may be large, and each loader's thread holds one
  ct.clamp_(map.hu_low, map.hu_high).sub_(map.hu_low).mul_(2 / (map.hu_high - map.hu_low)).sub_(1);
  PatientTensors tensors;
  tensors.volume = Resized(ct, shape_.stages[stage].size);
  if (stage > 0) tensors.previous = Resized(ct, shape_.stages[stage - 1].size);
  tensors.xrays = at::stack({ScaledXray(read.front, shape_.xray_size, options_.flip_xrays),
                             ScaledXray(read.side, shape_.xray_size, options_.flip_xrays)});
  tensors.extent = at::empty({2}, at::kFloat);
  std::copy(read.extent_mm.begin(), read.extent_mm.end(), tensors.extent.data_ptr<float>());
  return tensors;
}

PatientTensors Augmented(const PatientTensors& patient, const IntensityMap& map, uint64_t key) {
  KeyedRandom random(key, "augment");
  const bool exchange = random.Uniform() < 0.5f, brighten = random.Uniform() < 0.5f;
  const double factor = 0.9 + 0.2 * random.UniformDouble();
  PatientTensors changed = patient;
  if (exchange) {
    changed.volume = changed.volume.flip({-1});
    if (changed.previous.defined()) changed.previous = changed.previous.flip({-1});
    changed.xrays = at::stack({changed.xrays.select(0, 0).flip({-1}), changed.xrays.select(0, 1)});
  }
  if (brighten) {
    // What is at an end of the window may lie far beyond it, as air and bone do beyond one of soft tissue, and a beam
    // through much bone beyond the images'. By how much is not kept: it stays there, where its true value would in
    // nearly every case.
    constexpr double kWithin = 1 - 1e-5;  // ends are rounded, and were resized
    const auto scaled = [&](const at::Tensor& x, double air) {
      return at::where(x.abs() < kWithin, ((x + (1 + air)) * factor - (1 + air)).clamp_(-1, 1), x);
    };
    changed.volume = scaled(changed.volume, map.air());
    if (changed.previous.defined()) changed.previous = scaled(changed.previous, map.air());
    changed.xrays = scaled(changed.xrays, 0);  // of no attenuation an image is -1
  }
  return changed;
}

std::unique_ptr<Sample> TrainingSet::Read(const SampleKey& key) const {
  const at::NoGradGuard no_grad;
  const OneLibraryThread one_thread;
  auto sample = std::make_unique<CascadeSample>();
  sample->stage = first_ + static_cast<size_t>(key.stage);
  sample->key = key.key;
  sample->patient = patients_.At(patients_.split().train[static_cast<size_t>(key.id)], sample->stage);
  if (augment_) sample->patient = Augmented(sample->patient, intensity_, key.key);
  return sample;
}

uint64_t TrainingSet::Hash(const Sample& sample) const {
  const auto& s = static_cast<const CascadeSample&>(sample);
  const uint64_t previous = s.patient.previous.defined() ? HashOf(s.patient.previous) : 0;
  return HashKey(HashKey(HashOf(s.patient.volume), HashOf(s.patient.xrays)),
                 HashKey(previous, HashOf(s.patient.extent)), HashKey(s.key, s.stage));
}

at::Tensor NormalDraws(at::IntArrayRef sizes, uint64_t key, const char* purpose) {
  return at::empty(sizes, at::kFloat).normal_(0, 1, at::detail::createCPUGenerator(HashKey(key, NameKey(purpose))));
}

void FillBatch(std::span<const Sample* const> samples, const ModelShape& shape, const NoiseSchedule& schedule,
               double previous_noise, size_t stage, CascadeBatch& batch) {
  const at::NoGradGuard no_grad;
  const OneLibraryThread one_thread;
  for (const Sample* sample : samples) {
    if (sample) stage = static_cast<const CascadeSample&>(*sample).stage;
  }
  const auto B = static_cast<int64_t>(samples.size());
  const int64_t S = shape.stages[stage].size, P = shape.xray_size;
  for (at::Tensor* x : {&batch.volume, &batch.noise}) *x = at::zeros({B, 1, S, S, S}, at::kFloat);
  if (stage > 0) batch.previous = at::zeros({B, 1, S, S, S}, at::kFloat);
  batch.xrays = at::zeros({B, 2, 1, P, P}, at::kFloat);
  batch.extent = at::zeros({B, 2}, at::kFloat);
  batch.t = at::zeros({B}, at::kLong);
  batch.weight = at::zeros({B}, at::kFloat);
  batch.denominators = {0, 0};
  for (int64_t b = 0; b < B; ++b) {
    const auto* sample = static_cast<const CascadeSample*>(samples[static_cast<size_t>(b)]);
    if (!sample) continue;
    KeyedRandom random(sample->key, "timestep");
    const auto t = static_cast<int64_t>(random.Below(static_cast<uint64_t>(schedule.steps())));
    batch.t.data_ptr<int64_t>()[b] = t;
    batch.weight.data_ptr<float>()[b] = 1;
    batch.denominators[0] += 1;
    batch.denominators[1] += schedule.alpha_bar(t);
    batch.volume.select(0, b).copy_(sample->patient.volume);
    batch.noise.select(0, b).copy_(NormalDraws({1, S, S, S}, sample->key, "noise"));
    batch.xrays.select(0, b).copy_(sample->patient.xrays);
    batch.extent.select(0, b).copy_(sample->patient.extent);
    if (stage > 0)
      batch.previous.select(0, b).copy_(UpSampled(sample->patient.previous.unsqueeze(0), S).squeeze(0) +
                                        NormalDraws({1, S, S, S}, sample->key, "previous") * previous_noise);
  }
}

}  // namespace trainyard::hvc
