// Parts of the cascade against closed forms and torch.nn: diffusion, projections, metrics, networks.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "trainer/comm/communicator.h"
#include "trainer/config/load.h"
#include "trainer/device/host_device.h"
#include "trainer/parallel/engine.h"
#include "trainer/task/hybrid_vit_cascade/cascade_data.h"
#include "trainer/task/hybrid_vit_cascade/cascade_evaluation.h"
#include "trainer/task/hybrid_vit_cascade/cascade_model.h"
#include "trainer/task/hybrid_vit_cascade/diffusion.h"
#include "trainer/task/hybrid_vit_cascade/image_metrics.h"
#include "trainer/task/hybrid_vit_cascade/phantom.h"
#include "trainer/task/hybrid_vit_cascade/projector.h"
#include "trainer/task/hybrid_vit_cascade/radiograph.h"
#include "trainer/task/tasks.h"

namespace trainyard::hvc {
namespace {

double Largest(const at::Tensor& x) { return x.abs().max().item<double>(); }
double Apart(const at::Tensor& a, const at::Tensor& b) { return Largest(a - b); }

// ---- Diffusion ----------------------------------------------------------------------------------

TEST(Diffusion, TheScheduleIsTheCosineOne) {
  const NoiseSchedule schedule(1000);
  const auto curve = [](double t) { return std::pow(std::cos((t / 1000 + 0.008) / 1.008 * M_PI / 2), 2); };
  // Up to where beta is clipped the product telescopes.
  for (const int64_t t : {50, 400, 900}) EXPECT_NEAR(schedule.alpha_bar(t), curve(t + 1.0) / curve(0), 2e-3) << t;
  EXPECT_LE(schedule.alpha_bar(0), 1 - 1e-4);
  EXPECT_GT(schedule.alpha_bar(999), 0);
  for (int64_t t = 1; t < 1000; ++t) ASSERT_LT(schedule.alpha_bar(t), schedule.alpha_bar(t - 1));
}

TEST(Diffusion, ConversionsRoundTrip) {
  const NoiseSchedule schedule(1000);
  const at::Tensor t = at::arange(0, 1000, 37, at::kLong);
  const int64_t B = t.size(0);
  const at::Tensor x0 = at::rand({B, 1, 4, 4, 4}) * 2 - 1, e = at::randn({B, 1, 4, 4, 4});
  const NoiseLevel level(schedule, t);
  const at::Tensor x = level.Noised(x0, e), v = level.Velocity(x0, e);
  // signal^2 + noise^2 = 1 to a float's rounding.
  EXPECT_LT(Apart(level.CleanOf(x, v), x0), 1e-5);
  EXPECT_LT(Apart(level.NoiseOf(x, v), e), 1e-5);
  EXPECT_LT(Apart(level.Noised(level.CleanOf(x, v), level.NoiseOf(x, v)), x), 1e-5);
  EXPECT_LT(Apart(level.Velocity(level.CleanOf(x, v), level.NoiseOf(x, v)), v), 1e-5);
}

TEST(Diffusion, DdimFindsWhatTheNetworkKnows) {
  const NoiseSchedule schedule(1000);
  const std::vector<int64_t> steps = DdimSteps(1000, 50);
  ASSERT_EQ(steps.size(), 50u);
  EXPECT_EQ(steps.front(), 999);
  EXPECT_EQ(steps.back(), 0);
  EXPECT_TRUE(std::is_sorted(steps.rbegin(), steps.rend()));
  const at::Tensor x0 = at::rand({2, 1, 6, 6, 6}) * 1.8 - 0.9;
  int calls = 0;
  const at::Tensor sampled = Ddim(schedule, 50, at::randn(x0.sizes()), [&](const at::Tensor& x, const at::Tensor& t) {
    ++calls;
    const NoiseLevel level(schedule, t);
    return (level.signal * x - x0) / level.noise;  // v of a model that is sure of x0
  });
  EXPECT_EQ(calls, 50);
  EXPECT_LT(Apart(sampled, x0), 1e-4);
}

// Where the volume's distribution is normal, the exact denoiser is linear, and so is DDIM: noise of deviation 1 becomes
// one of the data's deviation, but for the first step's alpha_bar and the steps' length. This is Skip's case.
TEST(Diffusion, DdimGivesADistributionItsDeviation) {
  const NoiseSchedule schedule(1000);
  constexpr double kDeviation = 0.1, kMean = 0.3;
  const at::Tensor noise = at::randn({1, 1, 20, 20, 20});
  const at::Tensor sampled = Ddim(schedule, 1000, noise, [&](const at::Tensor& x, const at::Tensor& t) {
    const NoiseLevel level(schedule, t);
    const at::Tensor total = level.signal.square() * kDeviation * kDeviation + level.noise.square();
    return (x * (level.signal * (1 - kDeviation * kDeviation)) - kMean) * (level.noise / total);
  });
  EXPECT_NEAR(sampled.mean().item<double>(), kMean, 0.01);
  EXPECT_NEAR(sampled.std().item<double>(), kDeviation, 0.01);
}

// ---- Projections --------------------------------------------------------------------------------

const IntensityMap kMap;

// Voxels (D, H, W) of [-1, 1] whose centres lie in the ellipsoid have `inside` HU, all others air.
at::Tensor EllipsoidVolume(int64_t n, std::array<double, 3> axes, double inside) {
  const at::Tensor at = (at::arange(n, at::kDouble) + 0.5) * (2.0 / static_cast<double>(n)) - 1;
  const at::Tensor r = (at.view({n, 1, 1}) / axes[0]).square() + (at.view({1, n, 1}) / axes[1]).square() +
                       (at.view({1, 1, n}) / axes[2]).square();
  const at::Tensor hu = at::where(r <= 1, inside, -1000.0);
  return ((hu + 1000) / 2000 - 1).to(at::kFloat).view({1, 1, n, n, n});
}

TEST(Projections, OfAnEllipsoidAreItsClosedForm) {
  constexpr int64_t n = 96;
  constexpr double kExtent = 200, kVoxel = kExtent / n;
  const std::array<double, 3> axes = {0.5, 0.8, 0.3};
  const at::Tensor extent = at::full({1, 2}, kExtent);
  const std::vector<at::Tensor> views = Project(EllipsoidVolume(n, axes, 40), extent, kMap);
  const double mu = 0.02 * 1.04;
  const auto pixel = [](int64_t i) { return (static_cast<double>(i) + 0.5) * 2 / n - 1; };
  for (int64_t view = 0; view < 2; ++view) {
    const double across = axes[view == kFront ? 2 : 0], along = axes[view == kFront ? 0 : 2];
    for (int64_t row = 0; row < n; ++row) {
      for (int64_t column = 0; column < n; ++column) {
        const double r = std::pow(pixel(row) / axes[1], 2) + std::pow(pixel(column) / across, 2);
        const double length = r < 1 ? 2 * along * std::sqrt(1 - r) * kExtent / 2 : 0;  // 2 c sqrt(1 - ...)
        const double found =
            (views[static_cast<size_t>(view)][0][row][column].item<double>() + 1) / 2 * kMap.drr_window;
        ASSERT_NEAR(found, mu * length, mu * kVoxel * 1.001)
            << "a voxel more or less at the ends: view " << view << ", " << row << ", " << column;
      }
    }
  }
}

TEST(Projections, KnowTheirAxes) {
  constexpr int64_t n = 8;
  at::Tensor volume = at::full({1, 1, n, n, n}, -1.0f);
  volume[0][0][1][2][5] = 1;  // D 1, H 2, W 5
  const std::vector<at::Tensor> views = Project(volume, at::full({1, 2}, 100.0), kMap);
  const auto brightest = [](const at::Tensor& image) { return image.argmax().item<int64_t>(); };
  EXPECT_EQ(brightest(views[kFront]), 2 * n + 5) << "rows H, columns W";
  EXPECT_EQ(brightest(views[kSide]), 2 * n + 1) << "rows H, columns D";
  EXPECT_EQ((views[kFront] > -1).sum().item<int64_t>(), 1);
}

TEST(Projections, OfAVolumeAreTheGeneratorsImages) {
  constexpr int64_t n = 32;
  const std::vector<int16_t> hu = RenderPhantom(MakePhantom(3, 1), n, 3, 1);
  const Radiographs images = Radiograph(hu, n, 360, kMap);
  const at::Tensor volume =
      (at::from_blob(const_cast<int16_t*>(hu.data()), {1, 1, n, n, n}, at::kShort).to(at::kFloat).clamp(-1000, 3000) +
       1000) /
          2000 -
      1;
  const std::vector<at::Tensor> views = Project(volume, at::full({1, 2}, 360.0), kMap);
  for (const auto& [view, image] : {std::pair{kFront, &images.front}, {kSide, &images.side}}) {
    const at::Tensor expected = at::from_blob(const_cast<double*>(image->data()), {n, n}, at::kDouble);
    EXPECT_LT(Apart((views[static_cast<size_t>(view)][0].to(at::kDouble) + 1) / 2, expected), 1e-5) << view;
  }
}

TEST(Projections, ThePhysicsLossOfTheTruthIsNothingAndItsGradientLeadsThere) {
  constexpr int64_t n = 16;
  const at::Tensor truth = EllipsoidVolume(n, {0.5, 0.8, 0.3}, 40), extent = at::full({1, 2}, 100.0);
  const std::vector<at::Tensor> views = Project(truth, extent, kMap);
  const at::Tensor xrays = at::stack({views[0], views[1]}, 1).unsqueeze(2);
  EXPECT_EQ(PhysicsLoss(truth, extent, xrays, kMap).item<double>(), 0);
  at::Tensor guess = at::full_like(truth, -0.9f).requires_grad_(true);
  const double before = PhysicsLoss(guess, extent, xrays, kMap).item<double>();
  PhysicsLoss(guess, extent, xrays, kMap).sum().backward();
  const double after = PhysicsLoss(guess.detach() - guess.grad() * 100, extent, xrays, kMap).item<double>();
  EXPECT_LT(after, before);
}

// ---- Phantoms -----------------------------------------------------------------------------------

// On every machine: arithmetic that IEEE 754 defines, and draws that are defined to the bit.
TEST(Phantoms, AreTheSameEverywhere) {
  const std::vector<int16_t> hu = RenderPhantom(MakePhantom(42, 0), 24, 42, 0);
  int64_t sum = 0, weighted = 0;
  for (size_t i = 0; i < hu.size(); ++i) {
    sum += hu[i];
    weighted += hu[i] * static_cast<int64_t>(i % 997);
  }
  EXPECT_EQ(sum, -10200126);
  EXPECT_EQ(weighted, -5041057657);
}

// ---- Metrics ------------------------------------------------------------------------------------

TEST(ImageMetrics, PsnrIsItsFormula) {
  const at::Tensor a = at::zeros({5, 6, 7});
  EXPECT_NEAR(Psnr(a, a + 0.1), 20, 1e-5);
  EXPECT_EQ(Psnr(a, a), INFINITY);
}

// Window by window, from the definition: weighted means, variances and covariance around each place.
TEST(ImageMetrics, SsimIsItsDefinition) {
  const at::Tensor x = at::rand({12, 13, 11}, at::kDouble),
                   y = (x + at::rand({12, 13, 11}, at::kDouble) * 0.3).clamp(0, 1);
  const at::Tensor line = (-(at::arange(11, at::kDouble) - 5).square() / (2 * 1.5 * 1.5)).exp();
  at::Tensor weights = line.view({11, 1, 1}) * line.view({1, 11, 1}) * line.view({1, 1, 11});
  weights = weights / weights.sum();
  double sum = 0;
  int count = 0;
  for (int64_t i = 0; i + 11 <= 12; ++i) {
    for (int64_t j = 0; j + 11 <= 13; ++j) {
      const at::Tensor a = x.narrow(0, i, 11).narrow(1, j, 11), b = y.narrow(0, i, 11).narrow(1, j, 11);
      const auto mean = [&](const at::Tensor& of) { return (of * weights).sum().item<double>(); };
      const double ma = mean(a), mb = mean(b), va = mean((a - ma).square()), vb = mean((b - mb).square()),
                   cov = mean((a - ma) * (b - mb));
      sum += (2 * ma * mb + 1e-4) * (2 * cov + 9e-4) / ((ma * ma + mb * mb + 1e-4) * (va + vb + 9e-4));
      ++count;
    }
  }
  EXPECT_NEAR(Ssim(x, y), sum / count, 1e-9);
  EXPECT_NEAR(Ssim(x, x), 1, 1e-12);
}

// ---- Networks -----------------------------------------------------------------------------------

Config ConfigOf(const std::vector<std::string>& sets) {
  return ParseConfig(
      "{task: {name: hybrid_vit_cascade}}", "test",
      [&] {
        std::vector<std::string> all = {"data.path=/nowhere", "train.steps=3"};
        all.insert(all.end(), sets.begin(), sets.end());
        return all;
      }(),
      TaskDeclarations());
}

// The original's numbers, which a script that builds its modules printed, and what is ours: the channel of the previous
// volume in the first convolution of stages 2 and 3.
TEST(CascadeModel, TheFullPresetHasTheGuidesParameters) {
  ModelDeclaration model;
  DeclareModel(ConfigOf({"model.preset=full"}), model);
  std::map<std::string, int64_t> counts;
  for (const ParameterSpec& spec : model.parameters) {
    std::string part = "shared";
    for (const char* stage : {"stage1", "stage2", "stage3"}) {
      if (spec.name.find(std::string(".") + stage + ".") != std::string::npos) part = stage;
    }
    counts[part] += spec.numel();
  }
  EXPECT_EQ(counts["stage1"], 14704642);
  EXPECT_EQ(counts["stage2"], 38109954 + 96 * 27);
  EXPECT_EQ(counts["stage3"], 80338562 + 128 * 27);
  EXPECT_EQ(counts["shared"], 1849600 + 66304);
  EXPECT_EQ(model.num_parameters(), 135069062 + 6048);
}

struct Net {
  explicit Net(const std::vector<std::string>& sets)
      : config(ConfigOf(sets)), shape(OptionsOf(config).shape()), model(Scope(declaration), shape, 1000) {
    engine = MakeEngine(declaration, {}, 5, Host(), *communicator);
  }
  Config config;
  ModelDeclaration declaration;
  ModelShape shape;
  CascadeModel model;
  std::unique_ptr<Communicator> communicator = MakeSingleCommunicator();
  std::unique_ptr<Engine> engine;

  at::Tensor Value(const std::string& name) {
    for (size_t i = 0; i < declaration.parameters.size(); ++i) {
      if (declaration.parameters[i].name == name) return engine->Parameter({static_cast<int32_t>(i)});
    }
    throw std::logic_error(name);
  }
};

// The 3-D form: features times weights as one volume of all channels, a 1 x 1 x 1 convolution, interpolation.
TEST(CascadeModel, LiftingInTwoDimensionsIsLiftingInThree) {
  Net net({"model.preset=tiny"});
  const Pass pass = Pass::Training(*net.engine, 1);
  at::Tensor ours_in = at::randn({2, 32, 8, 8}).requires_grad_(), theirs_in = ours_in.detach().clone().requires_grad_();
  const at::Tensor ours = net.model.stages()[0].Prior(pass, ours_in);
  const std::string lifter = "stages.stage1.depth_lifter.depth_networks.depth_12.";
  const auto value = [&](const std::string& name) { return net.Value(lifter + name); };
  const auto convolved = [&](const at::Tensor& x, const std::string& name, int64_t padding) {
    return at::conv2d(x, value(name + ".weight"), value(name + ".bias"), {1, 1}, {padding, padding});
  };
  const auto normed = [&](const at::Tensor& x, const std::string& name) {
    return at::silu(at::group_norm(x, 8, value(name + ".weight"), value(name + ".bias")));
  };
  at::Tensor x = normed(convolved(theirs_in, "depth_net.0", 1), "depth_net.1");
  x = normed(convolved(x, "depth_net.3", 1), "depth_net.4");
  at::Tensor weights =
      convolved(x, "depth_net.6", 0).softmax(1) * convolved(theirs_in, "prior_modulation.0", 0).sigmoid();
  weights = weights / (weights.sum(1, true) + 1e-8);
  const at::Tensor volume = theirs_in.unsqueeze(2) * weights.unsqueeze(1);  // (B, F, S, h, h)
  const at::Tensor one = at::conv3d(volume, net.Value("stages.stage1.depth_to_volume.weight"),
                                    net.Value("stages.stage1.depth_to_volume.bias"));
  const at::Tensor theirs = at::upsample_trilinear3d(one, {12, 12, 12}, true);
  EXPECT_LT(Apart(ours, theirs), 1e-5);
  const at::Tensor w = at::randn(ours.sizes());
  const at::Tensor bias = net.Value("stages.stage1.depth_to_volume.bias");
  const auto g = torch::autograd::grad({(ours * w).sum()}, {ours_in, bias}),
             e = torch::autograd::grad({(theirs * w).sum()}, {theirs_in, bias});
  for (size_t i = 0; i < g.size(); ++i) EXPECT_LT(Apart(g[i], e[i]) / Largest(e[i]), 1e-5) << i;
}

// A fresh network says nothing: of volumes whose voxels are as model.mean, model.deviation and model.detail say, v is
// then as far from the answer as Uncertainty says, and uncorrelated with it, as from the best one.
TEST(CascadeModel, AFreshNetworkKnowsMeanAndDeviationAlone) {
  Net net({"model.preset=tiny", "model.mean=-0.6", "model.deviation=0.3", "model.detail=0.1"});
  const Pass pass = Pass::Evaluation(*net.engine);
  const at::Tensor pictures = at::rand({1, 2, 1, 64, 64});
  for (const size_t stage : {0, 1}) {
    const int64_t n = stage == 0 ? 12 : 24;
    const at::Tensor previous = at::rand({1, 1, n, n, n}) - 0.5;
    const double deviation = stage == 0 ? 0.3 : 0.1;
    const EncodedXrays xrays = net.model.Encode(pass, stage, pictures);
    for (const int64_t time : {20, 300, 700, 999}) {
      const at::Tensor noise = at::randn({1, 1, n, n, n}), spread = at::randn({1, 1, n, n, n}) * deviation;
      const at::Tensor volume = stage == 0 ? spread - 0.6 : previous + spread, t = at::full({1}, time, at::kLong);
      const NoiseLevel level(net.model.schedule(), t);
      const NoisedVolume given{level.Noised(volume, noise), t, stage == 0 ? at::Tensor() : previous};
      const at::Tensor v = net.model.Velocity(pass, stage, given, xrays);
      ASSERT_EQ(v.sizes(), volume.sizes());
      const at::Tensor error = level.Velocity(volume, noise) - v;
      const double expected = net.model.Uncertainty(stage, t).item<double>();
      const double squares = error.square().mean().item<double>();
      EXPECT_NEAR(std::sqrt(squares) / expected, 1, 0.07) << stage << " " << time;
      EXPECT_NEAR((error * v).mean().item<double>() / std::sqrt(squares * v.square().mean().item<double>()), 0, 0.1);
    }
  }
}

TEST(CascadeModel, PlacesAreToldApart) {
  const at::Tensor codes = PlaceCodes({2, 8, 8}, 32);
  EXPECT_EQ(codes.sizes().vec(), (std::vector<int64_t>{128, 32}));
  EXPECT_LE(Largest(codes), 1);
  const at::Tensor apart = (codes.unsqueeze(0) - codes.unsqueeze(1)).square().sum(2) + at::eye(128) * 100;
  EXPECT_GT(apart.min().item<double>(), 0.1);
}

// A volume that rises evenly along each axis stays one, but for the outermost voxels, which have nothing beyond them.
TEST(CascadeModel, AVolumeForTheNextStageStaysInItsPlace) {
  const auto ramp = [](int64_t n) {
    const at::Tensor x = (at::arange(n) + 0.5) / n;
    return x.view({1, 1, n, 1, 1}) + x.view({1, 1, 1, n, 1}) * 2 + x.view({1, 1, 1, 1, n}) * 3;
  };
  const auto inner = [](at::Tensor x) {
    for (int64_t axis = 2; axis < 5; ++axis) x = x.narrow(axis, 1, x.size(axis) - 2);
    return x;
  };
  EXPECT_LT(Apart(inner(UpSampled(ramp(8), 16)), inner(ramp(16))), 1e-5);
}

// ---- Augmentation -------------------------------------------------------------------------------

TEST(Augmentation, KeepsXraysProjectionsOfTheVolume) {
  constexpr int64_t n = 16;
  const std::vector<int16_t> hu = RenderPhantom(MakePhantom(3, 1), n, 3, 1);
  PatientTensors patient;
  patient.volume =
      ((at::from_blob(const_cast<int16_t*>(hu.data()), {1, n, n, n}, at::kShort).to(at::kFloat).clamp(-1000, 3000) +
        1000) /
           2000 -
       1);
  patient.extent = at::full({2}, 180.0);
  const auto views = [&](const PatientTensors& of) {
    return Project(of.volume.unsqueeze(0), of.extent.unsqueeze(0), kMap);
  };
  patient.xrays = at::stack({views(patient)[0], views(patient)[1]});
  int exchanged = 0, brightened = 0;
  for (uint64_t key = 0; key < 40; ++key) {
    const PatientTensors changed = Augmented(patient, kMap, key);
    for (int64_t view = 0; view < 2; ++view)
      EXPECT_LT(Apart(views(changed)[static_cast<size_t>(view)], changed.xrays[view]), 1e-5);
    exchanged +=
        changed.volume.sum({1, 2}).argmax().item<int64_t>() != patient.volume.sum({1, 2}).argmax().item<int64_t>();
    brightened += std::abs(changed.volume.mean().item<double>() - patient.volume.mean().item<double>()) > 1e-4;
  }
  EXPECT_NEAR(exchanged, 20, 16);
  EXPECT_NEAR(brightened, 20, 16);
}

// Attenuation is in proportion to HU + 1000, whatever window of HU a volume shows.
TEST(Augmentation, ScalesAttenuationInEveryWindow) {
  const IntensityMap map{.hu_low = -200, .hu_high = 200};
  const double hu = 40, of_image = -0.4;
  PatientTensors patient;
  patient.volume = at::full({1, 2, 2, 2}, 2 * (hu - map.hu_low) / (map.hu_high - map.hu_low) - 1);
  patient.volume[0][0].fill_(-1);  // air of -1000 HU, and bone of 1000: both are beyond the window after it as well
  patient.volume[0][1][1].fill_(0.9999999f);
  patient.previous = patient.volume;
  patient.xrays = at::full({2, 1, 2, 2}, of_image);
  patient.xrays[1].fill_(1);  // white: as much bone or more in the beam
  int brightened = 0;
  for (uint64_t key = 0; key < 40; ++key) {
    const PatientTensors changed = Augmented(patient, map, key);
    const double factor = (changed.xrays[0].mean().item<double>() + 1) / (of_image + 1);
    EXPECT_TRUE(changed.xrays[1].eq(1).all().item<bool>()) << key;
    const double soft = changed.volume[0][1][0].mean().item<double>();
    const double now = (soft + 1) / 2 * (map.hu_high - map.hu_low) + map.hu_low;
    EXPECT_NEAR(now, std::clamp((hu + 1000) * factor - 1000, map.hu_low, map.hu_high), 1e-3) << key;  // float32
    for (const at::Tensor& x : {changed.volume, changed.previous}) {
      EXPECT_TRUE(x[0][0].eq(-1).all().item<bool>()) << key;
      EXPECT_TRUE(x[0][1][1].gt(0.99999).all().item<bool>()) << key;
    }
    brightened += std::abs(factor - 1) > 1e-4;
  }
  EXPECT_NEAR(brightened, 20, 16);
}

// ---- Pictures -----------------------------------------------------------------------------------

TEST(MiddlePlanes, AreCutToACellEach) {
  for (const int64_t size : {8, 96, 97, 200, 256, 512}) {
    // A voxel says where it is: nothing is the same along any axis.
    const at::Tensor at_axis = at::arange(size, at::kFloat) / static_cast<double>(size) - 0.5;
    const at::Tensor volume =
        (at_axis.view({-1, 1, 1}) + at_axis.view({1, -1, 1}) / 2 + at_axis.view({1, 1, -1}) / 4).unsqueeze(0);
    const at::Tensor picture = MiddlePlanes(volume);
    const int64_t cell = CellOf(size), step = size / 96 + (size % 96 != 0), middle = size / 2;
    EXPECT_LE(cell, 96);
    ASSERT_EQ(picture.sizes(), (std::vector<int64_t>{cell, 3 * cell})) << size;
    const auto value = [&](int64_t d, int64_t h, int64_t w) { return (volume[0][d][h][w].item<float>() + 1) / 2; };
    for (const auto& [row, column] : {std::pair(int64_t{0}, cell - 1), std::pair(cell - 1, int64_t{2})}) {
      const int64_t r = row * step, c = column * step;
      EXPECT_FLOAT_EQ(picture[row][column].item<float>(), value(middle, r, c)) << size;
      EXPECT_FLOAT_EQ(picture[row][cell + column].item<float>(), value(r, middle, c)) << size;
      EXPECT_FLOAT_EQ(picture[row][2 * cell + column].item<float>(), value(c, r, middle)) << size;
    }
  }
}

}  // namespace
}  // namespace trainyard::hvc
