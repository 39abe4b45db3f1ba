#include "trainer/data/hdf5_file.h"

#include <fcntl.h>
#include <hdf5.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "trainer/base/error.h"
#include "trainer/base/file.h"
#include "trainer/base/input_file.h"

namespace trainyard {
namespace {

// Closes an HDF5 identifier at the end of a scope.
class Handle {
 public:
  Handle(hid_t id, herr_t (*close)(hid_t)) : id_(id), close_(close) {}
  ~Handle() {
    if (id_ >= 0) close_(id_);
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  hid_t get() const { return id_; }
  bool ok() const { return id_ >= 0; }

 private:
  hid_t id_;
  herr_t (*close_)(hid_t);
};

// The library prints its error stack by default; errors are reported by exceptions here. It also follows links to
// whatever file they name, a pipe that nobody writes as well; without the class of such links it cannot.
void PrepareLibrary() {
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  H5Lunregister(H5L_TYPE_EXTERNAL);
}

// More values than the data set can hold: what deflate packs best shrinks to a thousandth, and a chunk that was never
// written takes nothing, so that a shape alone could ask for all memory.
size_t MostValues(hid_t set, hid_t type) {
  constexpr size_t kNeverWritten = size_t{1} << 24;
  return H5Dget_storage_size(set) / std::max<size_t>(1, H5Tget_size(type)) * 1032 + kNeverWritten;
}

hid_t MakeBoolType() {
  const hid_t type = H5Tenum_create(H5T_NATIVE_INT8);
  int8_t value = 0;
  H5Tenum_insert(type, "FALSE", &value);
  value = 1;
  H5Tenum_insert(type, "TRUE", &value);
  return type;
}

// The library does not say whether a file is bad or a file system gave no answer: throws StorageError where it cannot
// be read to its end.
void RequireReadable(const fs::path& path) { InputFile(path).Checksum(); }

}  // namespace

Hdf5File Hdf5File::Open(const std::filesystem::path& path) {
  PrepareLibrary();
  const fs::file_status there = LookAt(path);
  if (!fs::exists(there)) throw DataError(path.string() + ": no such file");
  if (!fs::is_regular_file(there)) throw DataError(path.string() + ": not a file");
  const hid_t id = H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
  if (id < 0) {
    RequireReadable(path);
    throw DataError(path.string() + ": not an HDF5 file, or truncated (" +
                    std::to_string(std::filesystem::file_size(path)) + " bytes)");
  }
  return Hdf5File(path, id, false);
}

Hdf5File Hdf5File::Create(const std::filesystem::path& path) {
  PrepareLibrary();
  const hid_t id = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  if (id < 0) throw StorageError("cannot create " + path.string());
  return Hdf5File(path, id, true);
}

Hdf5File::Hdf5File(Hdf5File&& other) noexcept
    : path_(std::move(other.path_)), id_(std::exchange(other.id_, -1)), writing_(other.writing_) {}

Hdf5File::~Hdf5File() {
  if (id_ >= 0) H5Fclose(id_);
}

void Hdf5File::Fail(const std::string& name, const std::string& problem) const {
  const std::string message = path_.string() + ": " + name + ": " + problem;
  if (writing_) throw StorageError(message);
  RequireReadable(path_);
  throw DataError(message);
}

bool Hdf5File::Has(const std::string& name) const {
  const std::string parent = name.substr(0, name.rfind('/'));
  const auto exists = [&](const std::string& link) {
    const htri_t there = H5Lexists(id_, link.c_str(), H5P_DEFAULT);
    if (there < 0) Fail(link, "cannot be looked for (truncated?)");
    return there > 0;
  };
  return (parent.size() == name.size() || exists(parent)) && exists(name);
}

IntArray Hdf5File::Read(const std::string& name) const {
  if (!Has(name)) Fail(name, "no such data set");
  const Handle set(H5Dopen2(id_, name.c_str(), H5P_DEFAULT), H5Dclose);
  if (!set.ok()) Fail(name, "not a data set");
  const Handle made(H5Dget_create_plist(set.get()), H5Pclose);
  if (H5Pget_external_count(made.get()) > 0 || H5Pget_layout(made.get()) == H5D_VIRTUAL)
    Fail(name, "its values lie in other files, and only " + path_.filename().string() + " is read");
  const Handle type(H5Dget_type(set.get()), H5Tclose);
  const H5T_class_t kind = H5Tget_class(type.get());
  if (kind != H5T_INTEGER && kind != H5T_ENUM) Fail(name, "not of an integer type");
  const Handle space(H5Dget_space(set.get()), H5Sclose);
  const int rank = H5Sget_simple_extent_ndims(space.get());
  if (rank < 0) Fail(name, "has no shape");
  std::vector<hsize_t> dims(static_cast<size_t>(rank));
  const size_t limit = MostValues(set.get(), type.get());
  H5Sget_simple_extent_dims(space.get(), dims.data(), nullptr);
  IntArray array;
  size_t count = 1;
  for (hsize_t dim : dims) {
    array.shape.push_back(static_cast<int64_t>(dim));
    if (dim != 0 && count > limit / dim) Fail(name, "its shape exceeds the file");
    count *= dim;
  }
  array.values.resize(count);
  if (kind == H5T_INTEGER) {
    if (H5Dread(set.get(), H5T_NATIVE_INT32, H5S_ALL, H5S_ALL, H5P_DEFAULT, array.values.data()) < 0)
      Fail(name, "cannot be read (truncated?)");
    return array;
  }
  std::vector<int8_t> flags(count);
  const Handle boolean(MakeBoolType(), H5Tclose);
  if (H5Dread(set.get(), boolean.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, flags.data()) < 0)
    Fail(name, "cannot be read (truncated?)");
  array.values.assign(flags.begin(), flags.end());
  return array;
}

void Hdf5File::Write(const std::string& name, std::span<const int64_t> shape, std::span<const int32_t> values,
                     bool as_bool) {
  const std::vector<hsize_t> dims(shape.begin(), shape.end());
  const Handle space(H5Screate_simple(static_cast<int>(dims.size()), dims.data(), nullptr), H5Sclose);
  const Handle links(H5Pcreate(H5P_LINK_CREATE), H5Pclose);
  H5Pset_create_intermediate_group(links.get(), 1);
  const Handle boolean(MakeBoolType(), H5Tclose);
  const hid_t type = as_bool ? boolean.get() : H5T_STD_I32LE;
  const Handle made(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
  H5Pset_obj_track_times(made.get(), 0);  // the same values are the same bytes
  const Handle set(H5Dcreate2(id_, name.c_str(), type, space.get(), links.get(), made.get(), H5P_DEFAULT), H5Dclose);
  if (!set.ok()) Fail(name, "cannot be created");
  herr_t result = 0;
  if (as_bool) {
    const std::vector<int8_t> flags(values.begin(), values.end());
    result = H5Dwrite(set.get(), boolean.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, flags.data());
  } else {
    result = H5Dwrite(set.get(), H5T_NATIVE_INT32, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data());
  }
  if (result < 0) Fail(name, "cannot be written");
}

void Hdf5File::Close() {
  if (H5Fflush(id_, H5F_SCOPE_GLOBAL) < 0) Fail("/", "cannot be flushed");
  if (H5Fclose(std::exchange(id_, -1)) < 0) Fail("/", "cannot be closed");
  const int fd = writing_ ? open(path_.c_str(), O_RDONLY | O_CLOEXEC) : -1;
  if (!writing_) return;
  const bool synced = fd >= 0 && fsync(fd) == 0;
  const int error = errno;
  if (fd >= 0) close(fd);
  if (!synced) Fail("/", std::string("cannot be made durable: ") + std::strerror(error));
}

}  // namespace trainyard
