#include "trainer/model/math_functions.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/acos.h>
#include <ATen/ops/asin.h>
#include <ATen/ops/atan.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/erf.h>
#include <ATen/ops/erfc.h>
#include <ATen/ops/erfinv.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/full.h>
#include <ATen/ops/log.h>
#include <ATen/ops/log10.h>
#include <ATen/ops/log2.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/tan.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/trunc.h>

namespace trainyard {

void ResolveMathFunctions() {
  // What ATen/cpu/vml.h of the version that we link gives to MKL, and the two types that it does so for.
  using Function = at::Tensor (*)(const at::Tensor&);
  constexpr Function kFunctions[] = {at::acos, at::asin, at::atan,  at::cos, at::erf,  at::erfc, at::erfinv, at::exp,
                                     at::log,  at::log2, at::log10, at::sin, at::sqrt, at::tan,  at::tanh,   at::trunc};
  const at::NoGradGuard no_gradient;
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    const at::Tensor one_element = at::full({1}, 0.5, type);
    for (const Function function : kFunctions) function(one_element);
  }
}

}  // namespace trainyard
