// What a model declares about its parameters.
#ifndef TRAINYARD_TRAINER_PARALLEL_PARAMETER_H_
#define TRAINYARD_TRAINER_PARALLEL_PARAMETER_H_

#include <cstdint>
#include <string>
#include <vector>

namespace trainyard {

// How a parameter starts; the draws are keyed by (seed, parameter name).
struct Initial {
  enum class Kind { kConstant, kUniform, kNormal, kTruncatedNormal } kind = Kind::kConstant;
  double scale = 0;  // the constant, the bound of [-b, b), or the deviation (truncated at +-2, absolute)
};

struct ParameterSpec {
  std::string name;  // the reference module's state_dict key
  std::vector<int64_t> shape;
  std::string unit;  // parameters of a unit lie together; units follow the order of the list
  Initial initial;
  bool keep_fp32 = false;  // computed in fp32 also when the others are bf16

  int64_t numel() const {
    int64_t n = 1;
    for (int64_t d : shape) n *= d;
    return n;
  }
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_PARALLEL_PARAMETER_H_
