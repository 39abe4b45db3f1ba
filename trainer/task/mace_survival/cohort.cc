#include "trainer/task/mace_survival/cohort.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "common/text.h"
#include "trainer/base/error.h"
#include "trainer/base/file.h"
#include "trainer/base/hash.h"
#include "trainer/base/text.h"
#include "trainer/task/mace_survival/survival_metrics.h"

namespace trainyard::mace {
namespace {

constexpr double kLargestFeature = 1e30;  // of a float whose square is summed in double
constexpr double kMostDeviations = 1e15;  // of a float whose square is a float, and the squares of a batch's features
constexpr size_t kFewValues = 5, kSomeValues = 20, kRowsPerValue = 50;

fs::path TablePath(const fs::path& path) try {
  return fs::is_directory(LookAt(path)) ? path / "dataset.csv" : path;
} catch (const RefusedPathError& error) {
  throw DataError(std::string("data.path: ") + error.what());
}

// The column that a person named, or the other spelling of it that the data set's own scripts use.
size_t ImageColumn(const Csv& csv, const std::string& name) {
  if (!csv.Find(name) && name == "NIFTI Path") return csv.AnyColumn({"NIFTI Path", "NIFTI path"});
  return csv.Column(name);
}

constexpr size_t kGlanced = 64;  // subjects

// Small whole numbers: what else has few values, as a score that is 0 for most, is scaled like the rest.
bool IsCategorical(const std::set<float>& values, size_t rows) {
  const auto code = [](float x) { return x == std::floor(x) && std::abs(x) <= kSomeValues; };
  return std::ranges::all_of(values, code) &&
         (values.size() <= kFewValues || (values.size() <= kSomeValues && values.size() * kRowsPerValue < rows));
}

// Of the file that lies there, whatever leads to it.
std::pair<uint64_t, uint64_t> IdentityOf(const fs::path& file) {
  struct stat info {};
  if (stat(file.c_str(), &info) != 0) throw StorageError("cannot stat " + file.string() + ": " + std::strerror(errno));
  return {info.st_dev, info.st_ino};
}

// Without a pair whose order is known there is neither a gradient nor a concordance.
void RequirePairs(const fs::path& table, const char* fold, const std::vector<Subject>& subjects) {
  if (subjects.empty()) throw DataError(Format("%s: no row is of the fold %s", table.c_str(), fold));
  const std::vector<double> nobody(subjects.size(), 0);
  if (CountPairs(nobody, OutcomesOf(subjects)).comparable == 0)
    throw DataError(
        Format("%s: of the fold's %zu subjects nobody has an event before another one's time, so that "
               "nothing can be learnt or measured (fold %s)",
               table.c_str(), subjects.size(), fold));
}

}  // namespace

std::vector<Outcome> OutcomesOf(const std::vector<Subject>& subjects) {
  std::vector<Outcome> outcomes;
  for (const Subject& subject : subjects) outcomes.push_back(subject.outcome);
  return outcomes;
}

Cohort::Cohort(const fs::path& path, const CohortColumns& columns)
    : table_(TablePath(path)),
      csv_(Csv::Read(table_)),
      image_(ImageColumn(csv_, columns.image)),
      fold_(csv_.Column(columns.fold)),
      time_(csv_.Column("time")),
      event_(csv_.Column("event")),
      name_(csv_.Find("case_num")) {
  ReadFeatureColumns(columns);
  for (int64_t row = 0; row < csv_.rows(); ++row) ReadRow(row, columns);
  RequireFoldsApart();
  WarnOfRepeats("train", train_);
  WarnOfRepeats("val", val_);
  RequirePairs(table_, "train", train_);
  RequirePairs(table_, "val", val_);
}

void Cohort::ReadFeatureColumns(const CohortColumns& columns) {
  if (!columns.features) return;
  for (size_t i = 0; i < csv_.columns().size(); ++i) {
    const std::string& name = csv_.columns()[i];
    // Another fold column is none of this run's matter either.
    if (i == image_ || i == fold_ || i == time_ || i == event_ || i == name_ || name.starts_with("Fold_")) continue;
    feature_columns_.push_back(i);
    feature_names_.push_back(name);
  }
  if (std::ssize(feature_names_) != *columns.features)
    throw DataError(Format("%s: %zu columns are features (%s, ...), and model.features is %lld", table_.c_str(),
                           feature_names_.size(), feature_names_.empty() ? "none" : feature_names_[0].c_str(),
                           static_cast<long long>(*columns.features)));
}

void Cohort::ReadRow(int64_t row, const CohortColumns&) {
  static const std::vector<std::string> folds = {"train", "val"};
  Subject subject;
  subject.row = row;
  subject.name = name_ ? std::string(csv_.Word(row, *name_)) : std::to_string(row);
  const bool train = csv_.Choice(row, fold_, folds) == 0;
  subject.outcome.time = csv_.Number(row, time_);
  constexpr double kMostDays = 1e6;
  if (!(subject.outcome.time > 0 && subject.outcome.time <= kMostDays))
    csv_.Fail(row, time_,
              Format("%g days are no time; expected a number above 0 and at most %g", subject.outcome.time, kMostDays));
  subject.outcome.event = csv_.Integer(row, event_, 0, 1) == 1;
  if (csv_.Text(row, image_).empty()) csv_.Fail(row, image_, "empty; expected the file of a volume");
  subject.image = table_.parent_path() / csv_.Text(row, image_);
  try {
    const fs::file_status there = LookAt(subject.image);
    if (!fs::exists(there)) csv_.Fail(row, image_, subject.image.string() + ": no such file");
    if (!fs::is_regular_file(there)) csv_.Fail(row, image_, subject.image.string() + ": not a regular file");
  } catch (const RefusedPathError& error) {
    csv_.Fail(row, image_, error.what());
  }
  for (const size_t column : feature_columns_) {
    const double value = csv_.Number(row, column);
    if (!(std::fabs(value) <= kLargestFeature))
      csv_.Fail(row, column, Format("%g is too large; expected at most %g", value, kLargestFeature));
    subject.features.push_back(static_cast<float>(value));
  }
  (train ? train_ : val_).push_back(std::move(subject));
}

// Who is learnt and then measured would say how well a model remembers.
void Cohort::RequireFoldsApart() const {
  std::map<std::string, int64_t> names;                     // rows of the training fold
  std::map<std::pair<uint64_t, uint64_t>, int64_t> images;  // by the file itself: it may have many paths
  for (const Subject& subject : train_) {
    if (name_ && !subject.name.empty()) names.emplace(subject.name, subject.row);
    images.emplace(IdentityOf(subject.image), subject.row);
  }
  for (const Subject& subject : val_) {
    const auto refuse = [&](size_t column, const auto& rows, const auto& what) {
      const auto other = rows.find(what);
      if (other == rows.end()) return;
      csv_.Fail(subject.row, column,
                Format("\"%s\" is of the fold val, and in line %lld of the fold train; expected each subject in one of "
                       "them",
                       Shorten(csv_.Text(subject.row, column), 60).c_str(),
                       static_cast<long long>(csv_.line(other->second))));
    };
    if (name_) refuse(*name_, names, subject.name);
    refuse(image_, images, IdentityOf(subject.image));
  }
}

void Cohort::WarnOfRepeats(const char* fold, const std::vector<Subject>& subjects) const {
  std::map<std::string, int64_t> rows;
  int64_t repeats = 0;
  std::string first;
  for (const Subject& subject : subjects) {
    const auto [at, added] = rows.try_emplace(subject.image.lexically_normal(), subject.row);
    if (added || repeats++ > 0) continue;
    first = Format("lines %lld and %lld are of one file, %s", static_cast<long long>(csv_.line(at->second)),
                   static_cast<long long>(csv_.line(subject.row)), Shorten(csv_.Text(subject.row, image_), 60).c_str());
  }
  if (repeats > 0)
    std::fprintf(stderr, "warning: %s: fold %s: %lld of %zu subjects have a volume that another has as well: %s\n",
                 table_.c_str(), fold, static_cast<long long>(repeats), subjects.size(), first.c_str());
}

Scaling Cohort::FitScaling() const {
  Scaling scaling;
  for (size_t f = 0; f < feature_names_.size(); ++f) {
    std::set<float> values;
    double sum = 0, squares = 0;
    for (const Subject& subject : train_) {
      values.insert(subject.features[f]);
      sum += static_cast<double>(subject.features[f]);
    }
    const auto n = static_cast<double>(train_.size()), mean = sum / n;
    for (const Subject& subject : train_) squares += std::pow(static_cast<double>(subject.features[f]) - mean, 2);
    const bool categorical = IsCategorical(values, train_.size());
    scaling.mean.push_back(categorical ? 0 : static_cast<float>(mean));
    const auto deviation = static_cast<float>(std::sqrt(squares / n));
    scaling.deviation.push_back(categorical || deviation == 0 ? 1 : deviation);
    RequireNear(f, static_cast<double>(scaling.mean.back()), static_cast<double>(scaling.deviation.back()));
  }
  return scaling;
}

void Cohort::RequireNear(size_t feature, double mean, double deviation) const {
  for (const std::vector<Subject>* fold : {&train_, &val_}) {
    for (const Subject& subject : *fold) {
      const double away = std::fabs(static_cast<double>(subject.features[feature]) - mean) / deviation;
      if (away <= kMostDeviations) continue;
      csv_.Fail(subject.row, feature_columns_[feature],
                Format("%g is %g deviations of the fold train from its mean; expected at most %g",
                       static_cast<double>(subject.features[feature]), away, kMostDeviations));
    }
  }
}

std::string Cohort::fingerprint(const Tick& tick) const try {
  std::vector<uint64_t> sums = {InputFile(table_).Checksum(tick)};
  for (const std::vector<Subject>* fold : {&train_, &val_}) {
    for (const Subject& subject : *fold) sums.push_back(InputFile(subject.image).Checksum(tick));
  }
  return HexDigest(Xxh3Of(std::span<const uint64_t>(sums)));
} catch (const RefusedPathError& error) {
  throw DataError(error.what());
}

std::string Cohort::glance(const Tick& tick) const try {
  Xxh3Stream hash;
  const size_t step = (train_.size() + val_.size()) / kGlanced + 1;  // all sizes, and of some the content
  size_t place = 0;
  for (const std::vector<Subject>* fold : {&train_, &val_}) {
    for (const Subject& subject : *fold) {
      if (tick) tick();
      const double outcome[] = {subject.outcome.time, subject.outcome.event ? 1.0 : 0.0};
      const uint64_t size[] = {place++ % step == 0 ? InputFile(subject.image).Glance() : SizeOf(subject.image)};
      hash.Update(std::as_bytes(std::span(outcome)));
      hash.Update(std::as_bytes(std::span(subject.features)));
      hash.Update(std::as_bytes(std::span(size)));
    }
  }
  return HexDigest(hash.Digest());
} catch (const RefusedPathError& error) {
  throw DataError(error.what());
}

void Cohort::FailImage(const Subject& subject, const std::string& problem) const {
  csv_.Fail(subject.row, image_, problem);
}

std::map<std::string, double> ReadTruth(const fs::path& table) {
  const fs::path file = table.parent_path() / "truth.csv";
  std::map<std::string, double> truth;
  try {
    if (!fs::exists(LookAt(file))) return truth;
  } catch (const RefusedPathError& error) {
    throw DataError(error.what());
  }
  const Csv csv = Csv::Read(file);
  const size_t name = csv.Column("case_num"), risk = csv.Column("log_risk");
  for (int64_t row = 0; row < csv.rows(); ++row) truth[std::string(csv.Word(row, name))] = csv.Number(row, risk);
  return truth;
}

}  // namespace trainyard::mace
