// What evaluations measure, as tasks declare it: never guessed from a name.
#ifndef TRAINYARD_TRAINER_CONFIG_METRIC_H_
#define TRAINYARD_TRAINER_CONFIG_METRIC_H_

#include <span>
#include <string>

namespace trainyard {

enum class Better { kLower, kHigher };

struct Metric {
  std::string name;
  Better better;
};

// A value of the metric `name` turned so that less is better: what plateau, early stop and the best
// weights compare. REQUIRES: the name is one of them.
double Badness(std::span<const Metric> metrics, const std::string& name, double value);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_CONFIG_METRIC_H_
