// A model is declared once: each layer says its parameters' names where it is made, and keeps the
// handles with which its forward finds their values (pass.h).
//
//   struct Block {
//     LayerNorm norm;
//     Linear up, down;
//     Block(const Scope& s, int64_t dim) : norm(s / "ln_1", dim), up(s / "mlp.up", dim, 4 * dim), down(s / "mlp.down",
//     4 * dim, dim) {} at::Tensor Forward(const Pass& pass, const at::Tensor& x) const;
//   };
#ifndef TRAINYARD_TRAINER_MODEL_BUILDER_H_
#define TRAINYARD_TRAINER_MODEL_BUILDER_H_

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trainer/model/parameter.h"

namespace trainyard {

// Everything that a model declares, in the order of declaration. Plain data.
struct ModelDeclaration {
  std::vector<ParameterSpec> parameters;
  std::vector<BufferSpec> buffers;
  std::vector<std::string> units;
  // Further names under which an export holds a parameter: tied weights have one in the reference's state_dict for
  // each module that uses them.
  std::vector<std::pair<std::string, ParameterId>> aliases;
  std::vector<int64_t> gathers;  // columns of each
  // Patterns (* and ?) of names that a file of weights may lack, whose initial values then stay, and may hold where
  // this model has none: what only some jobs with the same network have.
  std::vector<std::string> optional;
  uint64_t places = 0;

  const ParameterSpec& parameter(ParameterId id) const { return parameters[static_cast<size_t>(id.index)]; }
  int64_t num_parameters(bool trainable_only = false) const;  // elements
};

struct ParameterOptions {
  bool trainable = true;
  DType dtype = DType::kCompute;
};

// Where in a model's names and units something is declared. Small; passed by value or reference.
// The declaration must outlive it.
class Scope {
 public:
  explicit Scope(ModelDeclaration& declaration) : declaration_(&declaration) {}

  // What is declared below gets "<name>." in front.
  Scope operator/(std::string_view name) const;
  // What is declared below belongs to a unit: the parameters that are gathered, recomputed and released together.
  // The name is for people; opening one that exists goes on with it.
  Scope Unit(const std::string& name) const;
  UnitId unit() const { return unit_; }

  // Throw std::logic_error for a name that is declared already, and for a parameter outside of any unit.
  ParameterId Parameter(std::string_view name, std::vector<int64_t> shape, Initial initial,
                        ParameterOptions options = {}) const;
  BufferId Buffer(std::string_view name, std::vector<int64_t> shape, double initial, BufferPolicy policy) const;
  // `name` is one more name of a parameter in exports.
  void Alias(std::string_view name, ParameterId parameter) const;
  // ModelDeclaration::optional.
  void Optional(std::string_view pattern) const;

  Place NextPlace() const { return {++declaration_->places}; }
  // For Pass::Gather of (rows, columns).
  GatherId Gather(int64_t columns) const;

 private:
  std::string Named(std::string_view name) const;

  ModelDeclaration* declaration_;
  std::string prefix_;
  UnitId unit_;
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_MODEL_BUILDER_H_
