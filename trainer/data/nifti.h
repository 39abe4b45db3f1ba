// NIfTI-1 in one file, .nii or .nii.gz (NIfTI-1 Data Format, nifti1.h of the NIMH, 2007).
#ifndef TRAINYARD_TRAINER_DATA_NIFTI_H_
#define TRAINYARD_TRAINER_DATA_NIFTI_H_

#include <array>
#include <filesystem>

#include "trainer/data/stage_times.h"
#include "trainer/data/volume.h"

namespace trainyard {

// Row-major 4 x 4: voxel indices (i, j, k, 1) to the file's units.
using Affine = std::array<double, 16>;
constexpr Affine kIdentityAffine = {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1};

enum class NiftiType : int16_t {
  kUint8 = 2,
  kInt16 = 4,
  kInt32 = 8,
  kFloat32 = 16,
  kFloat64 = 64,
  kInt8 = 256,
  kUint16 = 512,
  kUint32 = 768,
  kInt64 = 1024,
  kUint64 = 1280
};

struct NiftiImage {
  // (X, Y, Z), or (X, Y, Z, T) where T is above 1; scaled by slope and intercept in double precision, then rounded.
  Volume volume;
  // What nibabel gives: sform where there is one, else qform, else the voxel sizes with x flipped and the origin in the
  // middle.
  Affine affine = kIdentityAffine;
  std::array<double, 3> spacing = {1, 1, 1};  // nibabel's, of pixdim in the file's units; writing takes the affine's
  // Of the voxels, in millimetres: the lengths of the affine's columns, or pixdim where the file has no form; in the
  // units of xyzt_units, millimetres where it names none. 0: it does not say. Reading sets it.
  std::array<double, 3> voxel_mm = {0, 0, 0};
  NiftiType type = NiftiType::kFloat32;  // in the file
};

struct NiftiLimits {
  uint64_t bytes = uint64_t{2} << 30;  // of the voxels, in the file, decompressed, and as float32
};

// Numeric voxels of either byte order. A slope of 0, or one that is not finite, means none. Voxels that are not finite
// stay so: whoever has no use for them says so (RequireFinite, transform.h).
//
// Nothing is allocated that the file cannot fill: sizes are checked against it, or where it is gzipped against
// deflate's best, before. A gzipped one is proven by its checksum.
// Throws DataError naming file, offset and problem: truncated, NIfTI-2, a pair of files, a type that is no number (RGB,
// complex), no voxels, more than four dimensions, above `limits`.
// `times`, where given, gets what reading and decoding took. Safe for any number of threads.
NiftiImage ReadNifti(const std::filesystem::path& path, StageTimes* times = nullptr, const NiftiLimits& limits = {});

// Writes kInt16 (rounded to nearest even; without a slope) or kFloat32, gzipped where the name ends in .gz, in one
// step: nobody sees half of it. The affine becomes the sform. The same bytes for the same image.
// REQUIRES: a volume of one to four dimensions up to 32,767, whose values kInt16 can hold.
// Throws StorageError when it cannot be written, std::invalid_argument for what REQUIRES says.
void WriteNifti(const std::filesystem::path& path, const NiftiImage& image);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_DATA_NIFTI_H_
