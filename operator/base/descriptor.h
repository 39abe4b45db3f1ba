// A file descriptor that is closed at its owner's end.
#ifndef TRAINYARD_OPERATOR_BASE_DESCRIPTOR_H_
#define TRAINYARD_OPERATOR_BASE_DESCRIPTOR_H_

#include <unistd.h>

#include <utility>

namespace trainyard {

class Descriptor {
 public:
  explicit Descriptor(int descriptor = -1) : descriptor_(descriptor) {}
  ~Descriptor() { Close(); }
  Descriptor(Descriptor&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    if (this != &other) {
      Close();
      descriptor_ = std::exchange(other.descriptor_, -1);
    }
    return *this;
  }

  bool open() const { return descriptor_ >= 0; }
  int get() const { return descriptor_; }
  void Close() {
    if (descriptor_ >= 0) close(std::exchange(descriptor_, -1));
  }

 private:
  int descriptor_;
};

}  // namespace trainyard

#endif  // TRAINYARD_OPERATOR_BASE_DESCRIPTOR_H_
