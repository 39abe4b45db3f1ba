// XXH3-64 (xxHash), the checksum of checkpoints, records and data fingerprints.
#ifndef TRAINYARD_TRAINER_BASE_HASH_H_
#define TRAINYARD_TRAINER_BASE_HASH_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace trainyard {

uint64_t Xxh3(std::span<const std::byte> bytes);

template <class T>
uint64_t Xxh3Of(std::span<const T> values) {
  return Xxh3(std::as_bytes(values));
}

// 16 lower-case hexadecimal digits.
std::string HexDigest(uint64_t hash);

// Hash of content that arrives in pieces. Not for concurrent use.
class Xxh3Stream {
 public:
  Xxh3Stream();
  ~Xxh3Stream();
  void Update(std::span<const std::byte> bytes);
  uint64_t Digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_BASE_HASH_H_
