#include "trainer/model/pass.h"

#include <stdexcept>

namespace trainyard {

at::Tensor Pass::operator[](ParameterId id) const {
  const ParameterSpec& spec = weights_->declaration().parameter(id);
  if ((*open_)[static_cast<size_t>(spec.unit.index)] == 0)
    throw std::logic_error("the parameter " + spec.name + " is used while its unit " +
                           weights_->declaration().units[static_cast<size_t>(spec.unit.index)] + " is not open");
  return weights_->Parameter(id);
}

at::Tensor Pass::Unit(UnitId unit, const UnitFunction& fn, at::TensorList inputs, Keeps keeps) const {
  struct Opened {
    int& count;
    explicit Opened(int& c) : count(c) { ++count; }
    ~Opened() { --count; }
  };
  // Around fn, not around RunUnit, and by value: what recomputes the unit in backward opens it again.
  const UnitFunction inside = [pass = *this, unit, fn](at::TensorList given) {
    const Opened opened((*pass.open_)[static_cast<size_t>(unit.index)]);
    return fn(given);
  };
  return weights_->RunUnit(unit, inside, inputs, keeps);
}

}  // namespace trainyard
