// The table of subjects: who is in which fold, until when each was seen, where the volume is, and what else is known.
#ifndef TRAINYARD_TRAINER_TASK_MACE_SURVIVAL_COHORT_H_
#define TRAINYARD_TRAINER_TASK_MACE_SURVIVAL_COHORT_H_

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "trainer/base/input_file.h"
#include "trainer/data/csv.h"
#include "trainer/task/mace_survival/cox.h"

namespace trainyard::mace {

struct Subject {
  std::string name;  // its case_num; without that column the row's number, from 0
  std::filesystem::path image;
  Outcome outcome;              // days
  std::vector<float> features;  // as in the file; empty where nobody wants them
  int64_t row = 0;
};

struct CohortColumns {
  std::string image, fold;
  // How many columns are features; absent: they are not read.
  std::optional<int64_t> features;
};

// Training's mean and deviation of each feature (population's); 0 and 1 for a categorical one, which stays as it is:
// whole numbers up to 20, of at most five values, or of at most twenty that are fewer than one in fifty rows.
struct Scaling {
  std::vector<float> mean, deviation;
};

// Immutable: safe for any number of threads.
class Cohort {
 public:
  // `path`: a table (CSV, gzipped or not), or a folder with one named dataset.csv. Files of volumes are relative to the
  // table's folder. Throws DataError naming file, line and column: a column that is not there, a fold other than train
  // and val, a time that is no positive number, an event other than 0 and 1, a file that is not there, a feature that
  // is no number; another number of features than said; a name or a file in both folds; a fold without subjects, or
  // without a pair of them whose order is known, so that nothing could be learnt or measured. Warns of a file that is
  // twice in one fold.
  Cohort(const std::filesystem::path& path, const CohortColumns& columns);

  const std::vector<Subject>& train() const { return train_; }
  const std::vector<Subject>& val() const { return val_; }
  const std::vector<std::string>& feature_names() const { return feature_names_; }
  const std::filesystem::path& table() const { return table_; }
  // Fitted to the training fold, over all of the table's features. Throws DataError, naming it, for a feature of either
  // fold that is so many deviations from the mean that its square is none in float32.
  Scaling FitScaling() const;

  // Of the table and of every volume. Throws DataError.
  std::string fingerprint(const Tick& tick) const;
  // Of every subject's outcome and features and the size of its volume, wherever that lies. Throws DataError.
  std::string glance(const Tick& tick) const;

  // Throws DataError: what is wrong with a subject's volume, and in which line of which table it stands.
  [[noreturn]] void FailImage(const Subject& subject, const std::string& problem) const;

 private:
  void ReadFeatureColumns(const CohortColumns& columns);
  void ReadRow(int64_t row, const CohortColumns& columns);
  void RequireFoldsApart() const;
  void RequireNear(size_t feature, double mean, double deviation) const;
  void WarnOfRepeats(const char* fold, const std::vector<Subject>& subjects) const;

  std::filesystem::path table_;
  Csv csv_;
  size_t image_, fold_, time_, event_;
  std::optional<size_t> name_;
  std::vector<size_t> feature_columns_;
  std::vector<std::string> feature_names_;
  std::vector<Subject> train_, val_;
};

std::vector<Outcome> OutcomesOf(const std::vector<Subject>& subjects);

// The generator's log-risk of each subject, from truth.csv beside the table; empty when there is none. Throws DataError
// for one that cannot be read.
std::map<std::string, double> ReadTruth(const std::filesystem::path& table);

}  // namespace trainyard::mace

#endif  // TRAINYARD_TRAINER_TASK_MACE_SURVIVAL_COHORT_H_
