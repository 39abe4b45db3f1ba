#include "trainer/base/hash.h"

#include <xxhash.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <vector>

#include "trainer/base/error.h"
#include "trainer/base/text.h"

namespace trainyard {

uint64_t Xxh3(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

std::string HexDigest(uint64_t hash) { return Format("%016llx", static_cast<unsigned long long>(hash)); }

struct Xxh3Stream::State {
  XXH3_state_t* xxh = XXH3_createState();
  ~State() { XXH3_freeState(xxh); }
};

Xxh3Stream::Xxh3Stream() : state_(std::make_unique<State>()) { XXH3_64bits_reset(state_->xxh); }
Xxh3Stream::~Xxh3Stream() = default;

void Xxh3Stream::Update(std::span<const std::byte> bytes) {
  XXH3_64bits_update(state_->xxh, bytes.data(), bytes.size());
}

uint64_t Xxh3Stream::Digest() const { return XXH3_64bits_digest(state_->xxh); }

uint64_t Xxh3File(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw StorageError("cannot read " + path.string() + ": " + std::strerror(errno));
  Xxh3Stream stream;
  std::vector<char> buffer(1 << 20);
  while (in) {
    in.read(buffer.data(), static_cast<std::streamsize>(buffer.size()));
    stream.Update(std::as_bytes(std::span(buffer.data(), static_cast<size_t>(in.gcount()))));
  }
  if (in.bad()) throw StorageError("cannot read " + path.string());
  return stream.Digest();
}

}  // namespace trainyard
