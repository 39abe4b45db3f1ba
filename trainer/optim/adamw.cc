#include "trainer/optim/adamw.h"

#include <algorithm>
#include <cmath>

#include "trainer/base/error.h"
#include "trainer/kernels/kernels.h"
#include "trainer/model/parallel_for.h"

namespace trainyard {
namespace {

constexpr int64_t kBlocksPerTask = 256;  // at least: 16,384 elements are worth a thread

}  // namespace

namespace {

// Of optim.groups, the first that takes the parameter; else their number.
size_t GroupOf(const OptimConfig& config, const std::string& name) {
  const auto it = std::find_if(config.groups.begin(), config.groups.end(),
                               [&](const ParameterGroupConfig& group) { return MatchesPattern(group.match, name); });
  return static_cast<size_t>(it - config.groups.begin());
}

}  // namespace

void RequireMatchingGroups(const OptimConfig& config, const std::vector<ParameterSpec>& parameters) {
  std::vector<bool> matched(config.groups.size() + 1, false);
  for (const ParameterSpec& spec : parameters) matched[GroupOf(config, spec.name)] = true;
  for (size_t g = 0; g < config.groups.size(); ++g) {
    if (!matched[g])
      throw ConfigError("optim.groups: the pattern " + config.groups[g].match +
                        " matches no parameter (or an earlier one took all)");
  }
}

AdamW::AdamW(const OptimConfig& config, FlatState& state) : config_(config), state_(state) {
  const FlatLayout& layout = state_.layout();
  for (size_t p = 0; p < layout.parameters().size(); ++p) {
    const ParameterSpec& spec = layout.parameters()[p];
    const bool decays = config_.decay == "all" || spec.shape.size() >= 2;
    Group group{{}, 1, decays ? config_.weight_decay : 0};
    if (const size_t g = GroupOf(config_, spec.name); g < config_.groups.size()) {
      group.lr = config_.groups[g].lr;
      group.weight_decay = config_.groups[g].weight_decay.value_or(group.weight_decay);
    }
    // A range runs up to the next parameter: padding stays zero under any update.
    const int64_t end = p + 1 < layout.parameters().size() ? layout.range(p + 1).begin : layout.total();
    group.range = {layout.range(p).begin, end};
    Group* last = groups_.empty() ? nullptr : &groups_.back();
    if (last && last->lr == group.lr && last->weight_decay == group.weight_decay) {
      last->range.end = end;
    } else {
      groups_.push_back(group);
    }
  }
}

void AdamW::Step(int64_t step, double lr, float grad_scale) {
  const double beta1 = config_.betas[0], beta2 = config_.betas[1];
  kernels::AdamWArgs args{
      .param = state_.master.data_ptr<float>(),
      .exp_avg = state_.exp_avg.data_ptr<float>(),
      .exp_avg_sq = state_.exp_avg_sq.data_ptr<float>(),
      .grad = state_.gradient.data_ptr<float>(),
      .grad_scale = grad_scale,
      .lr = 0,
      .beta1 = static_cast<float>(beta1),
      .beta2 = static_cast<float>(beta2),
      .eps = static_cast<float>(config_.eps),
      .weight_decay = 0,
      .bias_correction1 = static_cast<float>(1 - std::pow(beta1, static_cast<double>(step))),
      .bias_correction2_sqrt = static_cast<float>(std::sqrt(1 - std::pow(beta2, static_cast<double>(step)))),
  };
  for (const Group& group : groups_) {
    args.lr = static_cast<float>(lr * group.lr);
    args.weight_decay = static_cast<float>(group.weight_decay);
    // Elements do not depend on each other, and a cut at a block leaves the kernel's vectors whole: the
    // same bits for any number of threads.
    ParallelFor(group.range.begin / kBlock, group.range.end / kBlock, kBlocksPerTask,
                [&](int64_t begin, int64_t end) { kernels::Kernels().adamw(args, begin * kBlock, end * kBlock); });
  }
}

}  // namespace trainyard
