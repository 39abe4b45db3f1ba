#include "trainer/task/mace_survival/options.h"

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/text.h"

namespace trainyard::mace {
namespace {

using nlohmann::json;
constexpr auto kIdentity = FieldClass::kIdentity;
constexpr int64_t kMaxSide = 1024;

const std::vector<std::string> kPresetNames = {"tiny", "small", "full"};
const std::map<std::string, ModelShape> kPresets = {
    {"tiny", {.layers = 10, .width = 4, .first_stride = 1, .volume = {16, 16, 8}}},
    {"small", {.layers = 10, .width = 16, .first_stride = 2, .volume = {64, 64, 32}}},
    {"full", {.layers = 18, .width = 64, .first_stride = 1, .volume = {256, 256, 64}}}};

// "...; auto: 4 (tiny), 16 (small), 64 (full)."
std::string PerPreset(const std::string& doc, std::string (*value)(const ModelShape&)) {
  std::vector<std::string> parts;
  for (const std::string& name : kPresetNames) parts.push_back(value(kPresets.at(name)) + " (" + name + ")");
  return doc + "; auto: " + Join(parts) + ".";
}

std::string ResNetName(int64_t layers) { return "resnet" + std::to_string(layers); }

// Three whole numbers, or auto.
void VolumeField(FieldTable& t, std::vector<int64_t>& value, const std::string& doc) {
  const std::string path = "data.volume",
                    expected = Format("auto or three whole numbers from 1 to %lld", static_cast<long long>(kMaxSide));
  Field field{path,
              kIdentity,
              "list",
              "three from 1 to 1024, or auto",
              doc,
              [&value] { return value.empty() ? json("auto") : json(value); },
              [&value, path, expected](const json& given) {
                if (given == "auto" || given.is_null()) return value.clear();
                if (!given.is_array() || given.size() != 3) RefuseValue(path, given, expected);
                std::vector<int64_t> sides;
                for (const json& side : given) {
                  if (!side.is_number_integer() || side < 1 || side > kMaxSide) RefuseValue(path, given, expected);
                  sides.push_back(side.get<int64_t>());
                }
                value = sides;
              }};
  t.Add(std::move(field));
}

// As float32, which is what voxels are divided in.
bool IsWindow(float low, float high) { return low < high && std::isfinite(high - low); }

void WindowField(FieldTable& t, std::vector<double>& value) {
  const std::string path = "data.window", expected = "two finite numbers, as float32 the lower one first";
  t.Add({path, kIdentity, "list", expected,
         "Intensities of the files, in Hounsfield units, that become 0 and 1; what lies outside is cut.",
         [&value] { return json(value); },
         [&value, path, expected](const json& given) {
           if (!given.is_array() || given.size() != 2 || !given[0].is_number() || !given[1].is_number() ||
               !IsWindow(given[0].get<float>(), given[1].get<float>()))
             RefuseValue(path, given, expected);
           value = given.get<std::vector<double>>();
         }});
}

}  // namespace

void Options::Declare(FieldTable& t) {
  const auto preset = [this]() -> const ModelShape& { return kPresets.at(model.preset); };
  t.Int("task.pretrain_epochs", pretrain_epochs, 0, kIdentity,
        "Epochs of a first stage that learns to tell the table's scaled features from the volume (squared error). "
        "With as many in train.epochs it is the only one.",
        1 << 20);
  t.Int("task.freeze_epochs", freeze_epochs, 0, kIdentity,
        "Epochs at the start of fine-tuning in which the head alone is trained, on a network that stays as it is.",
        1 << 20);
  t.OptNumber("task.event_fraction", event_fraction, "null", 0.01, 0.99, kIdentity,
              "The share of subjects with an event among those that fine-tuning sees, each stretch of a batch alike; "
              "null: as they come, every subject once an epoch.");
  t.Choice("model.preset", model.preset, kPresetNames, kIdentity,
           "MONAI's 3-D ResNet in one of these sizes; every field below that is set overrides the preset's.");
  t.Choice("model.resnet", model.resnet, {"auto", "resnet10", "resnet18", "resnet34", "resnet50"}, kIdentity,
           PerPreset("The network", [](const ModelShape& s) { return ResNetName(s.layers); }));
  t.AutoIs([preset] { return json(ResNetName(preset().layers)); });
  t.OptInt("model.width", model.width, "auto", 1, kIdentity,
           PerPreset("Channels of the first stage; each later one has twice as many",
                     [](const ModelShape& s) { return std::to_string(s.width); }),
           1024);
  t.AutoIs([preset] { return json(preset().width); });
  t.OptInt("model.first_stride", model.first_stride, "auto", 1, kIdentity,
           PerPreset("Stride of the first convolution (MONAI's conv1_t_stride)",
                     [](const ModelShape& s) { return std::to_string(s.first_stride); }),
           4);
  t.AutoIs([preset] { return json(preset().first_stride); });
  t.Int("model.features", model.features, 1, kIdentity,
        "Features that pre-training learns: the columns of the table that are not said to be something else.", 4096);
  t.Number("model.dropout", model.dropout, 0, 0.99, kIdentity,
           "Dropout probability of the pooled features in front of the heads.");
  VolumeField(t, volume,
              PerPreset("Voxels along x, y and z that every volume is resized to, by averaging",
                        [](const ModelShape& s) { return json(s.volume).dump(); }));
  t.AutoIs([preset] { return json(preset().volume); });
  WindowField(t, window);
  t.Bool(
      "data.augment", augment, kIdentity,
      "Training volumes are flipped along x and along y and turned by right angles in that plane where it is square, "
      "each with probability one half.");
  t.Text("data.image_column", image_column, kIdentity,
         "The table's column with the volumes' files; `NIFTI path` is found as well.");
  t.Text("data.fold_column", fold_column, kIdentity, "The table's column that says train or val.");
  DeclareCacheFields(t, cache);
}

void Options::Check(const Config& config) const {
  if (config.batch.global == 1 && !only_pretrains(config))
    throw ConfigError(
        "batch.global: 1 is not allowed; expected 2 or more: a subject is compared with those of its batch, and Cox's "
        "loss of one alone is 0");
  if (pretrain_epochs + freeze_epochs > 0 && config.train.epochs && !only_pretrains(config) &&
      *config.train.epochs <= pretrain_epochs + freeze_epochs)
    throw ConfigError(
        Format("train.epochs: %lld leaves nothing after task.pretrain_epochs %lld and "
               "task.freeze_epochs %lld",
               static_cast<long long>(*config.train.epochs), static_cast<long long>(pretrain_epochs),
               static_cast<long long>(freeze_epochs)));
}

std::string Options::Describe() const {
  const ModelShape s = shape();
  std::string text = Format("%s of width %lld on volumes of %s", ResNetName(s.layers).c_str(),
                            static_cast<long long>(s.width), json(s.volume).dump().c_str());
  if (pretrains()) text += Format(", %lld epochs of pre-training", static_cast<long long>(pretrain_epochs));
  if (freeze_epochs > 0) text += Format(", %lld epochs of the head alone", static_cast<long long>(freeze_epochs));
  return text;
}

std::vector<Metric> Options::Metrics() const {
  std::vector<Metric> metrics = {{kConcordance, Better::kHigher}, {kRiskLoss, Better::kLower}};
  if (pretrains()) metrics.push_back({kFeatureLoss, Better::kLower});
  return metrics;
}

ModelShape Options::shape() const {
  const ModelShape& preset = kPresets.at(model.preset);
  return {.layers = model.resnet == "auto" ? preset.layers : std::stoll(model.resnet.substr(6)),
          .width = model.width.value_or(preset.width),
          .first_stride = model.first_stride.value_or(preset.first_stride),
          .volume = volume.empty() ? preset.volume : volume};
}

std::shared_ptr<TaskOptions> MakeOptions() { return std::make_shared<Options>(); }

const Options& OptionsOf(const Config& config) { return dynamic_cast<const Options&>(*config.task.options); }

}  // namespace trainyard::mace
