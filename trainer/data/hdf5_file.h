// HDF5 through the reference library, cut to what histories need: integer data sets in groups.
#ifndef TRAINYARD_TRAINER_DATA_HDF5_FILE_H_
#define TRAINYARD_TRAINER_DATA_HDF5_FILE_H_

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "trainer/data/array.h"

namespace trainyard {

// One open file. Not for concurrent use; neither are two files at once (the library's limit).
// Every error is a DataError (reading) or StorageError (writing) that names file and data set.
class Hdf5File {
 public:
  static Hdf5File Open(const std::filesystem::path& path);
  static Hdf5File Create(const std::filesystem::path& path);
  Hdf5File(Hdf5File&& other) noexcept;
  ~Hdf5File();

  bool Has(const std::string& name) const;
  // Any integer or boolean type is converted to int32.
  IntArray Read(const std::string& name) const;
  // Writes int32, or with `as_bool` what h5py writes for numpy's bool (an enumeration over int8).
  // Missing groups are made.
  void Write(const std::string& name, std::span<const int64_t> shape, std::span<const int32_t> values,
             bool as_bool = false);
  // Closes the file, and makes what was written durable.
  void Close();

 private:
  Hdf5File(std::filesystem::path path, int64_t id, bool writing) : path_(std::move(path)), id_(id), writing_(writing) {}
  [[noreturn]] void Fail(const std::string& name, const std::string& problem) const;

  std::filesystem::path path_;
  int64_t id_;
  bool writing_;
};

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_DATA_HDF5_FILE_H_
