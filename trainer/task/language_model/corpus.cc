#include "trainer/task/language_model/corpus.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/file.h"
#include "trainer/base/hash.h"
#include "trainer/base/text.h"

namespace trainyard::lm {
namespace {

using Json = nlohmann::json;
using Long = long long;

// The files of a corpus in order.
std::vector<fs::path> FilesOf(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path, error)) throw DataError(path.string() + ": no such file or folder");
  if (!fs::is_directory(path, error)) return {path};
  std::vector<fs::path> shards, texts;
  for (const fs::directory_entry& entry : fs::directory_iterator(path, error)) {
    if (entry.path().extension() == ".tokens") shards.push_back(entry.path());
    if (entry.path().extension() == ".txt") texts.push_back(entry.path());
  }
  if (error) throw DataError(path.string() + ": " + error.message());
  if (shards.empty() == texts.empty())
    throw DataError(path.string() + ": " + (shards.empty() ? "no *.tokens or *.txt in it" : "both *.tokens and *.txt") +
                    "; expected files of one kind");
  std::vector<fs::path>& files = shards.empty() ? texts : shards;
  std::sort(files.begin(), files.end());
  return files;
}

// Reads the stream to its end; that a token is in its file's vocabulary is seen by reading it.
uint64_t HashOf(const TokenStream& stream) {
  constexpr int64_t kTokens = 1 << 19;
  Xxh3Stream hash;
  std::vector<Token> buffer(static_cast<size_t>(std::min(kTokens, stream.size())));
  for (int64_t at = 0; at < stream.size(); at += kTokens) {
    const std::span<Token> part(buffer.data(), static_cast<size_t>(std::min(kTokens, stream.size() - at)));
    stream.Read(at, part);
    hash.Update(std::as_bytes(part));
  }
  return hash.Digest();
}

}  // namespace

void TokenStream::Append(const TokenFile& file, int64_t begin, int64_t end) {
  if (begin >= end) return;
  pieces_.push_back({&file, begin, size_, end - begin});
  size_ += end - begin;
}

void TokenStream::Read(int64_t begin, std::span<Token> into) const {
  // The last piece that begins at or before `begin`.
  auto piece = std::upper_bound(pieces_.begin(), pieces_.end(), begin,
                                [](int64_t at, const Piece& candidate) { return at < candidate.begin; });
  for (--piece; !into.empty(); ++piece) {
    const int64_t skipped = begin - piece->begin;
    const auto count = static_cast<size_t>(std::min<int64_t>(piece->size - skipped, std::ssize(into)));
    piece->file->Read(piece->from + skipped, into.first(count));
    into = into.subspan(count);
    begin += static_cast<int64_t>(count);
  }
}

Corpus::Corpus(const fs::path& path, const HeldOut& held_out, int64_t vocab) {
  std::vector<std::string> names;
  TokenStream all;
  const TokenFile* test_file = nullptr;
  for (const fs::path& file : FilesOf(path)) {
    const TokenFile& opened = *files_.emplace_back(OpenTokenFile(file));
    if (opened.vocab() > vocab)
      throw DataError(file.string() + Format(": a vocabulary of %lld, and model.vocab is %lld",
                                             static_cast<Long>(opened.vocab()), static_cast<Long>(vocab)));
    names.push_back(file.filename().string());
    if (names.back() == held_out.file) test_file = &opened;
    all.Append(opened, 0, opened.size());
  }
  if (!held_out.file.empty() && !test_file) {
    const std::string nearest = NearestName(held_out.file, names);
    throw DataError("data.test_shard: no file " + held_out.file + " in " + path.string() +
                    (nearest.empty() ? "" : " (did you mean " + nearest + "?)"));
  }
  size_ = all.size();
  const auto cut = size_ - static_cast<int64_t>(std::floor(static_cast<double>(size_) * held_out.fraction));
  int64_t begin = 0;  // of the file, in the whole
  for (const auto& file : files_) {
    const int64_t train =
        test_file ? (file.get() == test_file ? 0 : file->size()) : std::clamp<int64_t>(cut - begin, 0, file->size());
    train_.Append(*file, 0, train);
    test_.Append(*file, test_file && file.get() != test_file ? file->size() : train, file->size());
    begin += file->size();
  }
  fingerprint_ = HexDigest(HashOf(all));
}

std::optional<Truth> ReadTruth(const fs::path& path, const std::string& fingerprint) {
  const fs::path file = path / "truth.json";
  std::error_code error;
  if (!fs::is_regular_file(file, error)) return std::nullopt;
  const Json truth = Json::parse(ReadFile(file), nullptr, false);
  if (!truth.is_object() || !truth.contains("entropy_rate") || !truth["entropy_rate"].is_number())
    throw DataError(file.string() + ": no number entropy_rate in it");
  if (!truth.contains("fingerprint") || truth["fingerprint"] != fingerprint)
    throw DataError(file.string() + ": it is of other data: its fingerprint is not " + fingerprint +
                    ", which the tokens beside it have; remove it, or synthesise the data again");
  return Truth{truth["entropy_rate"].get<double>()};
}

}  // namespace trainyard::lm
