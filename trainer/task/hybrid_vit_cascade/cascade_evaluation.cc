#include "trainer/task/hybrid_vit_cascade/cascade_evaluation.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>

#include "trainer/base/error.h"
#include "trainer/base/random.h"
#include "trainer/base/text.h"
#include "trainer/model/rows.h"
#include "trainer/task/hybrid_vit_cascade/cascade_loss.h"
#include "trainer/task/hybrid_vit_cascade/image_metrics.h"
#include "trainer/task/hybrid_vit_cascade/projector.h"

namespace trainyard::hvc {
namespace {

constexpr int64_t kReadAtOnce = 8;  // patients
constexpr int64_t kTimes = 4;       // of the diffusion, spread over it, at which a patient's loss is measured

// What one patient gives. Sums over patients, each by one rank.
enum Slot : size_t {
  kPatients,  // with a loss
  kDiffusion,
  kPhysics,  // weighted with alpha_bar
  kTruePhysics,
  kAlphaBar,
  kSampled,
  kPsnr,
  kSsim,
  kMeanPsnr,
  kScaledMeanPsnr,
  kPreviousPsnr,
  kShuffledPsnr,
  kSlots
};

// The pictures of so many patients.
constexpr int64_t kPictures = 4;
constexpr int64_t kLargestCell = 96;

at::Tensor ToUnit(const at::Tensor& x) { return (x.clamp(-1, 1) + 1) / 2; }

// The brightness of the X-rays says how much of everything there is: the mean, with its attenuation so many times.
at::Tensor ScaledMean(const at::Tensor& mean, const PatientTensors& patient, const IntensityMap& map) {
  const std::vector<at::Tensor> views = Project(mean.unsqueeze(0), patient.extent.unsqueeze(0), map);
  const double of_mean = (views[0] + 1).mean().item<double>() + (views[1] + 1).mean().item<double>();
  const double of_patient = 2 * (patient.xrays + 1).mean().item<double>();
  const double floor = 1 + map.air();
  return ((mean + floor) * (of_patient / of_mean) - floor).clamp(-1, 1);
}

// A picture shows every so-manyeth voxel of a volume of this size.
int64_t StepOf(int64_t size) { return (size + kLargestCell - 1) / kLargestCell; }

class CascadeEvaluation : public Evaluation {
 public:
  explicit CascadeEvaluation(const EvaluationSetup& setup) : setup_(setup) {
    const Split& split = setup.patients.split();
    val_ = split.val;
    measured_ = std::min<int64_t>(setup.options.eval_patients.value_or(std::ssize(val_)), std::ssize(val_));
    if (setup.thorough) test_ = split.test;
    if (!setup.thorough) val_.resize(static_cast<size_t>(measured_));
    watched_ = std::min<int64_t>(setup.options.eval_samples, measured_);
    sampled_ = setup.thorough ? std::ssize(val_) : watched_;
    pictures_ = std::min(kPictures, sampled_);
    const int64_t S = setup.model.stages()[setup.stage].shape().size;
    rows_ = CellOf(S);
    columns_ = 3 * rows_ * (setup.stage > 0 ? 3 : 2);
    slots_.assign(static_cast<size_t>(items()) * kSlots + static_cast<size_t>(pictures_ * rows_ * columns_), 0);
  }

  int num_chunks() const override {
    return static_cast<int>(mean_chunks() + (items() + setup_.world - 1) / setup_.world);
  }

  // The volumes of the mean come first, some at a time: no rank waits for another until it has read them all.
  void RunChunk(int chunk) override {
    const c10::InferenceMode inference;
    if (chunk < mean_chunks()) {
      if (NeedsMean()) setup_.means.Read(setup_.stage, (int64_t{chunk} + 1) * kReadAtOnce);
      return;
    }
    const int64_t item = (chunk - mean_chunks()) * setup_.world + setup_.rank;
    if (item >= items()) return;
    try {
      Measure(item);
    } catch (const DataError& error) {
      if (!MayBeLeftOut(item)) throw;
      std::fprintf(stderr, "warning: left out of the test part: %s (faults.bad_sample: skip)\n", error.what());
    }
  }

  std::vector<double>& slots() override { return slots_; }

  std::map<std::string, double> Metrics() const override {
    const std::vector<double> val = SumOver(0, measured_);
    std::map<std::string, double> metrics;
    const double diffusion = val[kDiffusion] / val[kPatients], physics = val[kPhysics] / val[kPatients];
    metrics["val/loss"] = diffusion + setup_.options.stage[setup_.stage].physics * physics;
    metrics["val/diffusion"] = diffusion;
    metrics["val/physics"] = val[kPhysics] / val[kAlphaBar];
    metrics["val/physics_of_truth"] = PhysicsOfTruth();
    AddSampled("val", SumOver(0, watched_), metrics);
    if (!setup_.thorough) return metrics;
    AddAllSampled("val_all", SumOver(0, std::ssize(val_)), metrics);
    if (const std::vector<double> test = TestSums(); test[kSampled] > 0) AddAllSampled("test", test, metrics);
    return metrics;
  }

  std::vector<EventContent> Artifacts() const override {
    if (pictures_ == 0) return {};
    Image image{.tag = "val/volumes",
                .height = static_cast<int>(pictures_ * rows_),
                .width = static_cast<int>(columns_),
                .channels = 1,
                .pixels = {}};
    for (size_t i = static_cast<size_t>(items()) * kSlots; i < slots_.size(); ++i)
      image.pixels.push_back(static_cast<uint8_t>(std::lround(std::clamp(slots_[i], 0.0, 1.0) * 255)));
    std::vector<EventContent> artifacts = {image};
    if (setup_.thorough) artifacts.emplace_back(Text{"split", SplitText()});
    return artifacts;
  }

  std::string Table() const override {
    std::string table = Format("stage %zu, %lld^3 voxels: PSNR in dB (SSIM)\n", setup_.stage + 1,
                               static_cast<long long>(setup_.model.stages()[setup_.stage].shape().size));
    table += TableOf("validation", SumOver(0, std::ssize(val_)));
    table += PhysicsNote();
    if (const std::vector<double> test = TestSums(); test[kSampled] > 0) table += TableOf("test", test);
    return table;
  }

 private:
  int64_t items() const { return std::ssize(val_) + std::ssize(test_); }
  int64_t mean_chunks() const {
    return sampled_ + std::ssize(test_) > 0 ? (setup_.means.count() + kReadAtOnce - 1) / kReadAtOnce : 0;
  }
  bool IsSampled(int64_t item) const { return item < sampled_ || item >= std::ssize(val_); }
  // Whether any of this rank's items is sampled.
  bool NeedsMean() const {
    for (int64_t item = setup_.rank; item < items(); item += setup_.world) {
      if (IsSampled(item)) return true;
    }
    return false;
  }
  int64_t PatientOf(int64_t item) const {
    return item < std::ssize(val_) ? val_[static_cast<size_t>(item)]
                                   : test_[static_cast<size_t>(item - std::ssize(val_))];
  }
  uint64_t KeyOf(int64_t patient) const {
    return HashKey(setup_.seed, NameKey("validation"), static_cast<uint64_t>(patient));
  }

  double PhysicsOfTruth() const {
    const std::vector<double> val = SumOver(0, measured_);
    return val[kTruePhysics] / val[kPatients];
  }
  // The physics loss draws towards another volume than the true one where that does not project to its X-rays.
  std::string PhysicsNote() const {
    constexpr double kSmall = 0.1;  // what the guide has it fall below
    const double of_truth = PhysicsOfTruth();
    if (!(of_truth > kSmall) || setup_.options.stage[setup_.stage].physics == 0) return "";
    return Format(
        "the true volumes have a physics loss of %.2f themselves (small: %.1f): what data.hu_low and data.hu_high\n"
        "leave of them does not project to their X-rays, or data.drr_window or the images' orientation is another\n",
        of_truth, kSmall);
  }

  // Nothing is decided by who is only tested: such a file need not keep a run that is done from its end.
  bool MayBeLeftOut(int64_t item) const { return setup_.skip_bad && item >= std::ssize(val_); }

  void Measure(int64_t item) {
    const int64_t patient = PatientOf(item);
    const PatientTensors tensors = setup_.patients.At(patient, setup_.stage);
    const std::span<double> out(slots_.data() + static_cast<size_t>(item) * kSlots, kSlots);
    if (item < measured_) MeasureLoss(patient, tensors, out);
    if (IsSampled(item)) MeasureSample(item, patient, tensors, out);
  }

  // Those of the next patient that can be read. Undefined when there is none.
  at::Tensor XraysOfAnother(int64_t item) const {
    for (int64_t i = 1; i < items(); ++i) {
      const int64_t other = (item + i) % items();
      try {
        return setup_.patients.At(PatientOf(other), setup_.stage).xrays;
      } catch (const DataError&) {  // it is said where its own turn is
        if (!MayBeLeftOut(other)) throw;
      }
    }
    return {};
  }

  // The same times and noise in every evaluation: of another draw, the best of them would be a lucky one.
  void MeasureLoss(int64_t patient, const PatientTensors& tensors, std::span<double> out) const {
    const NoiseSchedule& schedule = setup_.model.schedule();
    CascadeBatch batch;
    CascadeSample sample;
    sample.patient = tensors;
    sample.stage = setup_.stage;
    std::vector<CascadeSample> samples(kTimes, sample);
    std::vector<const Sample*> pointers;
    for (int64_t i = 0; i < kTimes; ++i) {
      samples[static_cast<size_t>(i)].key = HashKey(KeyOf(patient), static_cast<uint64_t>(i));
      pointers.push_back(&samples[static_cast<size_t>(i)]);
    }
    FillBatch(pointers, setup_.patients.shape(), schedule, setup_.options.previous_noise, setup_.stage, batch);
    KeyedRandom random(KeyOf(patient), "times");
    const double place = random.UniformDouble();
    double alpha_bar = 0;
    for (int64_t i = 0; i < kTimes; ++i) {
      const auto t =
          static_cast<int64_t>((static_cast<double>(i) + place) / kTimes * static_cast<double>(schedule.steps()));
      batch.t.data_ptr<int64_t>()[i] = t;
      alpha_bar += schedule.alpha_bar(t);
    }
    const SampleLosses losses = LossesOf(setup_.model, Pass::Evaluation(setup_.weights), setup_.stage, batch,
                                         setup_.options.intensity, setup_.options.times());
    out[kPatients] = 1;
    out[kDiffusion] = losses.diffusion.mean().item<double>();
    out[kPhysics] = losses.physics.mean().item<double>();
    out[kAlphaBar] = alpha_bar / kTimes;
    out[kTruePhysics] = PhysicsLoss(tensors.volume.unsqueeze(0), tensors.extent.unsqueeze(0),
                                    tensors.xrays.unsqueeze(0), setup_.options.intensity)
                            .item<double>();
  }

  void MeasureSample(int64_t item, int64_t patient, const PatientTensors& tensors, std::span<double> out) {
    at::Tensor previous;
    const auto sampled = [&](const at::Tensor& xrays, at::Tensor* before) {
      return SampleVolumes(setup_.model, setup_.weights, setup_.stage, xrays.unsqueeze(0),
                           setup_.options.sampling_steps, KeyOf(patient), before)
          .squeeze(0)
          .cpu();
    };
    const at::Tensor volume = sampled(tensors.xrays, &previous);
    if (previous.defined()) previous = previous.cpu();
    const at::Tensor truth = ToUnit(tensors.volume.squeeze(0));
    const auto psnr = [&truth](const at::Tensor& x) { return Psnr(ToUnit(x.squeeze(0)), truth); };
    const at::Tensor mean = setup_.means.At(setup_.stage);
    out[kSampled] = 1;
    out[kPsnr] = psnr(volume);
    out[kSsim] = Ssim(ToUnit(volume.squeeze(0)), truth);
    out[kMeanPsnr] = psnr(mean);
    out[kScaledMeanPsnr] = psnr(ScaledMean(mean, tensors, setup_.options.intensity));
    if (previous.defined()) out[kPreviousPsnr] = psnr(previous.squeeze(0));
    if (has_others()) {
      const at::Tensor xrays = XraysOfAnother(item);
      out[kShuffledPsnr] = xrays.defined() ? psnr(sampled(xrays, nullptr)) : std::numeric_limits<double>::quiet_NaN();
    }
    if (item < pictures_) Draw(item, tensors.volume, volume, previous);
  }

  // One row of pictures: the truth, what was sampled, and what the stage before gave.
  void Draw(int64_t row, const at::Tensor& truth, const at::Tensor& sampled, const at::Tensor& previous) {
    std::vector<at::Tensor> cells = {MiddlePlanes(truth), MiddlePlanes(sampled)};
    if (previous.defined()) cells.push_back(MiddlePlanes(previous.squeeze(0)));
    const at::Tensor pixels = at::cat(cells, 1).contiguous();
    std::copy_n(pixels.data_ptr<float>(), pixels.numel(),
                slots_.begin() + items() * static_cast<int64_t>(kSlots) + row * rows_ * columns_);
  }

  // Whether each patient is sampled from another's X-rays as well: of one alone there is no other.
  bool has_others() const { return setup_.thorough && items() > 1; }

  std::vector<double> SumOver(int64_t begin, int64_t end) const {
    std::vector<double> sums(kSlots, 0);
    for (int64_t item = begin; item < end; ++item) {
      for (size_t i = 0; i < kSlots; ++i) sums[i] += slots_[static_cast<size_t>(item) * kSlots + i];
    }
    return sums;
  }

  std::vector<double> TestSums() const { return SumOver(std::ssize(val_), items()); }

  void AddSampled(const std::string& part, const std::vector<double>& sums,
                  std::map<std::string, double>& metrics) const {
    const double n = sums[kSampled];
    metrics[part + "/psnr"] = sums[kPsnr] / n;
    metrics[part + "/ssim"] = sums[kSsim] / n;
    metrics[part + "/psnr_of_mean"] = sums[kMeanPsnr] / n;
    metrics[part + "/psnr_of_scaled_mean"] = sums[kScaledMeanPsnr] / n;
    if (setup_.stage > 0) metrics[part + "/psnr_of_previous"] = sums[kPreviousPsnr] / n;
  }
  void AddAllSampled(const std::string& part, const std::vector<double>& sums,
                     std::map<std::string, double>& metrics) const {
    AddSampled(part, sums, metrics);
    if (has_others()) metrics[part + "/psnr_shuffled"] = sums[kShuffledPsnr] / sums[kSampled];
  }

  std::string TableOf(const char* part, const std::vector<double>& sums) const {
    const double n = sums[kSampled];
    std::string line =
        Format("%-10s %4.0f patients: sampled %.2f (%.3f), mean volume %.2f, scaled to the X-rays %.2f", part, n,
               sums[kPsnr] / n, sums[kSsim] / n, sums[kMeanPsnr] / n, sums[kScaledMeanPsnr] / n);
    if (setup_.stage > 0) line += Format(", previous stage up-sampled %.2f", sums[kPreviousPsnr] / n);
    if (has_others()) line += Format(", from another's X-rays %.2f", sums[kShuffledPsnr] / n);
    return line + "\n";
  }

  std::string SplitText() const {
    const Split& split = setup_.patients.split();
    std::string text;
    const std::pair<const char*, const std::vector<int64_t>&> parts[] = {
        {"train", split.train}, {"validation", split.val}, {"test", split.test}};
    for (const auto& [name, ids] : parts) {
      std::vector<std::string> names;
      for (const int64_t id : ids) names.push_back(setup_.patients.files()[static_cast<size_t>(id)].id);
      text += std::string(text.empty() ? "" : "\n\n") + "**" + name + "**: " + Join(names);
    }
    return text;
  }

  EvaluationSetup setup_;
  std::vector<int64_t> val_, test_;
  // Of val_, from its first: those whose losses are measured (task.eval_patients), those that are sampled for what can
  // be watched, the same in every evaluation, and all that are sampled.
  int64_t measured_ = 0, watched_ = 0, sampled_ = 0;
  int64_t pictures_ = 0, rows_ = 0, columns_ = 0;
  std::vector<double> slots_;
};

}  // namespace

int64_t CellOf(int64_t size) { return (size + StepOf(size) - 1) / StepOf(size); }

at::Tensor MiddlePlanes(const at::Tensor& volume) {
  const at::Tensor v = ToUnit(volume.squeeze(0));
  const int64_t middle = v.size(0) / 2, step = StepOf(v.size(0));
  std::vector<at::Tensor> planes = {v.select(0, middle), v.select(1, middle), v.select(2, middle).t()};
  for (at::Tensor& plane : planes) plane = plane.slice(0, 0, {}, step).slice(1, 0, {}, step);
  return at::cat(planes, 1);
}

int64_t MeanVolumes::count() const { return std::min(kMostPatients, std::ssize(patients_.split().train)); }

void MeanVolumes::ReadLocked(size_t stage, int64_t patients) const {
  if (stage_ != stage) {
    sum_ = mean_ = at::Tensor();
    read_ = summed_ = 0;
    stage_ = stage;
  }
  for (; read_ < std::min(patients, count()); ++read_) {
    at::Tensor volume;
    try {
      volume = patients_.At(patients_.split().train[static_cast<size_t>(read_)], stage).volume;
    } catch (const DataError& error) {
      if (!skip_bad_) throw;
      std::fprintf(stderr, "warning: left out of the mean volume: %s (faults.bad_sample: skip)\n", error.what());
      continue;
    }
    ++summed_;
    if (sum_.defined()) {
      sum_.add_(volume);
    } else {
      sum_ = volume.clone();
    }
  }
}

void MeanVolumes::Read(size_t stage, int64_t patients) const {
  const std::lock_guard lock(mutex_);
  ReadLocked(stage, patients);
}

at::Tensor MeanVolumes::At(size_t stage) const {
  const std::lock_guard lock(mutex_);
  ReadLocked(stage, count());
  if (summed_ == 0) throw DataError("no patient of the training part can be read (faults.bad_sample: skip)");
  if (!mean_.defined()) mean_ = sum_.div_(static_cast<double>(summed_));
  return mean_;
}

at::Tensor SampleVolumes(const CascadeModel& model, Weights& weights, size_t stage, const at::Tensor& xrays,
                         int64_t steps, uint64_t key, at::Tensor* previous) {
  const Pass pass = Pass::Evaluation(weights);
  const int64_t S = model.stages()[stage].shape().size, B = xrays.size(0);
  NoisedVolume asked;
  if (stage > 0) asked.previous = UpSampled(SampleVolumes(model, weights, stage - 1, xrays, steps, key), S);
  if (previous) *previous = asked.previous;
  const EncodedXrays encoded = model.Encode(pass, stage, pass.Upload(xrays));
  const auto velocity = [&](const at::Tensor& x, const at::Tensor& t) {
    asked.x = x;
    asked.t = t;
    return model.Velocity(pass, stage, asked, encoded);
  };
  const at::Tensor noise = NormalDraws({B, 1, S, S, S}, HashKey(key, stage), "sample");
  return Ddim(model.schedule(), steps, pass.Upload(noise), velocity);
}

std::unique_ptr<Evaluation> MakeCascadeEvaluation(const EvaluationSetup& setup) {
  return std::make_unique<CascadeEvaluation>(setup);
}

}  // namespace trainyard::hvc
