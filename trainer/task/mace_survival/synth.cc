#include "trainer/task/mace_survival/synth.h"

#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "trainer/base/error.h"
#include "trainer/base/file.h"
#include "trainer/base/for_each.h"
#include "trainer/base/progress.h"
#include "trainer/base/text.h"
#include "trainer/data/csv.h"
#include "trainer/task/mace_survival/follow_up.h"
#include "trainer/task/mace_survival/survival_metrics.h"

namespace trainyard::mace {
namespace {

struct Size {
  int64_t subjects;
  std::array<int64_t, 3> voxels;
  double event_rate;
};
// The full size is the clinical cohort's; in the tiny one more have the event, so that a fold of a few has some.
const std::map<std::string, Size> kSizes = {
    {"tiny", {80, {24, 24, 12}, 0.4}}, {"small", {1950, {64, 64, 32}, 0.123}}, {"full", {1950, {192, 192, 48}, 0.123}}};

std::string CaseName(int64_t index) { return Format("case-%05lld", static_cast<long long>(index)); }
std::string FileOf(int64_t index) { return "images/" + CaseName(index) + ".nii.gz"; }
std::string Number(double value) { return Format("%.9g", value); }

std::optional<double> Concordant(const FollowUp& follow, bool val_only) {
  std::vector<double> risk;
  std::vector<Outcome> outcomes;
  for (size_t i = 0; i < follow.outcomes.size(); ++i) {
    if (val_only && follow.train[i]) continue;
    risk.push_back(follow.log_risk[i]);
    outcomes.push_back(follow.outcomes[i]);
  }
  return CountPairs(risk, outcomes).index();
}

nlohmann::json OrNull(const std::optional<double>& value) { return value ? nlohmann::json(*value) : nlohmann::json(); }

// As the task does.
void RequirePairs(const FollowUp& follow, bool train) {
  std::vector<Outcome> outcomes;
  for (size_t i = 0; i < follow.outcomes.size(); ++i) {
    if ((follow.train[i] != 0) == train) outcomes.push_back(follow.outcomes[i]);
  }
  if (CountPairs(std::vector<double>(outcomes.size()), outcomes).comparable == 0)
    throw ConfigError(
        Format("--subjects: of the %zu in the fold %s nobody has an event before another one's time, so "
               "that nothing could be learnt or measured; expected more subjects",
               outcomes.size(), train ? "train" : "val"));
}

class CohortSynthesis : public Synthesis {
 public:
  void Declare(FieldTable& t) override {
    t.Choice("--size", size_, {"tiny", "small", "full"}, FieldClass::kIdentity, "how much");
    t.OptInt("--subjects", subjects_, "null", 10, FieldClass::kIdentity, "how many instead of the size's", 200000);
    t.Int("--seed", seed_, 0, FieldClass::kIdentity, "the same seed gives the same bytes");
    t.Int("--threads", threads_, 0, FieldClass::kFree, "0 is one per processor", 1024);
  }

  void Write(const fs::path& out) override {
    RequireWritableDirectory(out / "images", "--out");
    Size size = kSizes.at(size_);
    size.subjects = subjects_.value_or(size.subjects);
    const std::vector<Phantom> subjects = WriteImages(out, size);
    const FollowUp follow = Follow(subjects, size.event_rate, static_cast<uint64_t>(seed_));
    for (const bool train : {true, false}) RequirePairs(follow, train);
    // The table last: a folder with one is whole.
    WriteTruth(out, size, subjects, follow);
    WriteTable(out / "dataset.csv", subjects, follow);
  }

 private:
  // What stays in memory of a subject is everything but its image.
  std::vector<Phantom> WriteImages(const fs::path& out, const Size& size) const {
    std::vector<Phantom> subjects(static_cast<size_t>(size.subjects));
    Progress progress("volumes", size.subjects, ProgressStyleFromEnvironment());
    const auto write = [&](int64_t i) {
      Phantom phantom = MakePhantom(size.voxels, static_cast<uint64_t>(seed_), i);
      WriteNifti(out / FileOf(i), phantom.image);
      phantom.image = {};
      subjects[static_cast<size_t>(i)] = std::move(phantom);
    };
    ForEach(size.subjects, threads_, write, [&](int64_t done) { progress.Update(done, ""); });
    return subjects;
  }

  static void WriteTable(const fs::path& file, const std::vector<Phantom>& subjects, const FollowUp& follow) {
    std::vector<std::string> columns = {"case_num", "NIFTI Path", "time", "event", "Fold_1"};
    columns.insert(columns.end(), FeatureNames().begin(), FeatureNames().end());
    std::vector<std::vector<std::string>> rows;
    for (size_t i = 0; i < subjects.size(); ++i) {
      const auto index = static_cast<int64_t>(i);
      std::vector<std::string> row = {CaseName(index), FileOf(index), Number(follow.outcomes[i].time),
                                      follow.outcomes[i].event ? "1" : "0", follow.train[i] ? "train" : "val"};
      for (const double value : subjects[i].features) row.push_back(Number(value));
      rows.push_back(std::move(row));
    }
    WriteCsv(file, columns, rows);
  }

  void WriteTruth(const fs::path& out, const Size& size, const std::vector<Phantom>& subjects,
                  const FollowUp& follow) const {
    const std::vector<std::string> columns = {"case_num", "log_risk", "agatston", "lesions",
                                              "arteries", "age",      "female"};
    std::vector<std::vector<std::string>> rows;
    for (size_t i = 0; i < subjects.size(); ++i) {
      const Phantom& p = subjects[i];
      rows.push_back({CaseName(static_cast<int64_t>(i)), Format("%.17g", follow.log_risk[i]), Number(p.agatston),
                      Number(p.lesions), Number(p.spread), Number(p.age), Number(p.female)});
    }
    WriteCsv(out / "truth.csv", columns, rows);
    const nlohmann::json truth = {{"source", "phantom"},
                                  {"seed", seed_},
                                  {"subjects", size.subjects},
                                  {"voxels", size.voxels},
                                  {"event_rate", size.event_rate},
                                  {"oracle_cindex", OrNull(Concordant(follow, false))},
                                  {"oracle_cindex_val", OrNull(Concordant(follow, true))}};
    WriteFileAtomic(out / "truth.json", truth.dump(1) + "\n");
  }

  std::string size_ = "small";
  OptionalInt subjects_;
  int64_t seed_ = 42;
  int64_t threads_ = 0;
};

}  // namespace

std::unique_ptr<Synthesis> MakeSynthesis() { return std::make_unique<CohortSynthesis>(); }

}  // namespace trainyard::mace
