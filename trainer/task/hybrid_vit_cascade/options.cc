#include "trainer/task/hybrid_vit_cascade/options.h"

#include <bit>
#include <map>
#include <nlohmann/json.hpp>
#include <span>

#include "trainer/base/error.h"
#include "trainer/base/text.h"

namespace trainyard::hvc {
namespace {

constexpr auto kIdentity = FieldClass::kIdentity;
constexpr auto kSchedule = FieldClass::kSchedule;
constexpr const char* kPresetNames[] = {"tiny", "small", "full"};

// The full one is the guide's. Its networks give a number for each token (kUpsample), as the original's do.
const std::map<std::string, ModelShape> kPresets = {{"tiny",
                                                     {.stages = {{12, 32, 1, 2}, {24, 32, 1, 2}, {48, 32, 1, 2}},
                                                      .token_grid = 6,
                                                      .xray_size = 64,
                                                      .xray_dim = 32,
                                                      .head = Head::kPatch,
                                                      .context = Context::kViews,
                                                      .mean = 0,
                                                      .deviation = 0,
                                                      .detail = 0.07,
                                                      .dropout = 0}},
                                                    {"small",
                                                     {.stages = {{16, 64, 4, 4}, {32, 64, 4, 4}, {64, 64, 4, 4}},
                                                      .token_grid = 8,
                                                      .xray_size = 64,
                                                      .xray_dim = 64,
                                                      .head = Head::kPatch,
                                                      .context = Context::kViews,
                                                      .mean = 0,
                                                      .deviation = 0,
                                                      .detail = 0.07,
                                                      .dropout = 0}},
                                                    {"full",
                                                     {.stages = {{64, 256, 4, 4}, {128, 384, 6, 6}, {256, 512, 8, 8}},
                                                      .token_grid = 16,
                                                      .xray_size = 512,
                                                      .xray_dim = 512,
                                                      .head = Head::kUpsample,
                                                      .context = Context::kMean,
                                                      .mean = 0,
                                                      .deviation = 0,
                                                      .detail = 0.05,
                                                      .dropout = 0.1}}};

// "...; auto: 12 (tiny), 16 (small), 64 (full)."
std::string PerPreset(const std::string& doc, const std::function<double(const ModelShape&)>& value) {
  std::vector<std::string> parts;
  for (const char* name : kPresetNames) parts.push_back(Format("%g (%s)", value(kPresets.at(name)), name));
  return doc + "; auto: " + Join(parts) + ".";
}

using ShapeField = int64_t StageShape::*;

void Require(bool good, const std::string& what) {
  if (!good) throw ConfigError(what);
}

std::string N(int64_t value) { return std::to_string(value); }

double DefaultPhysics(size_t stage) { return 0.3 + 0.1 * static_cast<double>(stage); }

}  // namespace

Options::Options() {
  for (size_t i = 0; i < stage.size(); ++i) stage[i].physics = DefaultPhysics(i);
}

void Options::Declare(FieldTable& t) {
  const auto preset = [this]() -> const ModelShape& { return kPresets.at(this->preset); };
  const auto model_int = [&](const std::string& path, OptionalInt& value, int64_t low, int64_t high,
                             const std::string& doc, const std::function<int64_t(const ModelShape&)>& of) {
    t.OptInt(path, value, "auto", low, kIdentity,
             PerPreset(doc, [&](const ModelShape& s) { return static_cast<double>(of(s)); }), high);
    t.AutoIs([preset, of] { return nlohmann::json(of(preset())); });
  };
  t.Int("task.first_stage", first_stage, 1, kIdentity,
        "The first stage that is trained; the ones before it are taken from init.from as they are.", kMaxStages);
  t.Bool("task.from_best", from_best, kSchedule,
         "A stage starts from the weights that the one before had at its best value of checkpoint.keep_best, not its "
         "last ones.");
  t.Int("task.timesteps", timesteps, 2, kIdentity, "Steps of the diffusion.", 100000);
  t.Int("task.sampling_steps", sampling_steps, 1, kSchedule, "Steps of DDIM where a volume is sampled.", 100000);
  t.Number("task.previous_noise", previous_noise, 0, 1, kIdentity,
           "Deviation of the noise on the previous stage's volume in training, which is the true one there.");
  t.Choice(
      "task.weighting", weighting, {"auto", "velocity", "even"}, kIdentity,
      "How the diffusion loss weighs times: the error of v as in the original, or as a share of what nobody could know "
      "without the X-rays; auto: even (tiny, small), velocity (full).");
  t.OptInt("task.eval_patients", eval_patients, "null", 1, kSchedule,
           "Patients of the validation part whose losses an evaluation measures; null: all of them.");
  t.Int("task.eval_samples", eval_samples, 1, kSchedule,
        "How many of them get a sampled volume in an evaluation, for val/psnr and val/ssim; the last one samples all, "
        "for val_all/psnr and val_all/ssim.");
  t.Choice("model.preset", this->preset, {"tiny", "small", "full"}, kIdentity,
           "The cascade in one of these sizes; every field below that is set overrides the preset's.");
  model_int("model.stages", stages, 1, kMaxStages, "Networks of the cascade",
            [](const ModelShape& s) { return std::ssize(s.stages); });
  for (size_t i = 0; i < stage.size(); ++i) {
    const std::string name = "stage" + std::to_string(i + 1);
    const auto of = [i](ShapeField field) { return [i, field](const ModelShape& s) { return s.stages[i].*field; }; };
    t.OptInt("task." + name + ".steps", stage[i].steps, "auto", 1, kSchedule,
             "Steps of this stage; auto: an equal part of what the others leave of train.steps.");
    t.Number("task." + name + ".physics", stage[i].physics, 0, 100, kIdentity,
             "Weight of the physics loss in this stage.");
    model_int("model." + name + ".size", stage[i].size, kMinSize, 512, "Voxels of a side of this stage's volumes",
              of(&StageShape::size));
    model_int("model." + name + ".dim", stage[i].dim, 32, 4096, "Width of its tokens; a multiple of 32 and the heads",
              of(&StageShape::dim));
    model_int("model." + name + ".depth", stage[i].depth, 1, 64, "Its transformer blocks", of(&StageShape::depth));
    model_int("model." + name + ".heads", stage[i].heads, 1, 64, "Its attention heads", of(&StageShape::heads));
  }
  model_int("model.token_grid", token_grid, 2, 64, "Tokens of a side; a stage's size is this times a power of two",
            [](const ModelShape& s) { return s.token_grid; });
  model_int("model.xray_size", xray_size, 16, 2048, "Pixels of a side to which X-rays are scaled; a multiple of 8",
            [](const ModelShape& s) { return s.xray_size; });
  model_int("model.xray_dim", xray_dim, 32, 4096, "Channels of the encoded X-rays; a multiple of 32",
            [](const ModelShape& s) { return s.xray_dim; });
  t.Choice(
      "model.head", head, {"auto", "upsample", "patch"}, kIdentity,
      "What a token gives: one number, interpolated between tokens as in the original, or the voxels that it stands "
      "for; auto: patch (tiny, small), upsample (full).");
  t.Choice("model.context", context, {"auto", "mean", "views"}, kIdentity,
           "What tokens see of the X-rays: the mean of both as in the original, or the pixels of each and where they "
           "are; auto: views (tiny, small), mean (full).");
  t.Number("model.mean", mean, -1, 1, kIdentity,
           "Mean of a volume's voxels in [-1, 1], which the first stage's network need not predict.");
  t.Number("model.deviation", deviation, 0.001, 1, kIdentity, "Their deviation from it.");
  t.OptNumber("model.detail", detail, "auto", 0.001, 1, kIdentity,
              PerPreset("Deviation from the previous stage's volume that the network of a later stage need not predict",
                        [](const ModelShape& s) { return s.detail; }));
  t.AutoIs([preset] { return nlohmann::json(preset().detail); });
  t.OptNumber("model.dropout", dropout, "auto", 0, 0.9, kIdentity,
              PerPreset("Dropout probability of attention, its output and the MLP",
                        [](const ModelShape& s) { return s.dropout; }));
  t.AutoIs([preset] { return nlohmann::json(preset().dropout); });
  t.Number("data.hu_low", intensity.hu_low, -10000, 10000, kIdentity, "The HU that become -1, and all below.");
  t.Number("data.hu_high", intensity.hu_high, -10000, 100000, kIdentity, "The HU that become 1, and all above.");
  t.Number("data.mu_water", intensity.mu_water, 1e-4, 1, kIdentity,
           "Attenuation of water in 1/mm with which the X-rays were made.");
  t.Number("data.drr_window", intensity.drr_window, 1e-3, 1000, kIdentity,
           "The line integral of the attenuation that is white in the X-rays; 0 is black.");
  t.Bool("data.augment", augment, kIdentity,
         "In training, half of the patients left and right exchanged, half with other intensities.");
  t.Bool("data.flip_xrays", flip_xrays, kIdentity, "The X-rays are upside down.");
  t.Number("data.val_fraction", val_fraction, 0.001, 0.9, kIdentity, "The share of the patients for validation.");
  t.Number("data.test_fraction", test_fraction, 0, 0.9, kIdentity,
           "The share of the patients that only the last evaluation sees.");
  t.Int("data.split_seed", split_seed, 0, kIdentity, "Who is in which part.");
  t.Int("data.cache_mib", cache_mib, 0, FieldClass::kFree,
        "Memory of a rank for patients as they are before augmentation; 0: each is read anew.", 1 << 24);
}

namespace {

// What is said of a stage that there is not would do nothing.
void RequireUnset(size_t index, const Options::StageOptions& stage, int64_t stages) {
  const std::string number = N(static_cast<int64_t>(index) + 1);
  const auto require = [&](const OptionalInt& value, const std::string& name) {
    Require(!value, name + ": " + N(value.value_or(0)) + ", and model.stages is " + N(stages));
  };
  require(stage.steps, "task.stage" + number + ".steps");
  require(stage.size, "model.stage" + number + ".size");
  require(stage.dim, "model.stage" + number + ".dim");
  require(stage.depth, "model.stage" + number + ".depth");
  require(stage.heads, "model.stage" + number + ".heads");
  Require(stage.physics == DefaultPhysics(index),
          Format("task.stage%s.physics: %g, and model.stages is %s", number.c_str(), stage.physics, N(stages).c_str()));
}

}  // namespace

void Options::Check(const Config& config) const {
  const ModelShape s = shape();
  for (size_t i = 0; i < s.stages.size(); ++i) {
    const StageShape& m = s.stages[i];
    const std::string name = "model.stage" + std::to_string(i + 1);
    Require(m.dim % 32 == 0 && m.dim % m.heads == 0,
            name + ".dim: " + N(m.dim) + " is not a multiple of 32 and of its " + N(m.heads) + " heads");
    const int64_t factor = m.size / s.token_grid;
    Require(m.size % s.token_grid == 0 && std::has_single_bit(static_cast<uint64_t>(factor)),
            name + ".size: " + N(m.size) + " is not model.token_grid " + N(s.token_grid) + " times a power of two");
    Require(i == 0 || m.size > s.stages[i - 1].size, name + ".size: " + N(m.size) + " is not above the " +
                                                         N(s.stages[i ? i - 1 : 0].size) + " of the stage before");
  }
  Require(s.xray_size % 8 == 0, "model.xray_size: " + N(s.xray_size) + " is not a multiple of 8");
  Require(s.xray_dim % 32 == 0, "model.xray_dim: " + N(s.xray_dim) + " is not a multiple of 32");
  Require(intensity.hu_low < intensity.hu_high,
          Format("data.hu_low: %g is not below data.hu_high %g", intensity.hu_low, intensity.hu_high));
  Require(val_fraction + test_fraction < 1,
          Format("data.val_fraction, data.test_fraction: %g and %g leave no patient to "
                 "train on",
                 val_fraction, test_fraction));
  Require(config.train.steps.has_value(), "train.steps: missing; the stages share it, so train.epochs is not enough");
  Require(first_stage <= std::ssize(s.stages),
          "task.first_stage: " + N(first_stage) + ", and model.stages is " + N(std::ssize(s.stages)));
  for (size_t i = s.stages.size(); i < stage.size(); ++i) RequireUnset(i, stage[i], std::ssize(s.stages));
  const OptionalInt& only = stage[static_cast<size_t>(first_stage - 1)].steps;
  Require(first_stage < std::ssize(s.stages) || !only || *only == *config.train.steps,
          "task.stage" + N(first_stage) + ".steps: " + N(only.value_or(0)) + ", and train.steps is " +
              N(*config.train.steps) + ", all of which are the only stage's");
  Require(first_stage == 1 || !config.init.from.empty(),
          "init.from: missing; task.first_stage " + N(first_stage) +
              " begins with the weights of the stages before it, such as best/stage" + N(first_stage - 1) +
              "/model.safetensors of their run");
  Require(sampling_steps <= timesteps,
          "task.sampling_steps: " + N(sampling_steps) + " is above task.timesteps " + N(timesteps));
}

std::string Options::Describe() const {
  const ModelShape s = shape();
  std::vector<std::string> parts;
  for (const StageShape& m : s.stages)
    parts.push_back(Format("%lld^3 (%lld blocks of width %lld)", static_cast<long long>(m.size),
                           static_cast<long long>(m.depth), static_cast<long long>(m.dim)));
  return preset + ": X-rays of " + N(s.xray_size) + "^2 -> " + Join(parts, " -> ");
}

std::vector<Metric> Options::Metrics() const {
  return {{"val/loss", Better::kLower},
          {"val/diffusion", Better::kLower},
          {"val/physics", Better::kLower},
          {"val/psnr", Better::kHigher},
          {"val/ssim", Better::kHigher}};
}

ModelShape Options::shape() const {
  ModelShape s = kPresets.at(preset);
  s.stages.resize(static_cast<size_t>(stages.value_or(std::ssize(s.stages))), s.stages.back());
  for (size_t i = 0; i < s.stages.size(); ++i) {
    StageShape& m = s.stages[i];
    m = {stage[i].size.value_or(m.size), stage[i].dim.value_or(m.dim), stage[i].depth.value_or(m.depth),
         stage[i].heads.value_or(m.heads)};
  }
  s.token_grid = token_grid.value_or(s.token_grid);
  s.xray_size = xray_size.value_or(s.xray_size);
  s.xray_dim = xray_dim.value_or(s.xray_dim);
  if (head != "auto") s.head = head == "patch" ? Head::kPatch : Head::kUpsample;
  if (context != "auto") s.context = context == "views" ? Context::kViews : Context::kMean;
  s.mean = mean;
  s.deviation = deviation;
  s.detail = detail.value_or(s.detail);
  s.dropout = dropout.value_or(s.dropout);
  return s;
}

Weighting Options::times() const {
  if (weighting == "auto") return preset == "full" ? Weighting::kVelocity : Weighting::kEven;
  return weighting == "even" ? Weighting::kEven : Weighting::kVelocity;
}

std::vector<int64_t> Options::StageSteps(const Config& config) const {
  const std::span<const StageOptions> mine(stage.data() + first_stage - 1,
                                           shape().stages.size() - static_cast<size_t>(first_stage - 1));
  int64_t left = config.train.steps.value_or(0), sharers = 0;
  for (const StageOptions& one : mine) {
    left -= one.steps.value_or(0);
    sharers += one.steps ? 0 : 1;
  }
  std::vector<int64_t> steps;
  for (const StageOptions& one : mine) {
    steps.push_back(one.steps ? *one.steps : left / sharers);
    if (!one.steps) left -= left / sharers--;
  }
  return steps;
}

std::shared_ptr<TaskOptions> MakeOptions() { return std::make_shared<Options>(); }

const Options& OptionsOf(const Config& config) { return dynamic_cast<const Options&>(*config.task.options); }

}  // namespace trainyard::hvc
