// Quantities as resources are counted: 2, "500m", "1.5Gi", "1e3".
// Source: apimachinery's resource.Quantity.
#ifndef TRAINYARD_OPERATOR_API_QUANTITY_H_
#define TRAINYARD_OPERATOR_API_QUANTITY_H_

#include <nlohmann/json.hpp>
#include <optional>

namespace trainyard::api {

// In billionths, so that 500m is whole; to be compared with another. Nothing when the value is no quantity.
std::optional<long double> Quantity(const nlohmann::json& value);
inline constexpr long double kOne = 1e9L;  // in billionths

}  // namespace trainyard::api

#endif  // TRAINYARD_OPERATOR_API_QUANTITY_H_
