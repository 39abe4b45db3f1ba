#include "trainer/selftest/equality.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "trainer/base/environment.h"
#include "trainer/base/text.h"
#include "trainer/device/host_device.h"
#include "trainer/model/layers.h"
#include "trainer/parallel/engine.h"
#include "trainer/train/plan.h"

namespace trainyard::selftest {
namespace {

constexpr int kUpdates = 4;
constexpr int64_t kSamples = 7;  // of a micro-batch

// Sizes that no world divides; a parameter that some ranks never use, one under two names, a unit that is used twice.
struct Net {
  explicit Net(const Scope& root)
      : first(root.Unit("first")),
        second(root.Unit("second")),
        up(first / "up", 3, 37),
        norm(second / "norm", 37),
        head(second / "head", 37, 1),
        sometimes(second / "sometimes", 1, 3) {
    second.Alias("also.weight", head.weight);
  }

  // x: (B, 3) -> a number
  at::Tensor Loss(const Pass& pass, const at::Tensor& x, bool all) const {
    const at::Tensor y = pass.Unit(first.unit(), [=, this](at::TensorList in) { return up(pass, in[0]); }, {x});
    const at::Tensor z = pass.Unit(second.unit(),
                                   [=, this](at::TensorList in) {
                                     const at::Tensor out = head(pass, norm(pass, in[0]).tanh());
                                     return all ? sometimes(pass, out) : out;
                                   },
                                   {y});
    return pass.Unit(first.unit(),
                     [=, this](at::TensorList in) { return (in[0] * pass[up.weight].sum()).square().sum(); }, {z});
  }

  Scope first, second;
  Linear up;
  LayerNorm norm;
  Linear head, sometimes;
};

at::Tensor Inputs(int64_t begin) {
  const at::Tensor i = at::arange(begin, begin + kSamples, at::kFloat);
  return at::stack({(i * 0.7).sin(), (i * 1.3).cos(), i * 0.01 - 0.5}, 1);
}

// The bits of every saved tensor, whole.
using Values = std::map<std::string, std::vector<int32_t>>;

// A rank's parts of all tensors become everybody's whole ones: where others hold a part it has zeros, and integers are
// added without a loss. One sum for all of them.
Values Whole(Engine& engine, Communicator& group) {
  Values mine;
  std::vector<StateSlice> slices = engine.Slices();
  // A rank may hold no part of a tensor: the names are those of the model.
  const ModelDeclaration& model = engine.declaration();
  for (const ParameterSpec& spec : model.parameters) {
    for (const char* kind : {"model.", "adamw.exp_avg.", "adamw.exp_avg_sq."})
      mine[kind + spec.name].assign(static_cast<size_t>(spec.numel()), 0);
  }
  for (const StateSlice& slice : slices) {
    if (slice.replicated && group.rank() != 0) continue;
    std::vector<int32_t>& values = mine.at(slice.key);
    const at::Tensor bits = slice.values.cpu().view(at::kInt);
    std::copy_n(bits.const_data_ptr<int32_t>(), bits.numel(), values.begin() + slice.begin);
  }
  std::vector<int64_t> all;  // a type of every backend's sums
  for (const auto& [key, values] : mine) all.insert(all.end(), values.begin(), values.end());
  group.Wait(group.AllReduce(at::from_blob(all.data(), {static_cast<int64_t>(all.size())}, at::kLong), "selftest"));
  size_t at = 0;
  for (auto& [key, values] : mine) {
    std::copy_n(all.begin() + static_cast<std::ptrdiff_t>(at), values.size(), values.begin());
    at += values.size();
  }
  return mine;
}

// For the tests: one bit of what a stage has trained is turned over.
void Damage(Engine& engine) {
  for (StateSlice& slice : engine.Slices()) {
    if (slice.values.numel() == 0) continue;
    slice.values.view(at::kInt).narrow(0, 0, 1).bitwise_xor_(1);
    return;
  }
}

Values Trained(const Way& way, Communicator& group) {
  ModelDeclaration declaration;
  const Net net{Scope(declaration)};
  EngineOptions options;
  options.stage = way.stage;
  options.reduce = way.reduce;
  options.bucket_bytes = way.bucket_bytes;
  options.micro_batch = kSamples;
  options.optim.weight_decay = 0.1;
  const auto engine = MakeEngine(declaration, options, 7, Host(), group);
  for (int64_t update = 1; update <= kUpdates; ++update) {
    engine->BeginStep(way.micro_batches);
    for (int64_t m = 0; m < way.micro_batches; ++m) {
      const at::Tensor x = Inputs(1000 * update + 100 * group.rank() + 10 * m);
      const at::Tensor loss = net.Loss(Pass::Training(*engine, 1), x, group.rank() != 1);
      engine->Backward(loss, m + 1 == way.micro_batches);
    }
    engine->Finish();
    engine->Update({.lr = 0.01, .clip = 0.5, .update = update, .finite = true, .before = {}});
  }
  const std::string fault = EnvText("TRAINYARD_TEST_FAULT");
  if (fault == Format("selftest:%d:%s", group.rank(), NameOf(way.stage))) Damage(*engine);
  return Whole(*engine, group);
}

std::string FirstDifference(const Values& expected, const Values& values) {
  for (const auto& [key, bits] : expected) {
    for (size_t i = 0; i < bits.size(); ++i) {
      if (bits[i] == values.at(key)[i]) continue;
      return Format("%s differs first, at element %zu of %zu: %.9g instead of %.9g", key.c_str(), i, bits.size(),
                    static_cast<double>(std::bit_cast<float>(values.at(key)[i])),
                    static_cast<double>(std::bit_cast<float>(bits[i])));
    }
  }
  return "";
}

// Ways of one set: all of them train to the same bits.
std::vector<std::vector<Way>> Sets() {
  constexpr int64_t kSmall = 256;  // buckets that cut every tensor
  const auto last = [](int64_t micros) {
    return std::vector<Way>{{ZeroStage::kDdp, Reduce::kLast, micros},
                            {ZeroStage::kDdp, Reduce::kLast, micros, kSmall},
                            {ZeroStage::kZero1, Reduce::kLast, micros},
                            {ZeroStage::kZero2, Reduce::kLast, micros, kSmall},
                            {ZeroStage::kZero3, Reduce::kLast, micros, kSmall}};
  };
  const auto every = [](int64_t micros) {
    return std::vector<Way>{{ZeroStage::kZero2, Reduce::kEvery, micros},
                            {ZeroStage::kZero2, Reduce::kEvery, micros, kSmall},
                            {ZeroStage::kZero3, Reduce::kEvery, micros, kSmall}};
  };
  std::vector<Way> once = last(1);
  for (const Way& way : every(1)) once.push_back(way);
  return {once, last(3), every(3)};
}

}  // namespace

std::string Way::Name() const {
  return Format("%s, reduce %s, accumulation %lld", NameOf(stage), reduce == Reduce::kEvery ? "every" : "last",
                static_cast<long long>(micro_batches));
}

int NumComparisons() {
  size_t n = 0;
  for (const std::vector<Way>& set : Sets()) n += set.size() - 1;
  return static_cast<int>(n);
}

std::string CompareStages(Communicator& group, const std::function<void(const std::string& way)>& done) {
  for (const std::vector<Way>& set : Sets()) {
    const Values expected = Trained(set.front(), group);
    for (size_t i = 1; i < set.size(); ++i) {
      const std::string difference = FirstDifference(expected, Trained(set[i], group));
      if (!difference.empty()) return set[i].Name() + ": " + difference + " (" + set.front().Name() + ")";
      done(set[i].Name());
    }
  }
  return "";
}

}  // namespace trainyard::selftest
