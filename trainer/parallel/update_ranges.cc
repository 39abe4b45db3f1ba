#include "trainer/parallel/update_ranges.h"

#include <algorithm>

#include "trainer/base/error.h"

namespace trainyard {
namespace {

// Of optim.groups, the first that takes the parameter; else their number.
size_t GroupOf(const OptimConfig& config, const std::string& name) {
  const auto it = std::find_if(config.groups.begin(), config.groups.end(),
                               [&](const ParameterGroupConfig& group) { return MatchesPattern(group.match, name); });
  return static_cast<size_t>(it - config.groups.begin());
}

}  // namespace

std::vector<UpdateRange> UpdateRanges(const OptimConfig& config, const FlatLayout& layout) {
  std::vector<UpdateRange> ranges;
  for (size_t p = 0; p < layout.parameters().size(); ++p) {
    const ParameterSpec& spec = layout.parameters()[p];
    // Up to the next parameter: padding stays zero under any update.
    UpdateRange range{layout.range(p).begin,
                      p + 1 < layout.parameters().size() ? layout.range(p + 1).begin : layout.total()};
    range.weight_decay = config.decay == "all" || spec.shape.size() >= 2 ? config.weight_decay : 0;
    if (const size_t g = GroupOf(config, spec.name); g < config.groups.size()) {
      range.lr = config.groups[g].lr;
      range.weight_decay = config.groups[g].weight_decay.value_or(range.weight_decay);
    }
    UpdateRange* last = ranges.empty() ? nullptr : &ranges.back();
    if (last && last->lr == range.lr && last->weight_decay == range.weight_decay) {
      last->end = range.end;
    } else {
      ranges.push_back(range);
    }
  }
  return ranges;
}

void RequireMatchingGroups(const OptimConfig& config, const std::vector<ParameterSpec>& parameters) {
  std::vector<bool> matched(config.groups.size() + 1, false);
  for (const ParameterSpec& spec : parameters) matched[GroupOf(config, spec.name)] = true;
  for (size_t g = 0; g < config.groups.size(); ++g) {
    if (!matched[g])
      throw ConfigError("optim.groups: the pattern " + config.groups[g].match +
                        " matches no parameter (or an earlier one took all)");
  }
}

}  // namespace trainyard
