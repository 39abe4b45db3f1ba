#include "trainer/task/language_model/token_file.h"

#include <algorithm>
#include <bit>
#include <string>
#include <vector>

#include "trainer/base/error.h"
#include "trainer/base/file.h"
#include "trainer/base/input_file.h"
#include "trainer/base/text.h"

namespace trainyard::lm {
namespace {

static_assert(std::endian::native == std::endian::little, "shards are little-endian and read as they lie");

constexpr char kMagic[8] = {'T', 'Y', 'T', 'O', 'K', 'E', 'N', 'S'};

struct ShardHeader {
  char magic[8];
  uint32_t version;
  uint32_t vocab;
  uint64_t count;
};
static_assert(sizeof(ShardHeader) == 24);

[[noreturn]] void Fail(const fs::path& path, int64_t offset, const std::string& problem) {
  throw DataError(path.string() + ": offset " + std::to_string(offset) + ": " + problem);
}

InputFile Open(const fs::path& path) try { return InputFile(path); } catch (const RefusedPathError& refused) {
  throw DataError(refused.what());
}

// What a file held when the run began, or an error: its fingerprint is the run's, and the next attempt compares it.
// What another NFS client has written is seen when the attributes that are cached here are old (acregmax, a minute).
void ReadUnchanged(const InputFile& file, int64_t offset, std::span<std::byte> into) {
  file.RequireUnchanged();  // one that was cut ends too early
  file.ReadAt(static_cast<uint64_t>(offset), into);
  file.RequireUnchanged();
}

class Shard : public TokenFile {
 public:
  explicit Shard(const fs::path& path) : file_(Open(path)) {
    constexpr int64_t kHeader = sizeof(ShardHeader);
    const auto size = static_cast<int64_t>(file_.size());
    if (size < kHeader) Fail(path, size, Format("truncated: a header has %lld bytes", static_cast<long long>(kHeader)));
    ShardHeader header{};
    ReadUnchanged(file_, 0, std::as_writable_bytes(std::span(&header, 1)));
    if (!std::equal(std::begin(kMagic), std::end(kMagic), header.magic))
      Fail(path, 0, "not a token shard: it does not begin with TYTOKENS");
    if (header.version != 1) Fail(path, 8, Format("version %u is not read; expected 1", header.version));
    if (header.vocab < 1 || header.vocab > 65536)
      Fail(path, 12, Format("a vocabulary of %u is not allowed; expected 1 to 65536", header.vocab));
    const auto there = static_cast<uint64_t>(size - kHeader);
    if (header.count != there / sizeof(Token) || there % sizeof(Token) != 0)
      Fail(path, 16,
           Format("the header says %llu tokens of 2 bytes, and %llu bytes follow it",
                  static_cast<unsigned long long>(header.count), static_cast<unsigned long long>(there)));
    count_ = static_cast<int64_t>(header.count);
    vocab_ = header.vocab;
  }

  int64_t size() const override { return count_; }
  int64_t vocab() const override { return vocab_; }

  void Read(int64_t begin, std::span<Token> into) const override {
    const int64_t offset = int64_t{sizeof(ShardHeader)} + begin * int64_t{sizeof(Token)};
    ReadUnchanged(file_, offset, std::as_writable_bytes(into));
    const auto bad = std::find_if(into.begin(), into.end(), [&](Token token) { return token >= vocab_; });
    if (bad != into.end())
      Fail(file_.path(), offset + (bad - into.begin()) * int64_t{sizeof(Token)},
           Format("token %u is outside of the vocabulary of %lld", *bad, static_cast<long long>(vocab_)));
  }

 private:
  InputFile file_;
  int64_t count_ = 0, vocab_ = 0;
};

class Text : public TokenFile {
 public:
  explicit Text(const fs::path& path) : file_(Open(path)) {}

  int64_t size() const override { return static_cast<int64_t>(file_.size()) + 1; }
  int64_t vocab() const override { return kTextVocab; }

  void Read(int64_t begin, std::span<Token> into) const override {
    const bool end = begin + static_cast<int64_t>(into.size()) == size();
    std::vector<unsigned char> bytes(into.size() - (end ? 1 : 0));
    ReadUnchanged(file_, begin, std::as_writable_bytes(std::span(bytes)));
    std::copy(bytes.begin(), bytes.end(), into.begin());
    if (end) into.back() = kEndOfText;
  }

 private:
  InputFile file_;
};

// What is surely no text would train as bytes without a word.
void RequireText(const fs::path& path) {
  struct Kind {
    std::string_view start, name;
  };
  constexpr Kind kKinds[] = {{"\x1f\x8b", "gzip"},
                             {"PK\x03\x04", "ZIP"},
                             {"\x93NUMPY", "NumPy"},
                             {"\x89HDF\r\n", "HDF5"},
                             {"\x28\xb5\x2f\xfd", "Zstandard"},
                             {"BZh9", "bzip2"},
                             {"\xfd"
                              "7zXZ",
                              "xz"},
                             {"PAR1", "Parquet"}};
  const InputFile file = Open(path);
  std::string start(static_cast<size_t>(std::min<uint64_t>(file.size(), 8)), '\0');
  file.ReadAt(0, std::as_writable_bytes(std::span(start)));
  for (const Kind& kind : kKinds) {
    if (start.starts_with(kind.start))
      throw DataError(path.string() + ": a file of " + std::string(kind.name) +
                      "'s; expected text, or token shards (*.tokens)");
  }
}

}  // namespace

std::unique_ptr<TokenFile> OpenTokenFile(const fs::path& path) {
  if (path.extension() == ".tokens") return std::make_unique<Shard>(path);
  RequireText(path);
  return std::make_unique<Text>(path);
}

void WriteShard(const fs::path& path, int64_t vocab, std::span<const Token> tokens) {
  ShardHeader header{};
  std::copy(std::begin(kMagic), std::end(kMagic), header.magic);
  header.version = 1;
  header.vocab = static_cast<uint32_t>(vocab);
  header.count = tokens.size();
  // Another process may write the same data into the folder, and a third read it.
  Replacement(path, [&](const fs::path& temporary) {
    OutputFile file(temporary);
    file.Write(std::as_bytes(std::span(&header, 1)));
    file.Write(std::as_bytes(tokens));
    file.Close();
  }).Commit();
}

}  // namespace trainyard::lm
