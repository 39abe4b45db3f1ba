#include "trainer/task/algorithm_distillation/histories.h"

#include <algorithm>
#include <array>
#include <functional>

#include "trainer/base/error.h"
#include "trainer/base/file.h"
#include "trainer/base/hash.h"
#include "trainer/base/text.h"
#include "trainer/data/hdf5_file.h"
#include "trainer/data/npy.h"
#include "trainer/task/algorithm_distillation/dark_room.h"

namespace trainyard::ad {
namespace {

// The arrays of one task, each (transitions, streams[, 2]) as in the original's files.
struct ArrayField {
  const char* name;
  int width;  // values per step
  int limit;  // values lie in [0, limit)
  bool is_bool, needed;
  uint8_t Transition::*members[2];
};
constexpr std::array<ArrayField, 6> kFields = {{
    {"states", 2, kGridSize, false, true, {&Transition::row, &Transition::column}},
    {"actions", 1, kNumActions, false, true, {&Transition::action, nullptr}},
    {"rewards", 1, 2, false, true, {&Transition::reward, nullptr}},
    {"next_states", 2, kGridSize, false, true, {&Transition::next_row, &Transition::next_column}},
    {"dones", 1, 2, true, true, {&Transition::done, nullptr}},
    {"compress_markers", 1, 3, false, false, {&Transition::marker, nullptr}},
}};

IntArray Gather(const Histories& histories, int64_t task, const ArrayField& field) {
  IntArray array;
  array.shape = {histories.length(), histories.streams()};
  if (field.width == 2) array.shape.push_back(2);
  for (int64_t t = 0; t < histories.length(); ++t) {
    for (int64_t s = 0; s < histories.streams(); ++s) {
      const Transition& step = histories.at(task, s)[static_cast<size_t>(t)];
      for (int w = 0; w < field.width; ++w) array.values.push_back(step.*field.members[w]);
    }
  }
  return array;
}

void Scatter(const IntArray& array, const ArrayField& field, const std::string& where, int64_t task,
             Histories& histories) {
  const int64_t streams = histories.streams();
  for (int64_t t = 0; t < histories.length(); ++t) {
    for (int64_t s = 0; s < streams; ++s) {
      Transition& step = histories.at(task, s)[static_cast<size_t>(t)];
      for (int w = 0; w < field.width; ++w) {
        const int64_t index = (t * streams + s) * field.width + w;
        const int32_t value = array.values[static_cast<size_t>(index)];
        if (value < 0 || value >= field.limit) {
          throw DataError(Format("%s: step %lld of stream %lld is %d, outside [0, %d)", where.c_str(),
                                 static_cast<long long>(t), static_cast<long long>(s), value, field.limit));
        }
        step.*field.members[w] = static_cast<uint8_t>(value);
      }
    }
  }
}

void RequireShape(const IntArray& array, const ArrayField& field, const std::string& where, int64_t length,
                  int64_t streams) {
  std::vector<int64_t> expected = {length, streams};
  if (field.width == 2) expected.push_back(2);
  if (array.shape == expected) return;
  auto text = [](const std::vector<int64_t>& shape) {
    std::vector<std::string> dims;
    for (int64_t d : shape) dims.push_back(std::to_string(d));
    return "(" + Join(dims) + ")";
  };
  throw DataError(where + ": shape " + text(array.shape) + ", expected " + text(expected));
}

// Reads task by task through `read(task, array name)`, which returns nothing for an absent optional array.
using ReadArray = std::function<IntArray(int64_t task, const ArrayField& field)>;
using HasArray = std::function<bool(int64_t task, const ArrayField& field)>;
using NameArray = std::function<std::string(int64_t task, const ArrayField& field)>;

// `most`: transitions of all tasks that there can be.
Histories Read(int64_t num_tasks, int64_t max_transitions, uint64_t most, const ReadArray& read, const HasArray& has,
               const NameArray& name) {
  const IntArray first = read(0, kFields[1]);
  if (first.shape.size() != 2 || first.shape[0] < 2 || first.shape[1] < 1) {
    throw DataError(name(0, kFields[1]) + ": expected the shape (transitions, streams)");
  }
  const int64_t length = first.shape[0], streams = first.shape[1];
  if (static_cast<uint64_t>(length) > most / static_cast<uint64_t>(streams) / static_cast<uint64_t>(num_tasks))
    throw DataError(name(0, kFields[1]) +
                    Format(": %lld transitions of %lld streams for each of %lld tasks are more than "
                           "the file holds",
                           static_cast<long long>(length), static_cast<long long>(streams),
                           static_cast<long long>(num_tasks)));
  Histories histories(num_tasks, streams, std::min(length, max_transitions));
  for (int64_t task = 0; task < num_tasks; ++task) {
    for (const ArrayField& field : kFields) {
      if (!field.needed && !has(task, field)) continue;
      const IntArray array = read(task, field);
      RequireShape(array, field, name(task, field), length, streams);
      Scatter(array, field, name(task, field), task, histories);
    }
  }
  return histories;
}

std::string FolderName(int64_t task) { return Format("env-%03lld", static_cast<long long>(task)); }

// The one .hdf5 file of a folder; empty when there is none.
fs::path OnlyHdf5In(const fs::path& directory) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(directory)) {
    if (entry.path().extension() == ".hdf5") files.push_back(entry.path());
  }
  if (files.size() > 1)
    throw DataError(directory.string() + ": holds " + std::to_string(files.size()) +
                    " .hdf5 files; name one of them in data.path");
  return files.empty() ? fs::path() : files[0];
}

}  // namespace

std::string Histories::Fingerprint() const { return HexDigest(Xxh3Of(std::span<const Transition>(data_))); }

void WriteHdf5(const Histories& histories, const fs::path& file) {
  Replacement(file, [&](const fs::path& temporary) {
    Hdf5File out = Hdf5File::Create(temporary);
    for (int64_t task = 0; task < histories.tasks(); ++task) {
      for (const ArrayField& field : kFields) {
        const IntArray array = Gather(histories, task, field);
        out.Write(std::to_string(task) + "/" + field.name, array.shape, array.values, field.is_bool);
      }
    }
    out.Close();
  }).Commit();
}

void WriteNpyFolders(const Histories& histories, const fs::path& directory) {
  for (int64_t task = 0; task < histories.tasks(); ++task) {
    const fs::path folder = directory / FolderName(task), temporary = folder.string() + ".tmp";
    fs::create_directories(temporary);
    for (const ArrayField& field : kFields) {
      const IntArray array = Gather(histories, task, field);
      WriteNpy(temporary / (std::string(field.name) + ".npy"), array.shape, array.values, field.is_bool);
    }
    fs::remove_all(folder);
    fs::rename(temporary, folder);
  }
}

Histories ReadHistories(const fs::path& path, int64_t num_tasks, int64_t max_transitions) {
  if (!fs::exists(path)) throw DataError("data.path: " + path.string() + ": no such file or folder");
  const fs::path hdf5 = fs::is_directory(path) ? OnlyHdf5In(path) : path;
  if (!hdf5.empty()) {
    const Hdf5File file = Hdf5File::Open(hdf5);
    auto in_file = [](int64_t task, const ArrayField& field) { return std::to_string(task) + "/" + field.name; };
    // As of one array (Hdf5File::Read): what was never written takes no room in a file, and would in memory.
    constexpr uint64_t kNeverWritten = uint64_t{1} << 24, kBestPacked = 1032;
    return Read(
        num_tasks, max_transitions, fs::file_size(hdf5) * kBestPacked + kNeverWritten,
        [&](int64_t task, const ArrayField& field) { return file.Read(in_file(task, field)); },
        [&](int64_t task, const ArrayField& field) { return file.Has(in_file(task, field)); },
        [&](int64_t task, const ArrayField& field) { return hdf5.string() + ": " + in_file(task, field); });
  }
  if (!fs::exists(path / FolderName(0)))
    throw DataError("data.path: " + path.string() + ": holds neither an .hdf5 file nor " + FolderName(0));
  auto npy = [&](int64_t task, const ArrayField& field) {
    return path / FolderName(task) / (std::string(field.name) + ".npy");
  };
  return Read(
      num_tasks, max_transitions, UINT64_MAX,
      [&](int64_t task, const ArrayField& field) { return ReadNpy(npy(task, field)); },
      [&](int64_t task, const ArrayField& field) { return fs::exists(npy(task, field)); },
      [&](int64_t task, const ArrayField& field) { return npy(task, field).string(); });
}

}  // namespace trainyard::ad
