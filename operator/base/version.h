// Of this program: what --version and /metrics say.
#ifndef TRAINYARD_OPERATOR_BASE_VERSION_H_
#define TRAINYARD_OPERATOR_BASE_VERSION_H_

namespace trainyard {

inline constexpr char kOperatorVersion[] = "0.1.0";

}  // namespace trainyard

#endif  // TRAINYARD_OPERATOR_BASE_VERSION_H_
