#include "trainer/libraries.h"

#include <ATen/Version.h>
#include <gloo/config.h>
#include <hdf5.h>
#include <libdeflate.h>
#include <spng.h>
#include <torch/headeronly/version.h>
#include <xxhash.h>
#include <zlib.h>

#include "trainer/base/text.h"
#include "trainer/train/bits.h"

namespace trainyard {
namespace {

// "Intel(R) MKL-DNN v3.10.2 (Git Hash ...)" -> "3.10.2": the first number with a point in it.
std::string VersionIn(const std::string& words) {
  for (size_t at = words.find_first_of("0123456789"); at != std::string::npos;) {
    const size_t end = words.find_first_not_of("0123456789.", at);
    std::string number = words.substr(at, end - at);
    if (number.find('.') != std::string::npos) return number;
    at = words.find_first_of("0123456789", end);
  }
  return "none";
}

std::string LoadedXxhash() {
  const unsigned number = XXH_versionNumber();
  return Format("%u.%u.%u", number / 10000, number / 100 % 100, number % 100);
}

}  // namespace

std::vector<LibraryVersion> TrainerLibraries() {
  const std::string torch = LoadedTorch();
  std::vector<LibraryVersion> all = {
      {"LibTorch", TORCH_VERSION, torch},
      {"Gloo", Format("%d.%d.%d (headers)", GLOO_VERSION_MAJOR, GLOO_VERSION_MINOR, GLOO_VERSION_PATCH),
       "LibTorch " + torch + "'s own"},
      {"oneDNN", "none of its headers", "LibTorch's " + VersionIn(at::get_mkldnn_version())},
      {"MKL", "none of its headers", "LibTorch's " + VersionIn(at::get_mkl_version())},
      {"HDF5", Format("%d.%d.%d", H5_VERS_MAJOR, H5_VERS_MINOR, H5_VERS_RELEASE), ""},  // cmake/Hdf5.cmake
      {"libaec", TRAINYARD_LIBAEC, ""},
      {"libdeflate", LIBDEFLATE_VERSION_STRING, ""},  // cmake/Images.cmake
      {"libspng", Format("%d.%d.%d", SPNG_VERSION_MAJOR, SPNG_VERSION_MINOR, SPNG_VERSION_PATCH),
       spng_version_string()},
      {"xxHash", Format("%d.%d.%d", XXH_VERSION_MAJOR, XXH_VERSION_MINOR, XXH_VERSION_RELEASE), LoadedXxhash()},
      {"zlib", ZLIB_VERSION, zlibVersion()}};
  for (LibraryVersion& library : CommonLibraries()) all.push_back(std::move(library));
  return all;
}

}  // namespace trainyard
