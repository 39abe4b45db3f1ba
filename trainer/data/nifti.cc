#include "trainer/data/nifti.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "trainer/base/error.h"
#include "trainer/base/file.h"
#include "trainer/base/text.h"
#include "trainer/data/gzip.h"

namespace trainyard {
namespace {

constexpr size_t kHeader = 348, kFirstVoxel = 352;
// Offsets of nifti1.h's struct nifti_1_header.
constexpr size_t kDim = 40, kDatatype = 70, kBitpix = 72, kPixdim = 76, kVoxOffset = 108, kSlope = 112, kUnits = 123,
                 kQformCode = 252, kSformCode = 254, kQuatern = 256, kQoffset = 268, kSrow = 280, kMagicAt = 344;

[[noreturn]] void FailNifti(const fs::path& path, size_t offset, const std::string& problem) {
  throw DataError(path.string() + ": offset " + std::to_string(offset) + ": " + problem);
}

template <class T>
T Swapped(T value) {
  auto bytes = std::bit_cast<std::array<std::byte, sizeof(T)>>(value);
  std::ranges::reverse(bytes);
  return std::bit_cast<T>(bytes);
}

template <class T>
T Load(const std::byte* from, bool swap) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return swap ? Swapped(value) : value;
}

struct Header {
  std::array<std::byte, kHeader> bytes{};
  bool swap = false;

  template <class T>
  T Get(size_t offset) const {
    return Load<T>(bytes.data() + offset, swap);
  }
};

// The known types, and those that are no numbers of ours, for the message.
struct TypeInfo {
  int16_t code;
  size_t size;  // 0: not read
  const char* name;
};
constexpr TypeInfo kTypes[] = {
    {2, 1, "uint8"},         {4, 2, "int16"},      {8, 4, "int32"},    {16, 4, "float32"},    {64, 8, "float64"},
    {256, 1, "int8"},        {512, 2, "uint16"},   {768, 4, "uint32"}, {1024, 8, "int64"},    {1280, 8, "uint64"},
    {1, 0, "binary"},        {32, 0, "complex64"}, {128, 0, "RGB24"},  {1536, 0, "float128"}, {1792, 0, "complex128"},
    {2048, 0, "complex256"}, {2304, 0, "RGBA32"}};

const TypeInfo& TypeOf(const fs::path& path, const Header& header) {
  const auto code = header.Get<int16_t>(kDatatype);
  for (const TypeInfo& type : kTypes) {
    if (type.code != code) continue;
    if (type.size == 0)
      FailNifti(path, kDatatype,
                Format("voxels of type %s are not read; expected integers or real numbers", type.name));
    return type;
  }
  FailNifti(path, kDatatype, Format("%d is no type of voxels", code));
}

void CheckHeader(const fs::path& path, Header& header, size_t size) {
  if (size < kHeader) FailNifti(path, size, Format("truncated: a header has %zu bytes", kHeader));
  const auto native = header.Get<int32_t>(0);
  header.swap = Swapped(native) == static_cast<int32_t>(kHeader);
  if (native == 540 || Swapped(native) == 540) FailNifti(path, 0, "NIfTI-2 is not read; expected NIfTI-1");
  if (native != static_cast<int32_t>(kHeader) && !header.swap)
    FailNifti(path, 0, Format("not a NIfTI-1 file: it begins with %d; expected %zu", native, kHeader));
  const char* magic = reinterpret_cast<const char*>(header.bytes.data()) + kMagicAt;
  if (std::memcmp(magic, "ni1", 4) == 0)
    FailNifti(path, kMagicAt, "the voxels are in another file (.hdr and .img); expected one file, .nii or .nii.gz");
  if (std::memcmp(magic, "n+1", 4) != 0) FailNifti(path, kMagicAt, "not a NIfTI-1 file: its magic is not n+1");
}

// (X, Y, Z) or (X, Y, Z, T).
std::vector<int64_t> ShapeOf(const fs::path& path, const Header& header) {
  const auto dims = header.Get<int16_t>(kDim);
  if (dims < 1 || dims > 7) FailNifti(path, kDim, Format("%d dimensions; expected 1 to 7", dims));
  std::vector<int64_t> shape(3, 1);
  for (int d = 1; d <= dims; ++d) {
    const size_t at = kDim + 2 * static_cast<size_t>(d);
    const auto extent = header.Get<int16_t>(at);
    if (extent < 0) FailNifti(path, at, Format("dimension %d has %d voxels", d, extent));
    if (extent == 0) FailNifti(path, at, Format("an empty volume: dimension %d has no voxels", d));
    if (d > 4 && extent > 1)
      FailNifti(path, at, Format("dimension %d has %d voxels; expected at most four dimensions", d, extent));
    if (d <= 3) shape[static_cast<size_t>(d) - 1] = extent;
    if (d == 4 && extent > 1) shape.push_back(extent);
  }
  return shape;
}

size_t FirstVoxel(const fs::path& path, const Header& header) {
  const auto offset = header.Get<float>(kVoxOffset);
  if (offset == 0) return kFirstVoxel;
  if (!(offset >= static_cast<float>(kFirstVoxel) && offset <= 0x1p24f) || offset != std::floor(offset))
    FailNifti(path, kVoxOffset,
              Format("the voxels begin at %g; expected a whole number of at least %zu", offset, kFirstVoxel));
  return static_cast<size_t>(offset);
}

struct Scaling {
  double slope = 1, intercept = 0;
  bool none() const { return slope == 1 && intercept == 0; }
};

Scaling ScalingOf(const fs::path& path, const Header& header) {
  const auto slope = header.Get<float>(kSlope), intercept = header.Get<float>(kSlope + 4);
  if (slope == 0 || !std::isfinite(slope)) return {};
  if (!std::isfinite(intercept))
    FailNifti(path, kSlope + 4, Format("scl_slope is %g, and scl_inter is %g", slope, intercept));
  return {slope, intercept};
}

// nibabel's, where a header says nonsense: a size of 0 is 1, a negative one its magnitude.
std::array<double, 3> SpacingOf(const Header& header) {
  std::array<double, 3> spacing;
  for (size_t d = 0; d < 3; ++d) {
    const double size = std::fabs(static_cast<double>(header.Get<float>(kPixdim + 4 * (d + 1))));
    spacing[d] = size == 0 ? 1 : size;
  }
  return spacing;
}

// Method 2 of nifti1.h.
Affine FromQuaternion(const fs::path& path, const Header& header, std::array<double, 3> spacing) {
  const double b = header.Get<float>(kQuatern), c = header.Get<float>(kQuatern + 4),
               d = header.Get<float>(kQuatern + 8);
  const double left = 1 - (b * b + c * c + d * d);
  if (!(left > -3 * static_cast<double>(std::numeric_limits<float>::epsilon())))
    FailNifti(path, kQuatern, Format("the quaternion (%g, %g, %g) is no rotation", b, c, d));
  const double a = std::sqrt(std::max(0.0, left));
  const double s = 2 / (a * a + b * b + c * c + d * d);
  if (header.Get<float>(kPixdim) == -1) spacing[2] = -spacing[2];
  const double rotation[3][3] = {{1 - s * (c * c + d * d), s * (b * c - a * d), s * (b * d + a * c)},
                                 {s * (b * c + a * d), 1 - s * (b * b + d * d), s * (c * d - a * b)},
                                 {s * (b * d - a * c), s * (c * d + a * b), 1 - s * (b * b + c * c)}};
  Affine affine = kIdentityAffine;
  for (size_t row = 0; row < 3; ++row) {
    for (size_t column = 0; column < 3; ++column) affine[4 * row + column] = rotation[row][column] * spacing[column];
    affine[4 * row + 3] = header.Get<float>(kQoffset + 4 * row);
  }
  return affine;
}

bool HasForm(const Header& header, size_t code_at) {
  const auto code = header.Get<int16_t>(code_at);
  return code >= 1 && code <= 5;
}

Affine AffineOf(const fs::path& path, const Header& header, const std::vector<int64_t>& shape) {
  const auto spacing = SpacingOf(header);
  Affine affine = kIdentityAffine;
  if (HasForm(header, kSformCode)) {
    for (size_t i = 0; i < 12; ++i) affine[i] = header.Get<float>(kSrow + 4 * i);
    return affine;
  }
  if (HasForm(header, kQformCode)) return FromQuaternion(path, header, spacing);
  for (size_t d = 0; d < 3; ++d) {
    const double step = d == 0 ? -spacing[d] : spacing[d];
    affine[5 * d] = step;
    affine[4 * d + 3] = -static_cast<double>(shape[d] - 1) / 2 * step;
  }
  return affine;
}

// What the affine is made of is not asked whether it says 0, which nibabel reads as 1.
std::array<double, 3> VoxelMm(const Header& header, const Affine& affine) {
  constexpr uint8_t kSpace = 7, kMetre = 1, kMicron = 3;
  const auto unit = static_cast<uint8_t>(header.bytes[kUnits]) & kSpace;
  const double mm = unit == kMetre ? 1000 : unit == kMicron ? 0.001 : 1;
  const bool sform = HasForm(header, kSformCode);
  std::array<double, 3> size;
  for (size_t d = 0; d < 3; ++d) {
    const double pixdim = std::fabs(static_cast<double>(header.Get<float>(kPixdim + 4 * (d + 1))));
    size[d] = mm * (sform ? std::hypot(std::hypot(affine[d], affine[4 + d]), affine[8 + d]) : pixdim);
  }
  return size;
}

// How a file's voxels lie, the first dimension contiguous, and how ours do.
struct Layout {
  size_t x, y, z, t;
  explicit Layout(const std::vector<int64_t>& shape)
      : x(static_cast<size_t>(shape[0])),
        y(static_cast<size_t>(shape[1])),
        z(static_cast<size_t>(shape[2])),
        t(shape.size() > 3 ? static_cast<size_t>(shape[3]) : 1) {}
  size_t file(size_t i, size_t j, size_t k, size_t l) const { return ((l * z + k) * y + j) * x + i; }
  size_t ours(size_t i, size_t j, size_t k, size_t l) const { return ((i * y + j) * z + k) * t + l; }
};

// Calls copy(ours, file, step): of rows of voxels along z. Tiles of 32 x 32 stay in the first cache, where neither
// order would.
template <class Copy>
void ForTiles(const Layout& at, const Copy& copy) {
  constexpr size_t kTile = 32;
  for (size_t l = 0; l < at.t; ++l) {
    for (size_t k0 = 0; k0 < at.z; k0 += kTile) {
      const size_t count = std::min(kTile, at.z - k0);
      for (size_t j = 0; j < at.y; ++j) {
        for (size_t i0 = 0; i0 < at.x; i0 += kTile) {
          const size_t last = std::min(i0 + kTile, at.x);
          for (size_t i = i0; i < last; ++i) copy(at.ours(i, j, k0, l), at.file(i, j, k0, l), count);
        }
      }
    }
  }
}

template <class T, bool kSwap>
void ConvertVoxels(const std::byte* from, const Layout& at, const Scaling& scaling, float* to) {
  const size_t plane = at.x * at.y;
  const bool scaled = !scaling.none();
  ForTiles(at, [&](size_t ours, size_t file, size_t count) {
    for (size_t k = 0; k < count; ++k) {
      const T raw = Load<T>(from + (file + k * plane) * sizeof(T), kSwap);
      // In double, then rounded once: what nibabel's get_fdata() gives, as float32.
      auto value = static_cast<double>(raw);
      if (scaled) value = value * scaling.slope + scaling.intercept;
      to[ours + k * at.t] = static_cast<float>(value);
    }
  });
}

template <class T>
void Convert(bool swap, const std::byte* from, const Layout& at, const Scaling& scaling, float* to) {
  swap ? ConvertVoxels<T, true>(from, at, scaling, to) : ConvertVoxels<T, false>(from, at, scaling, to);
}

void ConvertAny(NiftiType type, bool swap, const std::byte* from, const Layout& at, const Scaling& s, float* to) {
  switch (type) {
    case NiftiType::kUint8:
      return Convert<uint8_t>(swap, from, at, s, to);
    case NiftiType::kInt8:
      return Convert<int8_t>(swap, from, at, s, to);
    case NiftiType::kInt16:
      return Convert<int16_t>(swap, from, at, s, to);
    case NiftiType::kUint16:
      return Convert<uint16_t>(swap, from, at, s, to);
    case NiftiType::kInt32:
      return Convert<int32_t>(swap, from, at, s, to);
    case NiftiType::kUint32:
      return Convert<uint32_t>(swap, from, at, s, to);
    case NiftiType::kInt64:
      return Convert<int64_t>(swap, from, at, s, to);
    case NiftiType::kUint64:
      return Convert<uint64_t>(swap, from, at, s, to);
    case NiftiType::kFloat32:
      return Convert<float>(swap, from, at, s, to);
    case NiftiType::kFloat64:
      return Convert<double>(swap, from, at, s, to);
  }
}

void RequireBelow(const fs::path& path, uint64_t count, size_t voxel, const char* as, const NiftiLimits& limits) {
  if (count > limits.bytes / voxel)
    FailNifti(path, kDim,
              "its voxels take " + HumanBytes(static_cast<double>(count) * static_cast<double>(voxel)) + as +
                  "; expected at most " + HumanBytes(static_cast<double>(limits.bytes)));
}

uint64_t CountOf(const fs::path& path, const std::vector<int64_t>& shape, size_t voxel, const NiftiLimits& limits) {
  uint64_t count = 1;
  for (int64_t extent : shape) count *= static_cast<uint64_t>(extent);  // four of 15 bits
  RequireBelow(path, count, voxel, "", limits);
  return count;
}

template <class T>
void Put(std::string& bytes, size_t offset, T value) {
  std::memcpy(bytes.data() + offset, &value, sizeof(T));
}

std::string HeaderFor(const NiftiImage& image, size_t voxel) {
  std::string bytes(kFirstVoxel, '\0');
  Put<int32_t>(bytes, 0, kHeader);
  Put<int16_t>(bytes, kDim, static_cast<int16_t>(image.volume.shape.size()));
  for (size_t d = 0; d < 7; ++d)
    Put<int16_t>(bytes, kDim + 2 + 2 * d,
                 d < image.volume.shape.size() ? static_cast<int16_t>(image.volume.shape[d]) : 1);
  Put<int16_t>(bytes, kDatatype, static_cast<int16_t>(image.type));
  Put<int16_t>(bytes, kBitpix, static_cast<int16_t>(8 * voxel));
  Put<float>(bytes, kPixdim, 1);
  for (size_t d = 0; d < 7; ++d) {
    const auto column = [&](size_t row) { return image.affine[4 * row + d]; };
    const double size = d < 3 ? std::hypot(column(0), column(1), column(2)) : 1;
    Put<float>(bytes, kPixdim + 4 + 4 * d, static_cast<float>(size));
  }
  Put<float>(bytes, kVoxOffset, kFirstVoxel);
  Put<float>(bytes, kSlope, 1);
  bytes[kUnits] = 2;                   // NIFTI_UNITS_MM
  Put<int16_t>(bytes, kSformCode, 1);  // NIFTI_XFORM_SCANNER_ANAT
  for (size_t i = 0; i < 12; ++i) Put<float>(bytes, kSrow + 4 * i, static_cast<float>(image.affine[i]));
  std::memcpy(bytes.data() + kMagicAt, "n+1", 4);
  return bytes;
}

int16_t ToInt16(float value) {
  const float rounded = std::nearbyint(value);
  if (!(rounded >= -32768.f && rounded <= 32767.f))
    throw std::invalid_argument(Format("%g is no voxel of int16", static_cast<double>(value)));
  return static_cast<int16_t>(rounded);
}

static_assert(std::endian::native == std::endian::little, "WriteNifti writes what memory holds");

}  // namespace

NiftiImage ReadNifti(const fs::path& path, StageTimes* times, const NiftiLimits& limits) {
  std::vector<std::byte> content;
  {
    const StageTimer timer(times ? &times->read : nullptr);
    content = ReadDataFile(path, limits.bytes + (uint64_t{1} << 24));
  }
  const StageTimer timer(times ? &times->decode : nullptr);
  const bool gzipped = IsGzip(content);
  Header header;
  size_t got = std::min(content.size(), kHeader);
  if (gzipped) {
    got = InflateStart(path, content, header.bytes);
  } else {
    std::memcpy(header.bytes.data(), content.data(), got);
  }
  CheckHeader(path, header, got);
  const TypeInfo& type = TypeOf(path, header);
  const Scaling scaling = ScalingOf(path, header);
  const size_t begin = FirstVoxel(path, header);
  NiftiImage image;
  image.type = static_cast<NiftiType>(type.code);
  image.volume.shape = ShapeOf(path, header);
  image.spacing = SpacingOf(header);
  image.affine = AffineOf(path, header, image.volume.shape);
  image.voxel_mm = VoxelMm(header, image.affine);
  const uint64_t count = CountOf(path, image.volume.shape, type.size, limits), end = begin + count * type.size;
  const uint64_t most = gzipped ? MostInflated(content.size()) : content.size();
  if (most < end)
    FailNifti(path, content.size(),
              Format("truncated: its %s voxels end at byte %llu%s", type.name, static_cast<unsigned long long>(end),
                     gzipped ? ", and so few bytes cannot be decompressed to that" : ""));
  RequireBelow(path, count, sizeof(float), " as float32", limits);
  if (gzipped) {
    std::vector<std::byte> whole(end);
    Inflate(path, content, whole);
    content = std::move(whole);
  }
  image.volume.values.resize(count);
  ConvertAny(image.type, header.swap, content.data() + begin, Layout(image.volume.shape), scaling,
             image.volume.values.data());
  return image;
}

void WriteNifti(const fs::path& path, const NiftiImage& image) {
  const bool whole = image.type == NiftiType::kInt16;
  if (!whole && image.type != NiftiType::kFloat32)
    throw std::invalid_argument("voxels of int16 or float32 are written");
  std::vector<int64_t> shape = image.volume.shape;
  const bool dims = !shape.empty() && shape.size() <= 4 &&
                    std::ranges::all_of(shape, [](int64_t extent) { return extent >= 1 && extent <= 32767; });
  int64_t count = 1;
  for (int64_t extent : shape) count *= extent;
  if (!dims || count != image.volume.size())
    throw std::invalid_argument(path.string() + ": not a shape that NIfTI-1 has");
  shape.resize(std::max<size_t>(3, shape.size()), 1);
  const size_t voxel = whole ? 2 : 4;
  std::string bytes = HeaderFor(image, voxel);
  bytes.resize(kFirstVoxel + static_cast<size_t>(count) * voxel);
  const Layout at(shape);
  const size_t plane = at.x * at.y;
  ForTiles(at, [&](size_t ours, size_t file, size_t rows) {
    for (size_t k = 0; k < rows; ++k) {
      const float value = image.volume.values[ours + k * at.t];
      const size_t to = kFirstVoxel + (file + k * plane) * voxel;
      whole ? Put<int16_t>(bytes, to, ToInt16(value)) : Put<float>(bytes, to, value);
    }
  });
  WriteFileAtomic(path, path.extension() == ".gz" ? Gzip(bytes) : bytes);
}

}  // namespace trainyard
