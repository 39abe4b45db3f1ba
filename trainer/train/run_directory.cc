#include "trainer/train/run_directory.h"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <nlohmann/json.hpp>
#include <random>

#include "common/json.h"
#include "operator/api/worker_env.h"
#include "trainer/base/environment.h"
#include "trainer/base/error.h"
#include "trainer/base/file.h"
#include "trainer/base/hash.h"
#include "trainer/base/temporary_name.h"
#include "trainer/base/text.h"
#include "trainer/base/utf8.h"
#include "trainer/checkpoint/fence.h"
#include "trainer/config/load.h"
#include "trainer/train/places.h"

namespace trainyard {
namespace {

using Json = nlohmann::json;

std::string Trimmed(std::string text) {
  text.erase(text.find_last_not_of(" \n") + 1);
  return text;
}

// A random (version 4) UUID, RFC 4122.
std::string MakeUuid() {
  std::random_device random;
  uint32_t w[4];
  for (uint32_t& word : w) word = random();
  w[1] = (w[1] & 0xFFFF0FFFu) | 0x4000u;
  w[2] = (w[2] & 0x3FFFFFFFu) | 0x80000000u;
  return Format("%08x-%04x-%04x-%04x-%04x%08x", w[0], w[1] >> 16, w[1] & 0xFFFF, w[2] >> 16, w[2] & 0xFFFF, w[3]);
}

constexpr const char* kInit = ", init.from ";
constexpr const char* kGone = "gone";

// A fingerprint's data, and what it says of init.from: empty without.
std::pair<std::string, std::string> Parts(const std::string& fingerprint) {
  const size_t at = fingerprint.rfind(kInit);
  if (at == std::string::npos) return {fingerprint, ""};
  return {fingerprint.substr(0, at), fingerprint.substr(at + std::string(kInit).size())};
}
std::string OrNone(const std::string& text) { return text.empty() ? "none" : text; }

std::string RequireUid(const std::string& uid, const std::string& origin) {
  const bool good = !uid.empty() && uid.size() <= 128 && uid[0] != '.' &&
                    std::all_of(uid.begin(), uid.end(),
                                [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '_' || c == '.'; });
  if (!good) throw ConfigError(origin + ": " + ValidUtf8(uid.substr(0, 128)) + ": expected letters, digits, - _ .");
  return uid;
}

}  // namespace

std::string FingerprintOf(const Config& config, const std::string& data_fingerprint, const Tick& tick) {
  if (config.init.from.empty()) return data_fingerprint;
  const bool there = fs::exists(LookAt(config.init.from));
  return data_fingerprint + kInit + (there ? HexDigest(InputFile(config.init.from).Checksum(tick)) : kGone);
}

std::string InitFromChecksum(const std::string& fingerprint) { return Parts(fingerprint).second; }

std::vector<std::string> RequireSameIdentity(const std::string& origin, const std::string& saved_config,
                                             const std::string& saved_fingerprint, const Config& now,
                                             const std::string& fingerprint) {
  std::vector<std::string> warnings, refused;
  for (const ConfigDifference& difference : CompareConfig(Json::parse(saved_config), now)) {
    const bool was_auto =
        difference.path == "batch.global" && (difference.before == "\"auto\"" || difference.after == "\"auto\"");
    if (difference.identity && !was_auto) {
      refused.push_back(difference.path + ": " + difference.before + " there, " + difference.after + " here");
    } else if (!difference.identity) {
      warnings.push_back(difference.path + ": was " + difference.before + ", now " + difference.after);
    }
  }
  const auto [saved_data, saved_init] = Parts(saved_fingerprint);
  const auto [data, init] = Parts(fingerprint);
  if (saved_data != data)
    refused.push_back("what lies at data.path: fingerprint " + saved_data + " there, " + data + " here");
  // A file that is gone was needed by the first attempt alone.
  if (saved_init != init && !(init == kGone && !saved_init.empty()))
    refused.push_back("what init.from names: checksum " + OrNone(saved_init) + " there, " + OrNone(init) + " here");
  if (!refused.empty()) {
    throw ConfigError(origin + " holds a run of another identity; " + Join(refused, "; ") +
                      ". Name another run.dir and checkpoint.dir, or go back to the old values");
  }
  return warnings;
}

std::vector<std::string> RequireSameModel(const std::string& origin, const std::string& saved_config,
                                          const std::string& saved_fingerprint, const Config& now,
                                          const std::string& fingerprint, bool frozen) {
  std::vector<std::string> refused, others, notes;
  for (const ConfigDifference& difference : CompareConfig(Json::parse(saved_config), now)) {
    const std::string& path = difference.path;
    const bool model = path.starts_with("model.") || path.starts_with("task.") || (frozen && path == "run.seed");
    const std::string text = path + ": " + difference.before + " there, " + difference.after + " here";
    if (difference.identity && model) refused.push_back(text);
    if (difference.identity && path.starts_with("data.")) others.push_back(text);
  }
  const auto [saved_data, saved_init] = Parts(saved_fingerprint);
  const auto [data, init] = Parts(fingerprint);
  if (frozen && saved_init != init)
    refused.push_back("init.from, of which the frozen parameters come: " + OrNone(saved_init) + " there, " +
                      OrNone(init) + " here");
  if (!refused.empty())
    throw ConfigError(origin + " holds another model; " + Join(refused, "; ") +
                      ". Give the values that it was trained with; data, batch and the like may be others");
  if (saved_data != data) notes.push_back("the data is not what " + origin + " was trained on");
  if (!others.empty()) notes.push_back("the data of " + origin + " were read otherwise; " + Join(others, "; "));
  return notes;
}

namespace {

// What is left beside log.jsonl and the like when a process is killed. One that is at work, an attempt that has just
// begun, say, writes to its own in seconds.
void RemoveUnfinishedFiles(const fs::path& run_dir, const Tick& tick) {
  const auto old = fs::file_time_type::clock::now() - std::chrono::hours(1);
  std::error_code error, ignored;
  for (fs::directory_iterator it(run_dir, error), end; !error && it != end; it.increment(error)) {
    tick();
    if (IsTemporaryName(it->path().filename().string()) && it->is_regular_file(ignored) &&
        it->last_write_time(ignored) < old)
      fs::remove(it->path(), ignored);
  }
}

fs::path UidFile(const Config& config) { return fs::path(config.run.dir) / "uid"; }
fs::path AttemptFile(const Config& config) { return fs::path(config.run.dir) / "attempt"; }

// One more than any that is known.
int64_t NextAttempt(const fs::path& file, const Fence& fence, const std::string& job_uid) {
  const int64_t here = fs::exists(file) ? std::strtoll(ReadFile(file).c_str(), nullptr, 10) : 0;
  const int64_t last = std::max({int64_t{0}, here, fence.LastAttempt(job_uid)});
  if (last == INT64_MAX)
    throw ConfigError(
        Format("run.dir: no attempt can follow %lld, which %s or the fence of checkpoint.dir says was "
               "one; name another run.dir and checkpoint.dir",
               static_cast<long long>(last), file.c_str()));
  return last + 1;
}

}  // namespace

Attempt ClaimRunDirectory(const Config& config, const std::string& fingerprint) {
  const fs::path directory = config.run.dir, saved = IdentityFile(config);
  RequireWritableDirectory(directory, "run.dir");
  RequireWritableDirectory(config.checkpoint.dir, "checkpoint.dir");
  if (fs::exists(saved)) {
    const Json before = ParseJson(ReadFile(saved));
    const bool good = before.is_object() && before.value("config", Json()).is_object() &&
                      before.value("data_fingerprint", Json()).is_string();
    if (!good) throw ConfigError("run.dir: " + saved.string() + " is not a run's configuration");
    RequireSameIdentity("run.dir: " + directory.string(), before["config"].dump(),
                        before["data_fingerprint"].get<std::string>(), config, fingerprint);
  }
  Attempt attempt;
  const fs::path uid_file = UidFile(config), attempt_file = AttemptFile(config);
  attempt.job_uid = EnvText(env::kJobUid);
  const bool is_new = !fs::exists(uid_file);
  if (!attempt.job_uid.empty()) {
    RequireUid(attempt.job_uid, env::kJobUid);
    attempt.number = EnvInt64(env::kAttempt, 1, INT64_MAX).value_or(1);
    if (is_new) RecordOwner(config, attempt);
    return attempt;
  }
  attempt.job_uid = is_new ? MakeUuid() : RequireUid(Trimmed(ReadFile(uid_file)), uid_file.string());
  attempt.number = NextAttempt(attempt_file, Fence::Read(config.checkpoint.dir), attempt.job_uid);
  RecordOwner(config, attempt);  // two that start at once have numbers of their own
  return attempt;
}

void RecordOwner(const Config& config, const Attempt& attempt) {
  WriteFileAtomic(UidFile(config), attempt.job_uid + "\n");
  WriteFileAtomic(AttemptFile(config), std::to_string(attempt.number) + "\n");
}

void RecordIdentity(const Config& config, const std::string& fingerprint, const Attempt& attempt, const Tick& tick) {
  const Json identity = {{"config", ToJson(config)}, {"data_fingerprint", fingerprint}};
  Fence::AsOwner(config.checkpoint.dir, {attempt.job_uid, attempt.number},
                 [&] { WriteFileAtomic(IdentityFile(config), identity.dump(1) + "\n"); });
  RemoveUnfinishedFiles(config.run.dir, tick);
}

}  // namespace trainyard
