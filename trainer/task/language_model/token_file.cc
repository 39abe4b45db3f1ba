#include "trainer/task/language_model/token_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "trainer/base/error.h"
#include "trainer/base/file.h"
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

// A regular file, open for reading at any place by any thread.
class OpenFile {
 public:
  explicit OpenFile(const fs::path& path) : path_(path) {
    fd_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);  // a pipe is not waited for
    if (fd_ < 0 && (errno == ENOENT || errno == ENOTDIR || errno == EACCES))
      throw DataError(path.string() + ": " + std::strerror(errno));
    if (fd_ < 0) throw StorageError(path.string() + ": " + std::strerror(errno));
    struct stat status {};
    const bool known = fstat(fd_, &status) == 0;
    if (!known || !S_ISREG(status.st_mode)) {
      close(fd_);
      throw DataError(path.string() + ": not a regular file");
    }
    size_ = status.st_size;
  }
  ~OpenFile() { close(fd_); }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  const fs::path& path() const { return path_; }
  int64_t size() const { return size_; }  // bytes, when it was opened

  void ReadAt(int64_t offset, std::span<std::byte> into) const {
    size_t done = 0;
    while (done < into.size()) {
      const ssize_t n = pread(fd_, into.data() + done, into.size() - done, offset + static_cast<int64_t>(done));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) throw StorageError("cannot read " + path_.string() + ": " + std::strerror(errno));
      if (n == 0) Fail(path_, offset + static_cast<int64_t>(done), "the file was cut while it was read");
      done += static_cast<size_t>(n);
    }
  }

 private:
  fs::path path_;
  int fd_;
  int64_t size_ = 0;
};

class Shard : public TokenFile {
 public:
  explicit Shard(const fs::path& path) : file_(path) {
    constexpr int64_t kHeader = sizeof(ShardHeader);
    if (file_.size() < kHeader)
      Fail(path, file_.size(), Format("truncated: a header has %lld bytes", static_cast<long long>(kHeader)));
    ShardHeader header{};
    file_.ReadAt(0, std::as_writable_bytes(std::span(&header, 1)));
    if (!std::equal(std::begin(kMagic), std::end(kMagic), header.magic))
      Fail(path, 0, "not a token shard: it does not begin with TYTOKENS");
    if (header.version != 1) Fail(path, 8, Format("version %u is not read; expected 1", header.version));
    if (header.vocab < 1 || header.vocab > 65536)
      Fail(path, 12, Format("a vocabulary of %u is not allowed; expected 1 to 65536", header.vocab));
    const auto there = static_cast<uint64_t>(file_.size() - kHeader);
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
    file_.ReadAt(offset, std::as_writable_bytes(into));
    const auto bad = std::find_if(into.begin(), into.end(), [&](Token token) { return token >= vocab_; });
    if (bad != into.end())
      Fail(file_.path(), offset + (bad - into.begin()) * int64_t{sizeof(Token)},
           Format("token %u is outside of the vocabulary of %lld", *bad, static_cast<long long>(vocab_)));
  }

 private:
  OpenFile file_;
  int64_t count_ = 0, vocab_ = 0;
};

class Text : public TokenFile {
 public:
  explicit Text(const fs::path& path) : file_(path) {}

  int64_t size() const override { return file_.size() + 1; }
  int64_t vocab() const override { return kTextVocab; }

  void Read(int64_t begin, std::span<Token> into) const override {
    const bool end = begin + static_cast<int64_t>(into.size()) == size();
    std::vector<unsigned char> bytes(into.size() - (end ? 1 : 0));
    file_.ReadAt(begin, std::as_writable_bytes(std::span(bytes)));
    std::copy(bytes.begin(), bytes.end(), into.begin());
    if (end) into.back() = kEndOfText;
  }

 private:
  OpenFile file_;
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
  const OpenFile file(path);
  std::string start(static_cast<size_t>(std::min<int64_t>(file.size(), 8)), '\0');
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
  OutputFile file(path);
  file.Write(std::as_bytes(std::span(&header, 1)));
  file.Write(std::as_bytes(tokens));
  file.Close();
}

}  // namespace trainyard::lm
