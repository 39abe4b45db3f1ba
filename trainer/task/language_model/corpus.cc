#include "trainer/task/language_model/corpus.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "common/json.h"
#include "trainer/base/error.h"
#include "trainer/base/file.h"
#include "trainer/base/hash.h"
#include "trainer/base/progress.h"
#include "trainer/base/text.h"

namespace trainyard::lm {
namespace {

using Json = nlohmann::json;
using Long = long long;
constexpr int64_t kMaxTokens = INT64_MAX / 2;  // their bytes can be counted as well; only sparse files have more
constexpr std::chrono::seconds kQuiet(2);      // before a reading shows its progress

// The files of a corpus in order.
std::vector<fs::path> FilesOf(const fs::path& path) {
  std::error_code error;
  const fs::file_status there = LookAt(path);
  if (!fs::exists(there)) throw DataError(path.string() + ": no such file or folder");
  if (!fs::is_directory(there)) return {path};
  std::vector<fs::path> shards, texts;
  for (const fs::directory_entry& entry : fs::directory_iterator(path, error)) {
    if (entry.path().extension() == ".tokens") shards.push_back(entry.path());
    if (entry.path().extension() == ".txt") texts.push_back(entry.path());
  }
  const std::string problem = path.string() + ": " + error.message();
  if (error && IsRefusal(error.value())) throw DataError(problem);
  if (error) throw StorageError(problem);
  if (shards.empty() == texts.empty())
    throw DataError(path.string() + ": " + (shards.empty() ? "no *.tokens or *.txt in it" : "both *.tokens and *.txt") +
                    "; expected files of one kind");
  std::vector<fs::path>& files = shards.empty() ? texts : shards;
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

void TokenStream::Append(const TokenFile& file, int64_t begin, int64_t end) {
  if (begin >= end) return;
  if (end - begin > kMaxTokens - size_)
    throw DataError(Format("data.path: there are more than %lld tokens", static_cast<Long>(kMaxTokens)));
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

Corpus::Corpus(const fs::path& path, const HeldOut& held_out, int64_t vocab) : path_(path) {
  std::vector<std::string> names;
  const TokenFile* test_file = nullptr;
  for (const fs::path& file : FilesOf(path)) {
    const TokenFile& opened = *files_.emplace_back(OpenTokenFile(file));
    if (opened.vocab() > vocab)
      throw DataError(file.string() + Format(": a vocabulary of %lld, and model.vocab is %lld; set model.vocab: %lld",
                                             static_cast<Long>(opened.vocab()), static_cast<Long>(vocab),
                                             static_cast<Long>(opened.vocab())));
    names.push_back(file.filename().string());
    if (names.back() == held_out.file) test_file = &opened;
    all_.Append(opened, 0, opened.size());
  }
  if (!held_out.file.empty() && !test_file) {
    const std::string nearest = NearestName(held_out.file, names);
    throw DataError("data.test_shard: no file " + held_out.file + " in " + path.string() +
                    (nearest.empty() ? "" : " (did you mean " + nearest + "?)"));
  }
  size_ = all_.size();
  const auto cut = size_ - static_cast<int64_t>(std::floor(static_cast<double>(size_) * held_out.fraction));
  int64_t begin = 0;  // of the file, in the whole
  for (const auto& file : files_) {
    const int64_t train =
        test_file ? (file.get() == test_file ? 0 : file->size()) : std::clamp<int64_t>(cut - begin, 0, file->size());
    train_.Append(*file, 0, train);
    test_.Append(*file, test_file && file.get() != test_file ? file->size() : train, file->size());
    if (file.get() == test_file)
      held_out_ = Format(", held out %lld to %lld", static_cast<Long>(begin), static_cast<Long>(begin + file->size()));
    begin += file->size();
  }
}

std::string Corpus::identity(const Tick& tick) const { return fingerprint(tick) + held_out_; }

std::string Corpus::fingerprint(const Tick& tick) const {
  constexpr int64_t kTokens = 1 << 19;
  const auto start = std::chrono::steady_clock::now();
  std::optional<Progress> bar;
  Xxh3Stream hash;
  std::vector<Token> buffer(static_cast<size_t>(std::min(kTokens, size_)));
  for (int64_t at = 0; at < size_; at += kTokens) {
    if (tick) tick();
    if (!bar && std::chrono::steady_clock::now() - start > kQuiet)
      bar.emplace("reading tokens", size_, ProgressStyleFromEnvironment());
    const std::span<Token> part(buffer.data(), static_cast<size_t>(std::min(kTokens, size_ - at)));
    all_.Read(at, part);
    hash.Update(std::as_bytes(part));
    if (bar) bar->Update(at + std::ssize(part), "");
  }
  return HexDigest(hash.Digest());
}

std::string Corpus::glance() const {
  constexpr int64_t kPlaces = 64, kTokens = 64;
  const std::array<int64_t, 1> size = {size_};
  Xxh3Stream hash;
  hash.Update(std::as_bytes(std::span(size)));
  std::vector<Token> tokens(static_cast<size_t>(std::min(kTokens, size_)));
  const int64_t last = size_ - std::ssize(tokens);
  for (int64_t place = 0; place < kPlaces; ++place) {
    all_.Read(static_cast<int64_t>(static_cast<double>(last) / (kPlaces - 1) * static_cast<double>(place)), tokens);
    hash.Update(std::as_bytes(std::span(tokens)));
  }
  return HexDigest(hash.Digest());
}

namespace {

// Null without one.
Json TruthAt(const fs::path& path) {
  const fs::path file = path / "truth.json";
  std::error_code error;
  if (!fs::is_regular_file(file, error)) return Json();
  Json truth = ParseJson(ReadFile(file));
  if (!truth.is_object() || !truth.contains("entropy_rate") || !truth["entropy_rate"].is_number())
    throw DataError(file.string() + ": no number entropy_rate in it");
  return truth;
}

}  // namespace

std::optional<Truth> ReadTruth(const fs::path& path) {
  const Json truth = TruthAt(path);
  return truth.is_null() ? std::nullopt : std::optional(Truth{truth["entropy_rate"].get<double>()});
}

void RequireTruthOf(const fs::path& path, const std::string& fingerprint) {
  const Json truth = TruthAt(path);
  if (truth.is_null() || (truth.contains("fingerprint") && truth["fingerprint"] == fingerprint)) return;
  throw DataError((path / "truth.json").string() + ": it is of other data: its fingerprint is not " + fingerprint +
                  ", which the tokens beside it have; remove it, or synthesise the data again");
}

}  // namespace trainyard::lm
