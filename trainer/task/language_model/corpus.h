// A corpus: the concatenation of its files' tokens, split into what is trained on and what is held out, and the
// windows that are samples.
#ifndef TRAINYARD_TRAINER_TASK_LANGUAGE_MODEL_CORPUS_H_
#define TRAINYARD_TRAINER_TASK_LANGUAGE_MODEL_CORPUS_H_

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trainer/base/input_file.h"
#include "trainer/task/language_model/token_file.h"

namespace trainyard::lm {

// Pieces of files, one after the other. Copyable; the files must outlive it. Safe for any number of threads.
class TokenStream {
 public:
  // Appends tokens [begin, end) of a file. Throws DataError for more than can be counted.
  void Append(const TokenFile& file, int64_t begin, int64_t end);
  int64_t size() const { return size_; }
  // Tokens [begin, begin + into.size()). Throws as TokenFile::Read does. REQUIRES: the range lies in the stream.
  void Read(int64_t begin, std::span<Token> into) const;

 private:
  struct Piece {
    const TokenFile* file;
    int64_t from;   // its first token in the file
    int64_t begin;  // and in the stream
    int64_t size;
  };
  std::vector<Piece> pieces_;
  int64_t size_ = 0;
};

// Windows of context + 1 tokens at stride context: each token but the first is predicted once. What fills no window at
// the end is left out; nothing is padded. Safe for any number of threads.
class Windows {
 public:
  Windows(const TokenStream& stream, int64_t context) : stream_(stream), context_(context) {}
  int64_t size() const { return stream_.size() > 0 ? (stream_.size() - 1) / context_ : 0; }
  int64_t context() const { return context_; }
  // Its context + 1 tokens. Throws as TokenFile::Read does. REQUIRES: 0 <= id < size().
  std::vector<Token> Read(int64_t id) const {
    std::vector<Token> window(static_cast<size_t>(context_ + 1));
    stream_.Read(id * context_, window);
    return window;
  }

 private:
  TokenStream stream_;
  int64_t context_;
};

// What is held out: a file by its name, or the last share of the tokens.
struct HeldOut {
  double fraction = 0;
  std::string file;
};

// Immutable.
class Corpus {
 public:
  // `path`: a shard (*.tokens), a text, or a folder of either, taken in the order of their names. Reads the headers
  // alone: a file's vocabulary must be at most `vocab`. Throws DataError.
  Corpus(const std::filesystem::path& path, const HeldOut& held_out, int64_t vocab);

  const TokenStream& train() const { return train_; }
  const TokenStream& test() const { return test_; }
  int64_t size() const { return size_; }
  const std::filesystem::path& path() const { return path_; }
  // XXH3-64 of all tokens as little-endian 16-bit numbers, whatever files they lie in. Reads everything, with a line of
  // progress on standard error where that takes long, and throws DataError for a token that is not below its file's
  // vocabulary, else as TokenFile::Read does; without it that is seen where a window is read.
  std::string fingerprint(const Tick& tick = {}) const;
  // The same, and with a file that is held out where in the whole its tokens lie: which those are is its file's to say.
  std::string identity(const Tick& tick = {}) const;
  // Of their number, and of some tokens at each of 64 places from the first to the last. Throws as fingerprint does.
  std::string glance() const;

 private:
  std::filesystem::path path_;
  std::vector<std::unique_ptr<TokenFile>> files_;
  TokenStream all_, train_, test_;
  int64_t size_ = 0;
  std::string held_out_;  // the range of a held-out file; empty without one
};

// What truth.json beside a synthetic corpus says.
struct Truth {
  double entropy_rate;  // nats per token: no model of the tokens before has a smaller expected loss
};

// Nothing when `path` is no folder with a truth.json. Throws DataError for one that is malformed.
std::optional<Truth> ReadTruth(const std::filesystem::path& path);
// Throws DataError when there is one of other data: `fingerprint` is that of the tokens beside it.
void RequireTruthOf(const std::filesystem::path& path, const std::string& fingerprint);

}  // namespace trainyard::lm

#endif  // TRAINYARD_TRAINER_TASK_LANGUAGE_MODEL_CORPUS_H_
