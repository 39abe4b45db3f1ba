#include "trainer/task/mace_survival/cohort.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "trainer/base/error.h"
#include "trainer/base/file.h"

namespace trainyard::mace {
namespace {

class CohortTest : public testing::Test {
 protected:
  CohortTest() : directory_(fs::path(testing::TempDir()) / ("cohort-" + std::to_string(getpid()))) {
    fs::create_directories(directory_);
    for (const char* name : {"a.nii", "b.nii", "c.nii", "d.nii"}) WriteFileAtomic(directory_ / name, "");
  }
  ~CohortTest() override { fs::remove_all(directory_); }

  Cohort Read(const std::string& header, const std::string& rows) {
    WriteFileAtomic(directory_ / "dataset.csv", header + "\n" + rows);
    return Cohort(directory_, {.image = "NIFTI Path", .fold = "Fold_1", .features = {}});
  }
  std::string Refusal(const std::string& header, const std::string& rows) {
    try {
      Read(header, rows);
      return "";
    } catch (const DataError& error) {
      const std::string what = error.what(), table = (directory_ / "dataset.csv").string() + ": ";
      return what.starts_with(table) ? what.substr(table.size()) : what;
    }
  }

  fs::path directory_;
};

const std::string kNamed = "case_num,NIFTI Path,time,event,Fold_1", kUnnamed = "NIFTI Path,time,event,Fold_1";

TEST_F(CohortTest, ASubjectOfBothFoldsIsRefused) {
  EXPECT_EQ(Refusal(kNamed, "1,a.nii,1,1,train\n2,c.nii,1,1,val\n1,b.nii,2,0,train\n3,d.nii,2,0,val\n"), "")
      << "two volumes of one subject, in one fold";
  EXPECT_EQ(Refusal(kNamed, "1,a.nii,1,1,train\n2,c.nii,1,1,val\n3,b.nii,2,0,train\n\n3,d.nii,2,0,val\n"),
            "line 6: column case_num: \"3\" is of the fold val, and in line 4 of the fold train; expected each subject "
            "in one of them");
  EXPECT_NE(Refusal(kNamed, "1,a.nii,1,1,train\n2,c.nii,1,1,val\n3,b.nii,2,0,train\n3 ,d.nii,2,0,val\n"), "")
      << "a space is no other subject";
  EXPECT_EQ(Refusal(kNamed, ",a.nii,1,1,train\n,c.nii,1,1,val\n,b.nii,2,0,train\n,d.nii,2,0,val\n"), "")
      << "an empty name is nobody's";
  EXPECT_EQ(Refusal(kUnnamed, "a.nii,1,1,train\nc.nii,1,1,val\nb.nii,2,0,train\n./a.nii,2,0,val\n"),
            "line 5: column NIFTI Path: \"./a.nii\" is of the fold val, and in line 2 of the fold train; expected each "
            "subject in one of them");
}

TEST_F(CohortTest, AVolumeThatIsTwiceInAFoldIsSaid) {
  testing::internal::CaptureStderr();
  Read(kUnnamed, "a.nii,1,1,train\nc.nii,1,1,val\na.nii,2,0,train\nd.nii,2,0,val\na.nii,3,0,train\n");
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "warning: " + (directory_ / "dataset.csv").string() +
                ": fold train: 2 of 3 subjects have a volume that another has as well: lines 2 and 4 are of one file, "
                "a.nii\n");
}

}  // namespace
}  // namespace trainyard::mace
