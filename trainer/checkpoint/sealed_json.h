// JSON that carries the checksum of its own text: manifests and fences.
//
// The last field, on the last line but one, is "xxh3": XXH3-64 of every byte before the comma in
// front of it. So a reader needs no canonical form, and any flipped bit is seen.
#ifndef TRAINYARD_TRAINER_CHECKPOINT_SEALED_JSON_H_
#define TRAINYARD_TRAINER_CHECKPOINT_SEALED_JSON_H_

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace trainyard {

// The text of an object that is not empty. What is not UTF-8 in it is replaced.
std::string Seal(const nlohmann::json& root);

// The object in `text`, without "xxh3". Throws StorageError naming `origin`, and quoting nothing of
// the text, when the checksum is missing or does not fit.
nlohmann::json Unseal(std::string_view text, const std::string& origin);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_CHECKPOINT_SEALED_JSON_H_
