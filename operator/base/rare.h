// A value that is seldom there: an optional that takes one pointer where there is none.
#ifndef TRAINYARD_OPERATOR_BASE_RARE_H_
#define TRAINYARD_OPERATOR_BASE_RARE_H_

#include <memory>
#include <utility>

namespace trainyard {

template <class T>
class Rare {
 public:
  Rare() = default;
  Rare(T value) : value_(std::make_unique<T>(std::move(value))) {}
  Rare(const Rare& other) : value_(other.value_ ? std::make_unique<T>(*other.value_) : nullptr) {}
  Rare(Rare&&) noexcept = default;
  Rare& operator=(Rare other) noexcept {
    value_ = std::move(other.value_);
    return *this;
  }

  bool has_value() const { return value_ != nullptr; }
  explicit operator bool() const { return has_value(); }
  // REQUIRES: has_value()
  T& operator*() { return *value_; }
  const T& operator*() const { return *value_; }
  T* operator->() { return value_.get(); }
  const T* operator->() const { return value_.get(); }
  void reset() { value_.reset(); }

 private:
  std::unique_ptr<T> value_;
};

}  // namespace trainyard

#endif  // TRAINYARD_OPERATOR_BASE_RARE_H_
