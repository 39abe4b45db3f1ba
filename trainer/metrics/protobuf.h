// The part of Protocol Buffers' encoding that event files need: varints, fixed width, lengths.
#ifndef TRAINYARD_TRAINER_METRICS_PROTOBUF_H_
#define TRAINYARD_TRAINER_METRICS_PROTOBUF_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trainyard {

// A message being written, field by field.
class Message {
 public:
  Message& Varint(int field, uint64_t value) {
    Key(field, 0);
    return Number(value);
  }
  Message& Double(int field, double value) { return Fixed(field, 1, value); }
  Message& Float(int field, float value) { return Fixed(field, 5, value); }
  Message& Bytes(int field, std::string_view value) {
    Key(field, 2);
    Number(value.size());
    bytes_ += value;
    return *this;
  }
  Message& Add(int field, const Message& message) { return Bytes(field, message.bytes_); }
  Message& PackedDoubles(int field, const std::vector<double>& values) {
    return Bytes(field, {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double)});
  }
  const std::string& bytes() const { return bytes_; }

 private:
  void Key(int field, unsigned wire_type) { Number(static_cast<uint64_t>(field) << 3 | wire_type); }
  template <class T>
  Message& Fixed(int field, unsigned wire_type, T value) {
    Key(field, wire_type);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(T));
    return *this;
  }
  Message& Number(uint64_t value) {
    for (; value >= 128; value >>= 7) bytes_ += static_cast<char>(value | 128);
    bytes_ += static_cast<char>(value);
    return *this;
  }
  std::string bytes_;
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_METRICS_PROTOBUF_H_
