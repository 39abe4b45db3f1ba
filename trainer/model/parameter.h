// What a model declares about its parameters and buffers. No tensors: a declaration costs no memory
// whatever its size, so that a plan can be made of a model that this machine cannot hold.
#ifndef TRAINYARD_TRAINER_MODEL_PARAMETER_H_
#define TRAINYARD_TRAINER_MODEL_PARAMETER_H_

#include <cstdint>
#include <string>
#include <vector>

namespace trainyard {

// Handles: small, copied freely, valid for the declaration that gave them out.
struct ParameterId {
  int32_t index = -1;
};
struct BufferId {
  int32_t index = -1;
};
struct UnitId {
  int32_t index = -1;
  bool operator==(const UnitId&) const = default;
};
// Where in a network something random happens. Fixed when the layer is made, so that a forward that
// is repeated, or leaves a branch out, draws the same.
struct Place {
  uint64_t index = 0;  // counted from 1
};
// A place where predictions of the whole global batch are gathered over the ranks.
struct GatherId {
  int32_t index = -1;
};

// How a parameter starts; the draws are keyed by (seed, parameter name).
struct Initial {
  enum class Kind { kConstant, kUniform, kNormal, kTruncatedNormal } kind = Kind::kConstant;
  double scale = 0;  // the constant, the bound of [-b, b), or the deviation (truncated at +-2, absolute)
};

enum class DType {
  kCompute,   // what precision.compute says, with a float32 master that the optimizer updates
  kFloat32,   // whatever precision.compute says: norms
  kBfloat16,  // for parameters that are not trained
};

struct ParameterSpec {
  std::string name;  // the reference module's state_dict key
  std::vector<int64_t> shape;
  UnitId unit;
  Initial initial;
  DType dtype = DType::kCompute;
  // What is not trained lives in its own dtype and costs nothing else: no master, no gradient, no moments.
  bool trainable = true;

  int64_t numel() const {
    int64_t n = 1;
    for (const int64_t d : shape) n *= d;
    return n;
  }
};

// How the ranks agree about a buffer that each of them has changed in a step.
enum class BufferPolicy {
  kMean,      // the mean of what the ranks with samples hold
  kRankZero,  // what rank 0 holds
};

// A tensor that forward changes and no gradient does: float32.
struct BufferSpec {
  std::string name;
  std::vector<int64_t> shape;
  double initial = 0;
  BufferPolicy policy = BufferPolicy::kMean;

  int64_t numel() const {
    int64_t n = 1;
    for (const int64_t d : shape) n *= d;
    return n;
  }
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_MODEL_PARAMETER_H_
