#include "trainer/base/hash.h"

#include <xxhash.h>

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

}  // namespace trainyard
