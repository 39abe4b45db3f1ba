// The patients of a data set on disk: which files they have, who is in which part, and what the files say.
#ifndef TRAINYARD_TRAINER_TASK_HYBRID_VIT_CASCADE_PATIENTS_H_
#define TRAINYARD_TRAINER_TASK_HYBRID_VIT_CASCADE_PATIENTS_H_

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "trainer/base/input_file.h"
#include "trainer/data/volume.h"

namespace trainyard::hvc {

// A folder {id} with {id}.nii.gz or .nii, the X-ray from the front, {id}_pa_drr.png, _pa.png or _frontal.png, and the
// one from the side, {id}_lat_drr.png, _lat.png or _lateral.png.
struct PatientFiles {
  std::string id;
  std::filesystem::path volume, front, side;
};

// Every folder of `path`, in the order of their names. Throws DataError for a folder that lacks a file or has two
// volumes, naming it, and where there is no folder.
std::vector<PatientFiles> FindPatients(const std::filesystem::path& path);

// xxh3 of the names and contents of all their files. Throws DataError.
std::string FingerprintOf(const std::vector<PatientFiles>& patients, const Tick& tick);
// Of their names and the sizes of the files. Throws as FingerprintOf does.
std::string GlanceOf(const std::vector<PatientFiles>& patients, const Tick& tick);

// Indices of patients.
struct Split {
  std::vector<int64_t> train, val, test;
};

// A pure function of its arguments: at least one patient for validation. Throws DataError where none is left for
// training.
Split SplitPatients(int64_t patients, double val_fraction, double test_fraction, uint64_t seed);

struct Patient {
  Volume ct;                        // (D, H, W), HU
  std::array<double, 2> extent_mm;  // of the box, along D and along W
  Volume front, side;               // (height, width) of [0, 1]
};

// Throws DataError naming the file: what the readers refuse, a volume that is not of three dimensions of two voxels and
// more, is not finite or holds one value everywhere, an X-ray that is not grey.
Patient ReadPatient(const PatientFiles& files);

}  // namespace trainyard::hvc

#endif  // TRAINYARD_TRAINER_TASK_HYBRID_VIT_CASCADE_PATIENTS_H_
