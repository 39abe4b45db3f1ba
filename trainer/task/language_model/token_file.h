// Files of tokens: shards (docs/formats.md, "Token shards") and plain text, a byte a token.
//
// Every function throws DataError naming the file, the offset and the problem, and StorageError where the file system
// gives no answer, or the file was written to since it was opened. Only regular files are opened: a pipe or a device
// would block or never end. Nothing is mapped: a file that is cut while it is read is an error, not a SIGBUS.
#ifndef TRAINYARD_TRAINER_TASK_LANGUAGE_MODEL_TOKEN_FILE_H_
#define TRAINYARD_TRAINER_TASK_LANGUAGE_MODEL_TOKEN_FILE_H_

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

namespace trainyard::lm {

using Token = uint16_t;

constexpr Token kEndOfText = 256;  // of the byte-level tokenizer, behind every text
constexpr int64_t kTextVocab = 257;

// Immutable; safe for any number of threads.
class TokenFile {
 public:
  virtual ~TokenFile() = default;
  virtual int64_t size() const = 0;  // tokens
  virtual int64_t vocab() const = 0;
  // Tokens [begin, begin + into.size()), each below vocab(). REQUIRES: the range lies in the file.
  virtual void Read(int64_t begin, std::span<Token> into) const = 0;
};

// A shard if its name ends in ".tokens", else a text.
std::unique_ptr<TokenFile> OpenTokenFile(const std::filesystem::path& path);

// Throws StorageError. REQUIRES: every token is below `vocab`, which is at most 65536.
void WriteShard(const std::filesystem::path& path, int64_t vocab, std::span<const Token> tokens);

}  // namespace trainyard::lm

#endif  // TRAINYARD_TRAINER_TASK_LANGUAGE_MODEL_TOKEN_FILE_H_
