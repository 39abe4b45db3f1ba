#include "trainer/data/item_store.h"

#include <unistd.h>

#include <atomic>
#include <charconv>
#include <chrono>
#include <cstring>
#include <random>
#include <span>
#include <string>

#include "trainer/base/error.h"
#include "trainer/base/file.h"
#include "trainer/base/hash.h"
#include "trainer/base/input_file.h"
#include "trainer/base/text.h"

namespace trainyard {
namespace {

constexpr uint64_t kItemMagic = 0x316d657469797274;  // "tryitem1" in memory
constexpr size_t kHead = 4096;                       // of a file; the values begin at a page
constexpr std::string_view kSuffix = ".item", kTemporary = ".tmp-";
constexpr auto kAbandoned = std::chrono::minutes(10);

constexpr size_t kHashWord = 3;

// Of everything behind it: the rest of the head, and the values.
uint64_t HashOf(std::span<const uint64_t> head, const std::vector<Volume>& volumes) {
  Xxh3Stream hash;
  hash.Update(std::as_bytes(head.subspan(kHashWord + 1)));
  for (const Volume& volume : volumes) hash.Update(std::as_bytes(std::span(volume.values)));
  return hash.Digest();
}

// A file's head: magic, id, stamp, hash, number of volumes, and of each its dimensions; zeros behind them.
std::vector<uint64_t> HeadOf(int64_t id, uint64_t stamp, const std::vector<Volume>& volumes) {
  std::vector<uint64_t> head = {kItemMagic, static_cast<uint64_t>(id), stamp, 0, volumes.size()};
  for (const Volume& volume : volumes) {
    head.push_back(volume.shape.size());
    head.insert(head.end(), volume.shape.begin(), volume.shape.end());
  }
  if (head.size() * sizeof(uint64_t) > kHead) throw std::invalid_argument("too many volumes in one item");
  head.resize(kHead / sizeof(uint64_t));
  head[kHashWord] = HashOf(head, volumes);
  return head;
}

// The volumes that a head describes, still empty; nothing when they do not fill `bytes`.
std::optional<std::vector<Volume>> VolumesOf(std::span<const uint64_t> head, uint64_t bytes) {
  std::vector<Volume> volumes;
  size_t at = 4;
  const auto next = [&] { return at < head.size() ? head[at++] : 0; };
  uint64_t left = bytes / sizeof(float);
  for (uint64_t n = next(); volumes.size() < n;) {
    const uint64_t dims = next();
    if (dims == 0 || dims > 8) return std::nullopt;
    Volume& volume = volumes.emplace_back();
    uint64_t size = 1;
    for (uint64_t d = 0; d < dims; ++d) {
      const uint64_t extent = next();
      if (extent == 0 || extent > left / size) return std::nullopt;
      size *= extent;
      volume.shape.push_back(static_cast<int64_t>(extent));
    }
    left -= size;
    volume.values.resize(size);
  }
  if (left > 0 || bytes % sizeof(float) != 0) return std::nullopt;
  return volumes;
}

std::optional<int64_t> IdOf(const std::string& name) {
  if (!name.ends_with(kSuffix)) return std::nullopt;
  int64_t id = 0;
  const char* end = name.data() + name.size() - kSuffix.size();
  const auto [stop, error] = std::from_chars(name.data(), end, id);
  return error == std::errc() && stop == end ? std::optional(id) : std::nullopt;
}

bool IsAbandoned(const fs::directory_entry& entry) {
  std::error_code error;
  const auto written = entry.last_write_time(error);
  return !error && entry.path().filename().string().starts_with(kTemporary) &&
         fs::file_time_type::clock::now() - written > kAbandoned;
}

}  // namespace

fs::path ItemStore::PathOf(int64_t id) const { return folder_ / (std::to_string(id) + std::string(kSuffix)); }

std::optional<std::vector<Volume>> ItemStore::Load(int64_t id, uint64_t stamp) const {
  try {
    const InputFile file(PathOf(id));
    if (file.size() < kHead) return std::nullopt;
    std::vector<uint64_t> head(kHead / sizeof(uint64_t));
    file.ReadAt(0, std::as_writable_bytes(std::span(head)));
    if (head[0] != kItemMagic || head[1] != static_cast<uint64_t>(id) || head[2] != stamp) return std::nullopt;
    auto volumes = VolumesOf(head, file.size() - kHead);
    if (!volumes) return std::nullopt;
    uint64_t at = kHead;
    for (Volume& volume : *volumes) {
      const auto bytes = std::as_writable_bytes(std::span(volume.values));
      file.ReadAt(at, bytes);
      at += bytes.size();
    }
    if (HashOf(head, *volumes) != head[kHashWord]) return std::nullopt;
    return volumes;
  } catch (const StorageError&) {
    return std::nullopt;
  }
}

void ItemStore::Save(int64_t id, uint64_t stamp, const std::vector<Volume>& volumes) const {
  static std::atomic<uint64_t> count{0};                   // of names in this process
  static const unsigned process = std::random_device()();  // pods that share a folder may have processes of one number
  const std::vector<uint64_t> head = HeadOf(id, stamp, volumes);
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) throw StorageError("cannot make " + folder_.string() + ": " + error.message());
  uint64_t bytes = kHead;
  for (const Volume& volume : volumes) bytes += volume.values.size() * sizeof(float);
  if (const auto free = FreeBytes(folder_); free && *free < reserve_bytes_ + bytes)
    throw StorageError(folder_.string() + ": " + HumanBytes(static_cast<double>(*free)) + " are free; a sample takes " +
                       HumanBytes(static_cast<double>(bytes)) + ", and " +
                       HumanBytes(static_cast<double>(reserve_bytes_)) + " stay free");
  const fs::path temporary = folder_ / Format("%s%d-%08x-%llu", kTemporary.data(), getpid(), process,
                                              static_cast<unsigned long long>(count.fetch_add(1)));
  try {
    OutputFile file(temporary);
    file.Write(std::as_bytes(std::span(head)));
    for (const Volume& volume : volumes) file.Write(std::as_bytes(std::span(volume.values)));
  } catch (const StorageError&) {
    unlink(temporary.c_str());
    throw;
  }
  fs::rename(temporary, PathOf(id), error);
  if (!error) return;
  unlink(temporary.c_str());
  throw StorageError("cannot keep a sample in " + folder_.string() + ": " + error.message());
}

void ItemStore::Sweep(const std::function<bool(int64_t id)>& keep) const {
  std::error_code error;
  for (fs::directory_iterator it(folder_, error), end; !error && it != end; it.increment(error)) {
    const std::optional<int64_t> id = IdOf(it->path().filename().string());
    if (id ? !keep(*id) : IsAbandoned(*it)) unlink(it->path().c_str());
  }
}

}  // namespace trainyard
