#include "trainer/model/builder.h"

#include <algorithm>
#include <stdexcept>

namespace trainyard {
namespace {

template <class Specs>
void RequireNewName(const Specs& specs, const std::string& name) {
  const bool taken = std::any_of(specs.begin(), specs.end(), [&](const auto& spec) { return spec.name == name; });
  if (taken) throw std::logic_error("a model declares " + name + " twice");
}

}  // namespace

int64_t ModelDeclaration::num_parameters(bool trainable_only) const {
  int64_t n = 0;
  for (const ParameterSpec& spec : parameters) n += trainable_only && !spec.trainable ? 0 : spec.numel();
  return n;
}

std::string Scope::Named(std::string_view name) const { return prefix_ + std::string(name); }

Scope Scope::operator/(std::string_view name) const {
  Scope inner = *this;
  inner.prefix_ = Named(name) + ".";
  return inner;
}

Scope Scope::Unit(const std::string& name) const {
  std::vector<std::string>& units = declaration_->units;
  const auto it = std::find(units.begin(), units.end(), name);
  Scope inner = *this;
  inner.unit_.index = static_cast<int32_t>(it - units.begin());
  if (it == units.end()) units.push_back(name);
  return inner;
}

ParameterId Scope::Parameter(std::string_view name, std::vector<int64_t> shape, Initial initial,
                             ParameterOptions options) const {
  const std::string full = Named(name);
  RequireNewName(declaration_->parameters, full);
  RequireNewName(declaration_->buffers, full);
  if (unit_.index < 0) throw std::logic_error("the parameter " + full + " belongs to no unit");
  if (options.trainable && options.dtype == DType::kBfloat16)
    throw std::logic_error("the parameter " + full + " is trained: its master is float32");
  declaration_->parameters.push_back({full, std::move(shape), unit_, initial, options.dtype, options.trainable});
  return {static_cast<int32_t>(declaration_->parameters.size()) - 1};
}

BufferId Scope::Buffer(std::string_view name, std::vector<int64_t> shape, double initial, BufferPolicy policy) const {
  const std::string full = Named(name);
  RequireNewName(declaration_->parameters, full);
  RequireNewName(declaration_->buffers, full);
  declaration_->buffers.push_back({full, std::move(shape), initial, policy});
  return {static_cast<int32_t>(declaration_->buffers.size()) - 1};
}

void Scope::Alias(std::string_view name, ParameterId parameter) const {
  declaration_->aliases.emplace_back(Named(name), parameter);
}

void Scope::Optional(std::string_view pattern) const { declaration_->optional.push_back(Named(pattern)); }

GatherId Scope::Gather(int64_t columns) const {
  declaration_->gathers.push_back(columns);
  return {static_cast<int32_t>(declaration_->gathers.size()) - 1};
}

}  // namespace trainyard
